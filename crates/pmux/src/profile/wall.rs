//! Wall time: what threads did on a CPU, and what they waited for, in one tree.
//!
//! What it is: [`Tally::wall`] makes one event of the samples of a clock, of waits (`offcpu-time`) and of waits for a CPU
//! (`runqueue-time`). The stack of a wait gets one more frame, its innermost: what was waited for ([`WaitKind`]), which is read off the
//! functions of the kernel. Read first: [`WaitKind::of`].
//!
//! **Invariant:** no time is added and none is left out, but that of events which are no times.

use super::modules::{Module, ModuleId, ModuleKind};
use super::stacks::{Frame, Site, StackId};
use super::tally::{Key, Tally};
use super::times::TimeKind;
use super::wakes::Woken;
use super::{Profile, Symbols, Taken, ThreadId, Whole};
use pmux_abi::attr::{EventType, sw};
use std::collections::HashMap;
use std::sync::Arc;

/// What a thread waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitKind {
    /// A CPU: it could have gone on.
    RunQueue,
    /// A time.
    Sleep,
    /// A lock, or whatever else is built on a futex.
    Lock,
    /// A disk.
    Io,
    /// A page of its memory.
    PageFault,
    /// The other end of a pipe, a socket or a terminal.
    Pipe,
    /// One of several files.
    Poll,
    /// The end of a child.
    Child,
    /// A signal, or a debugger.
    Signal,
    /// Something else, or what the recording does not tell.
    Other,
}

impl WaitKind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::RunQueue,
        Self::Sleep,
        Self::Lock,
        Self::Io,
        Self::PageFault,
        Self::Pipe,
        Self::Poll,
        Self::Child,
        Self::Signal,
        Self::Other,
    ];

    /// What its frame is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunQueue => "[run queue]",
            Self::Sleep => "[sleep]",
            Self::Lock => "[lock]",
            Self::Io => "[I/O]",
            Self::PageFault => "[page fault]",
            Self::Pipe => "[pipe or socket]",
            Self::Poll => "[poll]",
            Self::Child => "[child]",
            Self::Signal => "[signal]",
            Self::Other => "[wait]",
        }
    }

    /// The kind whose frame has this address, which is its place among all; `None` for others.
    pub(super) fn at(address: u64) -> Option<Self> {
        usize::try_from(address).ok().and_then(|at| Self::ALL.get(at).copied())
    }

    /// What a thread waits for that is in these functions of the kernel. A page fault may wait for a disk, and a poll for a time: what
    /// the program asked for comes first.
    #[must_use]
    pub fn of<S: AsRef<str>>(functions: &[S]) -> Self {
        // Names of functions; a star stands for any end.
        const KINDS: [(WaitKind, &str); 8] = [
            (WaitKind::PageFault, "handle_mm_fault do_user_addr_fault exc_page_fault do_page_fault"),
            (
                WaitKind::Lock,
                "futex_* __futex_* do_futex mutex_lock* __mutex_lock* rwsem_* down_read* down_write* rt_mutex_* \
                 __rt_mutex_* locks_lock_inode_wait fcntl_setlk*",
            ),
            (
                WaitKind::Io,
                "io_schedule* folio_wait_* wait_on_page_* blk_* submit_bio_wait jbd2_* vfs_fsync* do_fsync \
                 sync_filesystem file_write_and_wait* filemap_fdatawait* wait_for_completion_io* io_cqring_wait \
                 read_events",
            ),
            (WaitKind::Poll, "do_poll* do_sys_poll do_select core_sys_select ep_poll* do_epoll_wait"),
            (
                WaitKind::Pipe,
                "pipe_* anon_pipe_* unix_* sk_wait_* sock_* __sys_recv* __sys_accept* tcp_* inet_* __skb_* n_tty_* \
                 tty_* eventfd_read fifo_open wait_for_partner",
            ),
            (WaitKind::Child, "do_wait kernel_wait4 kernel_waitid"),
            (WaitKind::Signal, "sigsuspend do_sigtimedwait *_sys_pause do_signal_stop ptrace_stop"),
            (WaitKind::Sleep, "hrtimer_nanosleep* do_nanosleep schedule_hrtimeout* msleep*"),
        ];
        let is = |name: &str, pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => name.ends_with(end),
            (_, Some(begin)) => name.starts_with(begin),
            // What the compiler has made of a function is named after it.
            _ => name.split('.').next() == Some(pattern),
        };
        let has = |(_, patterns): &&(Self, &str)| {
            patterns.split(' ').any(|pattern| functions.iter().any(|name| is(name.as_ref(), pattern)))
        };
        KINDS.iter().find(has).map_or(Self::Other, |(kind, _)| *kind)
    }
}

/// What ends a wait where no thread does: the one that it has interrupted has nothing to do with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Interrupt {
    /// A time was over.
    Timer,
    /// A device.
    Device,
}

impl Interrupt {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timer => "[timer]",
            Self::Device => "[interrupt]",
        }
    }

    /// The one in which these functions of the kernel ran; `None` where a thread ran them for itself.
    #[must_use]
    pub fn of<S: AsRef<str>>(functions: &[S]) -> Option<Self> {
        let has =
            |begins: &[&str]| functions.iter().any(|name| begins.iter().any(|begin| name.as_ref().starts_with(begin)));
        if has(&["hrtimer_wakeup", "process_timeout", "posix_timer_fn", "run_timer_softirq"]) {
            return Some(Self::Timer);
        }
        has(&["asm_sysvec_", "asm_common_interrupt", "el1h_64_irq", "el0t_64_irq", "common_interrupt"])
            .then_some(Self::Device)
    }
}

/// Who ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waker {
    /// A thread.
    Thread(ThreadId),
    /// No thread.
    Interrupt(Interrupt),
}

/// Both samples of a wait stand one behind the other, but for those of other threads at the same ns.
const NEAR: usize = 8;

impl Tally {
    /// Makes wall time of what was added up, as one event of the profile, whose unit is the nanosecond. To be called before functions
    /// are looked up.
    ///
    /// # Errors
    /// A sentence: the recording has no waits.
    pub fn wall(&self, profile: &mut Profile) -> Result<Self, String> {
        let parts: Vec<TimeKind> = profile.events.iter().map(TimeKind::of).collect();
        if !parts.iter().any(|part| matches!(part, TimeKind::Waited | TimeKind::WaitedForCpu)) {
            return Err("it has no waits: record it with `pmux record --off-cpu`".to_owned());
        }
        // Two clocks count the same time.
        let clock = parts.iter().position(|&part| part == TimeKind::Ran);
        let all = clock.or_else(|| parts.iter().position(|&part| part == TimeKind::Waited)).unwrap_or(0);
        if clock.is_none() {
            profile.notes.push("it has no samples of cpu-clock: what ran is not in it, only what waited".to_owned());
        }
        let mut kinds = Kinds::new(profile);
        let mut wall = Self::new(self.apart);
        for (key, weight) in self.rows() {
            let stack = match parts.get(key.event as usize) {
                Some(TimeKind::Ran) if Some(key.event as usize) == clock => key.stack,
                Some(TimeKind::Waited) => kinds.stack(profile, key.stack, None),
                Some(TimeKind::WaitedForCpu) => kinds.stack(profile, key.stack, Some(WaitKind::RunQueue)),
                _ => continue,
            };
            wall.add(Key { event: all as u32, stack, ..*key }, *weight);
        }
        if let Some(event) = profile.events.get_mut(all) {
            "wall-clock".clone_into(&mut event.name);
            event.group = None;
            (event.attr.kind, event.attr.config) = (EventType::SOFTWARE, sw::CPU_CLOCK);
        }
        Ok(wall)
    }
}

impl Whole {
    /// Puts what was waited for onto the stacks of waits, as [`Tally::wall`] does, and tells from when to when each was, in the order in
    /// which threads had a CPU again. Short waits, of which only sums are known, are not among them. To be called once, before functions
    /// are looked up.
    pub fn waits(&mut self, profile: &mut Profile) -> Vec<WaitSpan> {
        let parts: Vec<TimeKind> = profile.events.iter().map(TimeKind::of).collect();
        if !parts.iter().any(|part| matches!(part, TimeKind::Waited | TimeKind::WaitedForCpu)) {
            return Vec::new();
        }
        let mut kinds = Kinds::new(profile);
        // By stack.
        let mut interrupts: Vec<Option<Option<Interrupt>>> = vec![None; profile.stacks.nodes().count() + 1];
        let mut spans: Vec<WaitSpan> = Vec::new();
        let mut woken: Woken<Waker> = Woken::default();
        let mut wakes = self.wakes.iter().copied().peekable();
        for (place, sample) in self.samples.iter_mut().enumerate() {
            if let Some((_, tid)) = wakes.next_if(|&(at, _)| at == place) {
                let known = &mut interrupts[sample.stack.index()];
                let interrupt =
                    *known.get_or_insert_with(|| Interrupt::of(&kinds.kernel_functions(profile, sample.stack)));
                let waker = interrupt.map_or(Waker::Thread(sample.thread), Waker::Interrupt);
                woken.wake(tid, sample.period, waker);
            }
            let kind = match parts.get(sample.event as usize) {
                Some(TimeKind::Waited) => None,
                Some(TimeKind::WaitedForCpu) => Some(WaitKind::RunQueue),
                _ => continue,
            };
            let is_sum = profile.stacks.is_nowhere(sample.stack);
            sample.stack = kinds.stack(profile, sample.stack, kind);
            if is_sum {
                continue;
            }
            let mut waker = None;
            if kind.is_none() {
                waker = woken.end(profile.tasks.thread(sample.thread).tid, sample.period);
            } else if let Some(before) = spans.iter_mut().rev().take(NEAR).find(|before| {
                let of = |span: &WaitSpan| (span.sample.time_ns, span.sample.thread, span.kind == WaitKind::RunQueue);
                of(before) == (sample.time_ns, sample.thread, false)
            }) {
                // The wait was over when this one began: both are told when it had a CPU again.
                before.from_ns = before.from_ns.saturating_sub(sample.period);
                before.to_ns = before.to_ns.saturating_sub(sample.period);
            }
            let frame = profile.stacks.innermost(sample.stack).map(|frame| profile.stacks.frame(frame).address);
            let kind = frame.and_then(WaitKind::at).unwrap_or(WaitKind::Other);
            let (from_ns, to_ns) = (sample.time_ns.saturating_sub(sample.period), sample.time_ns);
            spans.push(WaitSpan { sample: *sample, place, from_ns, to_ns, kind, waker });
        }
        spans
    }
}

/// A thread waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitSpan {
    /// The sample that tells of it.
    pub sample: Taken,
    /// The place of the sample.
    pub place: usize,
    /// From when, in ns of the recording's clock.
    pub from_ns: u64,
    /// To when: until it was woken, or, if it waited for a CPU, until it had one.
    pub to_ns: u64,
    /// For what.
    pub kind: WaitKind,
    /// Who ended it, if that was recorded.
    pub waker: Option<Waker>,
}

struct Kinds {
    symbols: Symbols,
    /// What stacks became.
    stacks: HashMap<(StackId, Option<WaitKind>), StackId>,
    module: ModuleId,
}

impl Kinds {
    fn new(profile: &mut Profile) -> Self {
        // What stands for a program where a thread waits.
        let name = profile.names.intern(b"[wait]");
        let wait = Module { kind: ModuleKind::Wait, path: name, short: name, build_id: None, start: 0, pid: None };
        Self { symbols: Symbols::new(profile), stacks: HashMap::new(), module: profile.modules.add(wait) }
    }

    /// The functions of the kernel that a stack begins with.
    fn kernel_functions(&mut self, profile: &Profile, stack: StackId) -> Vec<Arc<str>> {
        let in_kernel = |frame: &_| profile.modules.get(profile.stacks.frame(*frame).module).kind.is_kernel();
        let frames = profile.stacks.walk(stack).take_while(in_kernel);
        frames.map(|frame| self.symbols.function_of(profile, frame).name.clone()).collect()
    }

    /// The stack with one more frame: this kind, or that which the kernel's functions tell.
    fn stack(&mut self, profile: &mut Profile, stack: StackId, kind: Option<WaitKind>) -> StackId {
        if let Some(&known) = self.stacks.get(&(stack, kind)) {
            return known;
        }
        let is = kind.unwrap_or_else(|| WaitKind::of(&self.kernel_functions(profile, stack)));
        let frame = Frame { module: self.module, address: is as u64, site: Site::Exact };
        let frame = profile.stacks.frame_id(frame);
        let known = profile.stacks.call(if profile.stacks.is_nowhere(stack) { StackId::EMPTY } else { stack }, frame);
        self.stacks.insert((stack, kind), known);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_no_thread() {
        let of = |functions: &str| Interrupt::of(&functions.split(' ').collect::<Vec<_>>());
        let timer = "hrtimer_wakeup __hrtimer_run_queues asm_sysvec_apic_timer_interrupt";
        assert_eq!(of(timer), Some(Interrupt::Timer));
        assert_eq!(of("blk_done_softirq asm_common_interrupt pv_native_safe_halt"), Some(Interrupt::Device));
        assert_eq!(of("futex_wake do_futex do_syscall_64"), None);
    }

    #[test]
    fn what_is_waited_for_is_read_off_the_kernels_functions() {
        let kind = |functions: &str| WaitKind::of(&functions.split(' ').collect::<Vec<_>>());
        for (functions, expected) in [
            ("do_nanosleep hrtimer_nanosleep common_nsleep do_syscall_64", WaitKind::Sleep),
            ("futex_do_wait __futex_wait futex_wait do_futex", WaitKind::Lock),
            (
                "io_schedule folio_wait_bit_common filemap_fault __do_fault handle_mm_fault exc_page_fault",
                WaitKind::PageFault,
            ),
            ("io_schedule blk_mq_get_tag", WaitKind::Io),
            ("schedule_hrtimeout_range_clock ep_poll do_epoll_wait", WaitKind::Poll),
            ("anon_pipe_read vfs_read ksys_read", WaitKind::Pipe),
            ("unix_stream_read_generic sock_recvmsg", WaitKind::Pipe),
            ("do_wait.isra.0 kernel_wait4", WaitKind::Child),
            ("__do_sys_pause __x64_sys_pause", WaitKind::Signal),
            ("do_wait_for_something", WaitKind::Other),
            ("", WaitKind::Other),
        ] {
            assert_eq!(kind(functions), expected, "{functions}");
        }
        for kind in WaitKind::ALL {
            assert_eq!(WaitKind::at(kind as u64), Some(kind));
        }
        assert_eq!(WaitKind::at(99), None);
    }
}
