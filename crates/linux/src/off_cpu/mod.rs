//! Where tasks wait: programs at the scheduler's tracepoints.
//!
//! What it is: [`OffCpuProbe`] makes the kernel write a record for each wait of the tasks that are followed: since when, woken when,
//! back when, from where in the program and in the kernel ([`Wait`]), and who woke it ([`Wake`]). Waits that are shorter than asked for are added up by thread
//! ([`ShortWaits`]). Read next: `program`.
//!
//! A wait has two parts: until the task is woken, and then until it has a CPU. A task that is preempted waits for a CPU only.
//!
//! **Invariant:** no wait is silently missing: what was not written is in a sum, and what had no room there is in the sum of others.
//! What was woken and not seen to come back is in a sum, too; another switch that was not seen is a wait less, and counted.

mod copies;
mod program;
mod target;
mod under_way;

use crate::bpf::{Attached, Bytecode, Map, MapKind, Program, ProgramKind, Update};
use crate::btf::Btf;
use crate::procfs::Proc;
use crate::sys::Errno;
pub use crate::sys::bpf::wait_for_programs;
pub use copies::{CopiedStack, RegisterPlaces, UserStacks};
use program::{Layout, Programs};
pub use target::{OffCpuChildren, OffCpuTarget};
pub use under_way::UnderWay;

/// Where the record of a wait has what, in bytes from its beginning. It is also what is kept of a task.
struct Place;

impl Place {
    const LEFT_AT: i16 = 0;
    const WOKEN_AT: i16 = 8;
    /// 0: the record is of who woke.
    const CAME_AT: i16 = 16;
    const TASK: i16 = 24;
    /// How it left, as the kernel's tasks say it; 0: it could have gone on.
    const STATE: i16 = 32;
    const USER_BYTES: i16 = 36;
    const KERNEL_BYTES: i16 = 40;
    /// The kernel's priority of the task, when it had a CPU again.
    const PRIORITY: i16 = 44;
    /// Of a wait: the lock that is waited for, or 0. Of a record of who woke: the task that was woken.
    const OTHER: i16 = 48;
    /// That of the program (its frames, or a copy of its registers and its stack), then that of the kernel.
    const STACKS: i16 = 56;
    /// As many frames as a call chain of the kernel's events has.
    const FRAMES_BYTES_MOST: i32 = 127 * 8;
    const KERNEL_BYTES_MOST: i32 = 64 * 8;
}

/// What is in the map that switches the programs, in bytes from its beginning.
struct Control;

impl Control {
    /// Since when waits are recorded, ns, or 0: they are not.
    const SINCE: i16 = 0;
    /// Whether an exec is waited for no more.
    const EXECUTED: i16 = 8;
    /// How often a task was seen to come or to leave, but not to do the other before.
    const MISSED: i16 = 16;
    /// How often there was no room for a task.
    const NO_ROOM: i16 = 24;
    const BYTES: u32 = 32;
}

/// How many processes or threads can be named.
const MOST_TARGETS: u32 = 64 << 10;
/// How much memory is for what is kept of tasks at least: of 16,000.
const USUAL_BYTES: u32 = 27_000_000;
/// The same where stacks are copied: of 7,000.
const USUAL_BYTES_OF_COPIES: u32 = 64_000_000;
/// And at most.
const MOST_BYTES: u32 = 430_000_000;

/// A wait of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait<'r> {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// When it left its CPU, ns of the monotonic clock.
    pub left_ns: u64,
    /// When what it waited for had come: between the others.
    pub runnable_ns: u64,
    /// When it had a CPU again.
    pub came_ns: u64,
    /// The address of the futex that it waited for; 0 where it waited for something else.
    pub lock: u64,
    /// Its priority when it had a CPU again, as the kernel counts: less is before more; 120 is usual, 99 and less are real-time.
    pub priority: i32,
    /// Where it was.
    pub stack: Stack<'r>,
}

/// That a thread has ended the wait of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wake<'r> {
    /// The process that ran. In an interrupt, it has nothing to do with it.
    pub pid: u32,
    /// Its thread; 0 where none ran.
    pub tid: u32,
    /// The thread that was woken.
    pub woken_tid: u32,
    /// Since when that had waited, ns of the monotonic clock.
    pub left_ns: u64,
    /// When it was woken.
    pub woken_ns: u64,
    /// Where the one that ran was.
    pub stack: Stack<'r>,
}

/// Where a thread was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stack<'r> {
    user: &'r [u8],
    kernel: &'r [u8],
}

/// What programs write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffCpuRecord<'r> {
    /// A wait that is over.
    Wait(Wait<'r>),
    /// Who has ended a wait, which is told later.
    Wake(Wake<'r>),
}

fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

impl<'r> OffCpuRecord<'r> {
    /// Takes a record apart; `None` where it is none.
    #[must_use]
    pub fn decode(raw: &'r [u8]) -> Option<Self> {
        let at = |at: i16| raw.get(usize::try_from(at).ok()?..);
        let double = |place: i16| at(place)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let word = |place: i16| at(place)?.first_chunk().map(|word| u32::from_ne_bytes(*word) as usize);
        let (left_ns, woken_ns, came_ns) = (double(Place::LEFT_AT)?, double(Place::WOKEN_AT)?, double(Place::CAME_AT)?);
        let (task, stacks) = (double(Place::TASK)?, at(Place::STACKS)?);
        let (user, kernel) = stacks.split_at_checked(word(Place::USER_BYTES)?)?;
        let stack = Stack { user, kernel: kernel.get(..word(Place::KERNEL_BYTES)?)? };
        let (pid, tid, other) = ((task >> 32) as u32, task as u32, double(Place::OTHER)?);
        let priority = word(Place::PRIORITY)? as i32;
        if came_ns == 0 {
            return Some(Self::Wake(Wake { pid, tid, woken_tid: other as u32, left_ns, woken_ns, stack }));
        }
        let (runnable_ns, lock) = match (word(Place::STATE)?, woken_ns) {
            (0, _) => (left_ns, 0),
            // That it was woken was not seen.
            (_, 0) => (came_ns, other),
            (_, woken_ns) => (woken_ns.clamp(left_ns, came_ns.max(left_ns)), other),
        };
        Some(Self::Wait(Wait { pid, tid, left_ns, runnable_ns, came_ns, lock, priority, stack }))
    }
}

impl<'r> Stack<'r> {
    /// What was copied of the program, of a record of [`OffCpuProbe::copies`]; `None` where there was no program.
    #[must_use]
    pub fn copied(&self, places: &RegisterPlaces) -> Option<CopiedStack<'r>> {
        places.read(self.user)
    }

    /// Where the program was, innermost first; nothing that makes sense where stacks are copied.
    pub fn user(&self) -> impl ExactSizeIterator<Item = u64> + use<'r> {
        words(self.user)
    }

    /// Where the kernel was, innermost first.
    pub fn kernel(&self) -> impl ExactSizeIterator<Item = u64> + use<'r> {
        words(self.kernel)
    }
}

/// What is known of a thread's waits that were not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortWaits {
    /// The process; 0: of all for which there was no room.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many they are.
    pub waits: u64,
    /// How long it waited until it was woken, ns.
    pub blocked_ns: u64,
    /// How long it waited for a CPU, ns.
    pub runnable_ns: u64,
    /// How many of them were not short, but had no room in the ring.
    pub lost: u64,
}

impl ShortWaits {
    /// How many threads have a sum of their own.
    pub const MOST: u32 = 16 << 10;
}

/// How many tasks may be followed at once: of the whole machine twice as many as there are now.
fn most_tasks(target: OffCpuTarget, layout: Layout) -> u32 {
    let of_loads = |text: String| text.split(['/', ' ']).nth(4)?.parse::<u32>().ok();
    let now = std::fs::read_to_string(Proc::system().root().join("loadavg")).ok().and_then(of_loads);
    let usual = if layout.copies() { USUAL_BYTES_OF_COPIES } else { USUAL_BYTES } / layout.task_bytes();
    match target {
        OffCpuTarget::All | OffCpuTarget::Cgroup(_) => {
            now.unwrap_or(0).saturating_mul(2).clamp(usual, MOST_BYTES / layout.task_bytes())
        }
        _ => usual,
    }
}

#[derive(Debug)]
struct Maps {
    /// How much is kept of a task.
    task_bytes: u32,
    /// What is kept of each task that is followed, by the address of its structure.
    tasks: Map,
    /// What is kept of a task of which nothing is known.
    nothing: Map,
    /// Processes or threads that are followed, or control groups that were met.
    targets: Map,
    /// See [`Control`].
    control: Map,
    /// See [`ShortWaits`].
    sums: Map,
    /// Where the record of who woke is made, on each CPU.
    wake: Map,
    /// Where programs that look at each task make a value.
    scratch: Map,
    /// The events into whose rings programs write, by CPU.
    outputs: Map,
}

/// Programs that record waits, as long as it lives.
#[derive(Debug)]
pub struct OffCpuProbe {
    maps: Maps,
    /// Dropping them detaches the programs.
    attached: Vec<Attached>,
    /// What looks at each task; `None` where the kernel runs no such programs (before 5.12).
    each_task: Option<EachTask>,
    layout: Layout,
    places: Option<RegisterPlaces>,
    target: OffCpuTarget,
    /// Shorter waits are added up, ns.
    least_ns: u64,
    /// The number of the tracepoint of execs.
    exec: u32,
}

/// Programs that look at each task.
#[derive(Debug)]
struct EachTask {
    /// Marks what has a CPU.
    mark: Program,
    under_way: Program,
}

impl OffCpuProbe {
    /// Loads and attaches the programs, which record nothing yet. Waits shorter than `least_ns` are added up. CPUs have numbers below
    /// `cpus`.
    ///
    /// # Errors
    /// Why they can't be had, as a clause.
    pub fn open(
        target: OffCpuTarget,
        children: OffCpuChildren,
        stacks: UserStacks,
        least_ns: u64,
        cpus: u32,
    ) -> Result<Self, String> {
        if !Proc::system().is_in_first_pid_namespace() {
            return Err("programs see threads under other numbers than those of this PID namespace".to_owned());
        }
        if let Some(why) = crate::bpf::why_not(ProgramKind::RawTracepoint) {
            return Err(why);
        }
        let undescribed = "this kernel does not describe its tasks to programs (CONFIG_DEBUG_INFO_BTF)";
        let btf = Btf::system().ok_or(undescribed)?;
        let (switch, arguments) = btf.tracepoint("sched_switch").ok_or(undescribed)?;
        let (waking, _) = btf.tracepoint("sched_waking").ok_or(undescribed)?;
        let (new_task, _) = btf.tracepoint("task_newtask").ok_or(undescribed)?;
        let (free, _) = btf.tracepoint("sched_process_free").ok_or(undescribed)?;
        let (exec, _) = btf.tracepoint("sched_process_exec").ok_or(undescribed)?;
        let mut layout = Layout::new(&btf, arguments).ok_or(undescribed)?;
        if matches!(target, OffCpuTarget::Cgroup(_)) && layout.cgroups.is_none() {
            return Err("programs can't tell the control group of a task (before Linux 6.1)".to_owned());
        }
        let places = match stacks {
            UserStacks::Frames => None,
            UserStacks::Copies(bytes) => {
                RegisterPlaces::new(&btf).inspect(|places| layout = layout.with_copies(places, bytes))
            }
        };
        let no_room = |errno| format!("the kernel gives no room for what the programs need: {errno}");
        let maps = Maps::new(cpus, target, layout).map_err(no_room)?;
        let mut probe = Self { maps, attached: Vec::new(), each_task: None, layout, places, target, least_ns, exec };
        if probe.attach("pmux_switch", switch, |programs| programs.switch()).is_err() {
            // Then the kernel walks the stacks of programs.
            (probe.layout, probe.places) = (layout.without_registers(), None);
            probe.attach("pmux_switch", switch, |programs| programs.switch())?;
        }
        probe.attach("pmux_waking", waking, |programs| programs.waking())?;
        probe.attach("pmux_free", free, |programs| programs.free())?;
        if children == OffCpuChildren::Follow {
            probe.attach("pmux_newtask", new_task, |programs| programs.new_task())?;
        }
        probe.each_task = btf.function("bpf_iter_task").and_then(|iterator| probe.each_task(iterator).ok());
        if matches!(target, OffCpuTarget::Cgroup(_)) && probe.each_task.is_none() {
            return Err("programs can't look for the tasks of a control group".to_owned());
        }
        Ok(probe)
    }

    fn each_task(&self, iterator: u32) -> Result<EachTask, String> {
        let kind = ProgramKind::TaskIterator(iterator);
        Ok(EachTask {
            mark: self.load("pmux_mark", kind, &|programs| programs.mark())?,
            under_way: self.load("pmux_under_way", kind, &|programs| programs.under_way())?,
        })
    }

    fn load(
        &self,
        name: &str,
        kind: ProgramKind,
        assemble: &dyn for<'m> Fn(&Programs<'m>) -> Option<Bytecode<'m>>,
    ) -> Result<Program, String> {
        let (layout, target, least_ns) = (self.layout, self.target, self.least_ns);
        let code = assemble(&Programs { maps: &self.maps, layout, target, least_ns });
        let code = code.ok_or("a program can't be assembled")?;
        Program::load(kind, &code, name).map_err(|error| error.to_string())
    }

    fn attach(
        &mut self,
        name: &str,
        tracepoint: u32,
        assemble: impl for<'m> Fn(&Programs<'m>) -> Option<Bytecode<'m>>,
    ) -> Result<(), String> {
        let attached = self.load(name, ProgramKind::TypedTracepoint(tracepoint), &assemble)?.attach_typed_tracepoint();
        self.attached.push(attached.map_err(|errno| format!("a program can't be attached: {errno}"))?);
        Ok(())
    }

    /// Records from the next exec of a process on.
    ///
    /// # Errors
    /// Why not, as a clause.
    pub fn enable_on_exec(&mut self, pid: u32) -> Result<(), String> {
        self.attach("pmux_exec", self.exec, |programs| programs.exec(pid))
    }

    /// How records tell of programs, where stacks are copied; `None` where they are not, also because that can't be had.
    #[must_use]
    pub fn copies(&self) -> Option<&RegisterPlaces> {
        self.places.as_ref().filter(|_| self.layout.copies())
    }

    /// Follows a process or a thread, as [`OffCpuTarget`] says: [`OffCpuTarget::Processes`] or [`OffCpuTarget::Threads`].
    ///
    /// # Errors
    /// `E2BIG`: too many are.
    pub fn add(&self, id: u32) -> Result<(), Errno> {
        self.maps.targets.set(&id.to_ne_bytes(), &[0; 4], Update::Set)
    }

    /// Records from now on, unless it does. A task that waits already is recorded as if it had begun now.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn enable(&self) -> Result<(), Errno> {
        if self.recorded()?.is_some() {
            return Ok(());
        }
        // What is known of tasks is from before it was switched off. No program changes it now.
        let nothing = vec![0; self.maps.task_bytes as usize];
        for (task, _) in self.maps.tasks.entries()?.iter() {
            match self.maps.tasks.set(task, &nothing, Update::Present) {
                // It has ended meanwhile.
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.switch(crate::now_ns())
    }

    /// Looks at what has a CPU, of which nothing may be seen until recording ends, and at what sleeps. Behind [`OffCpuProbe::enable`], and
    /// when everything else is switched on: it takes some ms. Where it can't be done, what runs all the time is taken to wait.
    pub fn mark_running(&self) {
        if let Some(EachTask { mark, .. }) = &self.each_task {
            // What leaves its CPU just now is there a little longer.
            wait_for_programs();
            let _ = mark.iterate();
        }
    }

    /// Records no more. Answers since when it did, ns of the monotonic clock, and now; `None` where it did not.
    ///
    /// # Errors
    /// None that is known.
    pub fn disable(&self) -> Result<Option<(u64, u64)>, Errno> {
        let recorded = self.recorded()?;
        self.switch(0)?;
        Ok(recorded)
    }

    /// Since when it has recorded, ns of the monotonic clock, and now; `None` where it does not.
    ///
    /// # Errors
    /// None that is known.
    pub fn recorded(&self) -> Result<Option<(u64, u64)>, Errno> {
        let control = self.maps.control.get(&[0; 4])?.unwrap_or_default();
        let since_ns = words(&control).next().unwrap_or(0);
        Ok(Some((since_ns, crate::now_ns())).filter(|_| since_ns != 0))
    }

    /// What waited when recording ended, as if its wait had ended then: between what [`OffCpuProbe::disable`] has answered; or, of
    /// [`OffCpuProbe::recorded`], what waits now, while it goes on. Where the kernel runs no programs for each task, that is nothing.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and others: these waits are missing.
    pub fn under_way(&self, recorded: (u64, u64)) -> Result<UnderWay, Errno> {
        let Some(EachTask { under_way, .. }) = &self.each_task else { return Ok(UnderWay::default()) };
        // A program that runs on another CPU may still record a wait that would be answered, too.
        wait_for_programs();
        Ok(UnderWay::of(under_way.iterate()?, recorded))
    }

    fn switch(&self, since_ns: u64) -> Result<(), Errno> {
        let mut control = self.maps.control.get(&[0; 4])?.unwrap_or_default();
        for (at, word) in [(Control::SINCE, since_ns), (Control::EXECUTED, 1)] {
            if let Some(bytes) = usize::try_from(at).ok().and_then(|at| control.get_mut(at..at + 8)) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        }
        self.maps.control.set(&[0; 4], &control, Update::Set)
    }

    /// How many switches of tasks were not seen, and how often there was no room for a task: so many waits at most are missing.
    ///
    /// # Errors
    /// None that is known.
    pub fn missed(&self) -> Result<(u64, u64), Errno> {
        let control = self.maps.control.get(&[0; 4])?.unwrap_or_default();
        let word = |at: i16| usize::try_from(at).ok().and_then(|at| words(control.get(at..)?).next()).unwrap_or(0);
        Ok((word(Control::MISSED), word(Control::NO_ROOM)))
    }

    /// The map for the events that records are written with, by CPU ([`crate::host::LinuxHost::lend`]). A CPU without one has sums only.
    #[must_use]
    pub fn outputs(&self) -> &Map {
        &self.maps.outputs
    }

    /// Gives up the sum of a thread that has ended: there is room for [`ShortWaits::MOST`].
    pub fn forget_short_waits(&self, sum: &ShortWaits) {
        let task = u64::from(sum.pid) << 32 | u64::from(sum.tid);
        let _ = self.maps.sums.remove(&task.to_ne_bytes());
    }

    /// What was not written.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn short_waits(&self) -> Result<Vec<ShortWaits>, Errno> {
        let entries = self.maps.sums.entries()?;
        let sum = |(key, value): (&[u8], &[u8])| {
            let task = words(key).next().unwrap_or(0);
            let mut sums = words(value);
            let mut next = || sums.next().unwrap_or(0);
            let (pid, tid) = ((task >> 32) as u32, task as u32);
            ShortWaits { pid, tid, waits: next(), blocked_ns: next(), runnable_ns: next(), lost: next() }
        };
        Ok(entries.iter().map(sum).filter(|sum| sum.waits > 0).collect())
    }
}

impl Maps {
    fn new(cpus: u32, target: OffCpuTarget, layout: Layout) -> Result<Self, Errno> {
        let (most_tasks, task_bytes) = (most_tasks(target, layout), layout.task_bytes());
        let (of_targets, number_bytes) = target.numbers();
        let maps = Self {
            task_bytes,
            tasks: Map::new(MapKind::Hash, 8, task_bytes, most_tasks, "pmux_tasks")?,
            nothing: Map::new(MapKind::Array, 4, task_bytes, 1, "pmux_nothing")?,
            targets: Map::new(of_targets, number_bytes, 4, MOST_TARGETS, "pmux_targets")?,
            control: Map::new(MapKind::Array, 4, Control::BYTES, 1, "pmux_control")?,
            sums: Map::new(MapKind::Hash, 8, 32, ShortWaits::MOST, "pmux_sums")?,
            wake: Map::new(MapKind::PerCpuArray, 4, task_bytes, 1, "pmux_wake")?,
            scratch: Map::new(MapKind::Array, 4, task_bytes, 1, "pmux_scratch")?,
            outputs: Map::new(MapKind::PerfEventArray, 4, 4, cpus, "pmux_outputs")?,
        };
        maps.sums.set(&[0; 8], &[0; 32], Update::Set)?;
        Ok(maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(left: u64, woken: u64, came: u64, state: u32, stacks: (&[u64], &[u64])) -> Vec<u8> {
        let (user, kernel) = stacks;
        let mut raw: Vec<u8> = [left, woken, came, 7 << 32 | 8].into_iter().flat_map(u64::to_ne_bytes).collect();
        for word in [state, 8 * user.len() as u32, 8 * kernel.len() as u32, 120] {
            raw.extend(word.to_ne_bytes());
        }
        raw.extend((5_u64 << 32 | 9).to_ne_bytes());
        raw.extend(user.iter().chain(kernel).flat_map(|ip| ip.to_ne_bytes()));
        raw
    }

    #[test]
    fn programs_look_at_each_task_where_they_can() {
        let target = OffCpuTarget::Processes;
        let Ok(probe) = OffCpuProbe::open(target, OffCpuChildren::Leave, UserStacks::Frames, 0, 1) else {
            return println!("skipped: needs root, and a kernel with BPF programs that describes itself");
        };
        let roots = crate::diagnose::Roots::system();
        assert!(probe.each_task.is_some() || crate::diagnose::Facts::of_machine(&roots).kernel < Some((5, 12)));
        // This thread has a CPU, and another one of the process waits.
        let (sender, waits) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || assert!(waits.recv().is_err()));
        probe.add(std::process::id()).unwrap();
        probe.enable().unwrap();
        probe.mark_running();
        let recorded = probe.disable().unwrap().unwrap();
        assert_eq!(probe.disable(), Ok(None));
        let under_way = probe.under_way(recorded).unwrap();
        let is_ours = |wait: &Wait<'_>| wait.pid == std::process::id();
        assert!(under_way.waits().filter(is_ours).all(|wait| wait.left_ns >= recorded.0 && wait.came_ns == recorded.1));
        assert!(under_way.waits().any(|wait| is_ours(&wait)) || probe.each_task.is_none());
        drop(sender);
        waiting.join().unwrap();
    }

    /// The verifier takes them with any size, and gives no room for more than is kept.
    #[test]
    fn programs_copy_stacks_where_they_can() {
        let open = |stacks| OffCpuProbe::open(OffCpuTarget::All, OffCpuChildren::Follow, stacks, 0, 1);
        let Ok(frames) = open(UserStacks::Frames) else {
            return println!("skipped: needs root, and a kernel with BPF programs that describes itself");
        };
        assert!(frames.copies().is_none());
        let roots = crate::diagnose::Roots::system();
        for bytes in [8, 8192, u32::MAX - 4096] {
            let probe = open(UserStacks::Copies(bytes)).unwrap();
            assert!(
                probe.copies().is_some() || crate::diagnose::Facts::of_machine(&roots).kernel < Some((5, 15)),
                "{bytes}"
            );
        }
    }

    #[test]
    fn a_wait_has_two_parts() {
        let parts = |left, woken, came, state| {
            let raw = record(left, woken, came, state, (&[1, 2], &[3]));
            let Some(OffCpuRecord::Wait(wait)) = OffCpuRecord::decode(&raw) else { return None };
            Some((wait.runnable_ns - wait.left_ns, wait.came_ns - wait.runnable_ns))
        };
        // Asleep, and woken; woken before it had left; woken by something unseen; preempted, with an old mark.
        assert_eq!(parts(100, 140, 150, 1), Some((40, 10)));
        assert_eq!(parts(100, 99, 150, 2), Some((0, 50)));
        assert_eq!(parts(100, 0, 150, 1), Some((50, 0)));
        assert_eq!(parts(100, 120, 150, 0), Some((0, 50)));
    }

    #[test]
    fn who_woke_is_told_before() {
        let raw = record(100, 140, 0, 0, (&[1], &[3]));
        let Some(OffCpuRecord::Wake(wake)) = OffCpuRecord::decode(&raw) else { panic!("{raw:?}") };
        assert_eq!((wake.pid, wake.tid, wake.woken_tid, wake.left_ns, wake.woken_ns), (7, 8, 9, 100, 140));
        assert_eq!(wake.stack.user().chain(wake.stack.kernel()).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn bytes_of_a_record_are_not_believed() {
        let whole = record(100, 140, 150, 1, (&[1, 2], &[3]));
        let Some(OffCpuRecord::Wait(wait)) = OffCpuRecord::decode(&whole) else { panic!("it is a wait") };
        assert_eq!((wait.pid, wait.tid, wait.lock), (7, 8, 5 << 32 | 9));
        assert_eq!(wait.stack.user().chain(wait.stack.kernel()).collect::<Vec<_>>(), [1, 2, 3]);
        for length in 0..whole.len() {
            assert_eq!(OffCpuRecord::decode(&whole[..length]), None, "{length}");
        }
        // The kernel fills it up to whole words.
        assert!(OffCpuRecord::decode(&[whole, vec![0; 4]].concat()).is_some());
    }
}
