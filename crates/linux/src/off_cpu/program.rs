//! The programs that see tasks leave their CPU, being woken, and come back.
//!
//! What is known of a task's wait stands in a map, by the address of the task's structure, which no other task has before this one is
//! freed ([`Layout::task_bytes`]). It is laid out as the record of the wait, so that writing one is one call. (The kernel's own storage beside
//! a task is twice as fast to find. But none can be made on a CPU on which a task is preempted that frees one.) The task's own stack is taken when it leaves, because only then its
//! memory can be read; the kernel's part when it comes back, so that waits that are too short never pay for it.
//!
//! The tracepoint of switches runs when the task that leaves is queued no more: on another CPU it may have been woken already. So a
//! task that is woken is marked whether or not it has been seen to leave, and a mark that is older than the leaving says that
//! all of the wait was for a CPU.
//!
//! Not every switch is told: a task that an idle CPU takes up may come unseen (on 6.18 one of some ten thousand; of perf's events of the
//! same tracepoint it is many more). That it leaves again says so.
//!
//! **Invariant:** the value of a task has two writers, the CPU that switches it and the one that wakes it, and they write different
//! words. What the one that wakes it reads of the other's may be old: then it takes the task for one that has not left, and writes no record.

use super::copies::{Copied, RegisterPlaces};
use super::target::CgroupPlaces;
use super::{Control, Maps, OffCpuTarget, Place};
use crate::bpf::{Alu, Assembler, Bytecode, Compare, Helper, Label, Map, Reg, Size};
use crate::btf::Btf;

/// Where the task's structure has what is needed, and how the tracepoint of switches tells how a task is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) pid: i16,
    pub(super) tgid: i16,
    flags: i16,
    prio: i16,
    /// When it was born, ns of the monotonic clock.
    pub(super) start_time: i16,
    state: Option<i16>,
    /// How it sleeps, and whether it has a CPU, as they are when they are looked at.
    pub(super) state_now: i16,
    pub(super) on_cpu: Option<i16>,
    registers: Option<Registers>,
    copied: Option<Copied>,
    pub(super) cgroups: Option<CgroupPlaces>,
}

/// Where the instruction pointer, the stack pointer and the frame pointer stand among the registers of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Registers {
    pub(super) ip: i16,
    pub(super) sp: i16,
    fp: i16,
    /// The number of the system call that the program is in, and its first argument.
    call: i16,
    argument: i16,
    /// Where a number says that the program is one of 32 bits, and that number. Its frames are others.
    pub(super) narrow: Option<(i16, i32)>,
}

impl Registers {
    pub(super) fn new(btf: &Btf) -> Option<Self> {
        let member = |name| btf.offset("pt_regs", name).and_then(|at| i16::try_from(at).ok());
        match () {
            () if cfg!(target_arch = "x86_64") => {
                // `__USER32_CS` in `arch/x86/include/asm/segment.h`.
                let narrow = Some((member("cs")?, 0x23));
                let (call, argument) = (member("orig_ax")?, member("di")?);
                Some(Self { ip: member("ip")?, sp: member("sp")?, fp: member("bp")?, call, argument, narrow })
            }
            () if cfg!(target_arch = "aarch64") => {
                let (registers, call) = (member("regs")?, member("syscallno")?);
                let fp = registers + 29 * 8;
                Some(Self { ip: member("pc")?, sp: member("sp")?, fp, call, argument: registers, narrow: None })
            }
            () => None,
        }
    }

    /// Goes on only if the program whose registers `R0` points to is none of 32 bits; `R1` is lost.
    fn unless_narrow(&self, asm: &mut Assembler<'_>, narrow: Label) {
        if let Some((at, number)) = self.narrow {
            asm.load(Size::Double, Reg::R1, Reg::R0, at).alu(Alu::And, Reg::R1, 0xffff);
            asm.jump_if(Reg::R1, Compare::Equal, number, narrow);
        }
    }

    /// Into the value that is `R9` the lock that is waited for by the program whose registers `R0` points to; `R1` is lost.
    fn lock(&self, asm: &mut Assembler<'_>, none: Label) {
        asm.load(Size::Word, Reg::R1, Reg::R0, self.call).jump_if(Reg::R1, Compare::Unequal, FUTEX, none);
        asm.load(Size::Double, Reg::R1, Reg::R0, self.argument).store(Size::Double, Reg::R9, Place::OTHER, Reg::R1);
    }

    /// The same, where the program may be one of 32 bits, of which it is not known.
    pub(super) fn lock_unless_narrow(&self, asm: &mut Assembler<'_>) {
        let no_lock = asm.label();
        self.unless_narrow(asm, no_lock);
        self.lock(asm, no_lock);
        asm.place(no_lock);
    }
}

impl Layout {
    /// That of this kernel. Since Linux 5.18 the tracepoint tells the state; what stands in the task may have changed by then.
    pub(super) fn new(btf: &Btf, arguments: usize) -> Option<Self> {
        let member = |name| btf.offset("task_struct", name).and_then(|at| i16::try_from(at).ok());
        // Before 5.14 it had another name.
        let state_now = member("__state").or_else(|| member("state"))?;
        let state = (arguments <= STATE_ARGUMENT).then_some(state_now);
        Some(Self {
            pid: member("pid")?,
            tgid: member("tgid")?,
            flags: member("flags")?,
            prio: member("prio")?,
            start_time: member("start_time")?,
            state,
            state_now,
            on_cpu: member("on_cpu"),
            registers: Registers::new(btf),
            copied: None,
            cgroups: CgroupPlaces::new(btf),
        })
    }

    /// The same, for a kernel that does not give programs the registers of a task (before 5.15).
    pub(super) const fn without_registers(self) -> Self {
        Self { registers: None, copied: None, ..self }
    }

    /// The same, with so many bytes of the stack copied.
    pub(super) fn with_copies(self, registers: &RegisterPlaces, stack_bytes: u32) -> Self {
        Self { copied: Some(Copied::new(registers, stack_bytes)), ..self }
    }

    pub(super) const fn copies(self) -> bool {
        self.copied.is_some()
    }

    /// How long the part of a record at most is that tells of the program.
    fn user_bytes_most(self) -> i32 {
        self.copied.map_or(Place::FRAMES_BYTES_MOST, Copied::bytes)
    }

    /// How long the record of a wait is at most, which is what is kept of a task.
    pub(super) fn task_bytes(self) -> u32 {
        Place::STACKS as u32 + (self.user_bytes_most() + Place::KERNEL_BYTES_MOST) as u32
    }
}

const STATE_ARGUMENT: usize = 3;
/// `PF_KTHREAD` in `include/linux/sched.h`.
const KERNEL_THREAD: i32 = 0x0020_0000;
/// `TASK_DEAD` there.
pub(super) const DEAD: i32 = 0x80;
/// `__NR_futex`: what a lock of a program waits in. (Both words of [`Registers`] are those of 64-bit programs.)
const FUTEX: i32 = if cfg!(target_arch = "x86_64") { 202 } else { 98 };
/// The innermost frames of the kernel's stack: this program, and what calls it.
const OWN_FRAMES: i32 = 2;
/// `BPF_F_USER_STACK` in `include/uapi/linux/bpf.h`.
const USER_STACK: i32 = 1 << 8;
/// `BPF_NOEXIST` there.
const NEW: i32 = 1;
/// This CPU, as a place in a map of events.
const CURRENT_CPU: u64 = 0xffff_ffff;
/// [`Place::LEFT_AT`] of a task that has a CPU.
pub(super) const HAS_CPU: i32 = -1;

// What stands where on the stack, below R10.
const KEY: i16 = -8;
const ZERO: i16 = -12;
pub(super) const ID: i16 = -16;
/// How many waits, for what was waited, for a CPU, how many of them had no room: what is added up of waits that are not written.
const SUM: i16 = -48;
/// What a frame pointer points to: the one before, and where its function goes on.
const FRAME: i16 = -64;
/// Kept while the program's stack is walked.
pub(super) const CONTEXT: i16 = -72;
pub(super) const NOW: i16 = -80;
/// The address of a task's structure.
const TASK_KEY: i16 = -88;
/// Since when waits are recorded.
const SINCE: i16 = -96;

/// No function has a larger frame: what says so is no frame pointer.
const LARGEST_FRAME: i32 = 1 << 23;

/// What the programs are made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Programs<'m> {
    pub(super) maps: &'m Maps,
    pub(super) layout: Layout,
    pub(super) target: OffCpuTarget,
    /// Shorter waits are added up, ns.
    pub(super) least_ns: u64,
}

impl<'m> Programs<'m> {
    /// Runs at `sched_switch` of `(preempt, prev, next, prev_state)`.
    pub(super) fn switch(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let (end, comes) = (asm.label(), asm.label());
        asm.set(Reg::R6, Reg::R1);
        self.since(asm, end);
        asm.call(Helper::KtimeGetNs).set(Reg::R8, Reg::R0);
        self.leaves(asm, comes);
        asm.place(comes);
        self.comes(asm, end);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Runs at `sched_waking` of `(task)`.
    pub(super) fn waking(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let end = asm.label();
        asm.set(Reg::R6, Reg::R1);
        self.since(asm, end);
        asm.store(Size::Double, Reg::R10, SINCE, Reg::R0).load(Size::Double, Reg::R7, Reg::R6, 0);
        self.user_task(asm, end);
        self.value_if_away(asm, end);
        // The first time after it has left: a task may be woken in its place, too.
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).load(Size::Double, Reg::R2, Reg::R9, Place::WOKEN_AT);
        asm.jump_if(Reg::R2, Compare::Greater, Reg::R1, end);
        asm.call(Helper::KtimeGetNs).set(Reg::R8, Reg::R0).store(Size::Double, Reg::R9, Place::WOKEN_AT, Reg::R8);
        self.wakes(asm, end);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Writes who wakes the task in `R7`, which is known as `R9`, at `R8`: if it has waited long enough by then.
    fn wakes(&self, asm: &mut Assembler<'m>, end: Label) {
        let (no_program, seen, known) = (asm.label(), asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).jump_if(Reg::R1, Compare::Unequal, 0, seen);
        // It was away when recording began, or when it was born.
        asm.load(Size::Double, Reg::R1, Reg::R10, SINCE).load(Size::Double, Reg::R2, Reg::R7, self.layout.start_time);
        asm.jump_if(Reg::R2, Compare::LessOrEqual, Reg::R1, known).set(Reg::R1, Reg::R2).jump(known).place(seen);
        asm.load(Size::Word, Reg::R2, Reg::R9, Place::STATE).jump_if(Reg::R2, Compare::Equal, 0, end);
        // What has a CPU says the largest number.
        asm.place(known).jump_if(Reg::R1, Compare::GreaterOrEqual, Reg::R8, end);
        asm.set(Reg::R2, Reg::R8).alu(Alu::Sub, Reg::R2, Reg::R1).set_wide(Reg::R3, self.least_ns);
        asm.jump_if(Reg::R2, Compare::Less, Reg::R3, end).store(Size::Double, Reg::R10, SUM, Reg::R1);
        self.task(asm, Reg::R2);
        asm.store(Size::Double, Reg::R10, SUM + 8, Reg::R2);
        only_value(asm, &self.maps.wake, end).set(Reg::R9, Reg::R0);
        asm.load(Size::Double, Reg::R1, Reg::R10, SUM).store(Size::Double, Reg::R9, Place::LEFT_AT, Reg::R1);
        asm.store(Size::Double, Reg::R9, Place::WOKEN_AT, Reg::R8).store(Size::Double, Reg::R9, Place::CAME_AT, 0);
        asm.call(Helper::GetCurrentTaskBtf).set(Reg::R7, Reg::R0).store(Size::Word, Reg::R9, Place::USER_BYTES, 0);
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.flags);
        asm.jump_if(Reg::R1, Compare::Common, KERNEL_THREAD, no_program);
        self.stack_of_program(asm);
        asm.place(no_program);
        // Behind the walk, which leaves here what the waker itself is in.
        asm.load(Size::Double, Reg::R1, Reg::R10, SUM + 8).store(Size::Double, Reg::R9, Place::OTHER, Reg::R1);
        asm.call(Helper::GetCurrentTaskBtf).set(Reg::R7, Reg::R0);
        self.write(asm, Whose::Current);
    }

    /// Runs at `task_newtask` of `(task, clone_flags)`: a child of a task that is followed is followed, and waits for its first CPU.
    pub(super) fn new_task(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let (end, there) = (asm.label(), asm.label());
        asm.set(Reg::R6, Reg::R1);
        // Also while nothing is recorded: what is born then is followed later, as by events that are off.
        let by_itself = matches!(self.target, OffCpuTarget::All | OffCpuTarget::Cgroup(_));
        if by_itself {
            self.since(asm, end);
        } else {
            // The parent is one of them.
            asm.call(Helper::GetCurrentTaskBtf).set(Reg::R7, Reg::R0);
            self.value(asm, end);
        }
        asm.load(Size::Double, Reg::R7, Reg::R6, 0);
        self.user_task(asm, end);
        self.find(asm);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, there);
        if by_itself {
            self.followed(asm, end);
        }
        self.make(asm, end);
        asm.place(there).set(Reg::R9, Reg::R0).store(Size::Double, Reg::R9, Place::LEFT_AT, 0);
        asm.store(Size::Double, Reg::R9, Place::WOKEN_AT, 0).store(Size::Double, Reg::R9, Place::STATE, 0);
        self.since(asm, end);
        asm.call(Helper::KtimeGetNs).store(Size::Double, Reg::R9, Place::LEFT_AT, Reg::R0);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Runs at `sched_process_free` of `(task)`: its address may be another's from now on.
    pub(super) fn free(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        asm.load(Size::Double, Reg::R7, Reg::R1, 0).store(Size::Double, Reg::R10, TASK_KEY, Reg::R7);
        asm.set_map(Reg::R1, &self.maps.tasks).stack(Reg::R2, TASK_KEY);
        asm.call(Helper::MapDelete).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Runs at `sched_process_exec` of `(task, old_pid, program)`: with the exec of a process recording begins.
    pub(super) fn exec(&self, pid: u32) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let end = asm.label();
        asm.load(Size::Double, Reg::R7, Reg::R1, 0).load(Size::Word, Reg::R1, Reg::R7, self.layout.tgid);
        asm.jump_if(Reg::R1, Compare::Unequal, pid.cast_signed(), end);
        only_value(asm, &self.maps.control, end).set(Reg::R6, Reg::R0);
        // Once: what it executes later, and what is switched off, stays as it is.
        asm.load(Size::Double, Reg::R1, Reg::R6, Control::EXECUTED).jump_if(Reg::R1, Compare::Unequal, 0, end);
        asm.call(Helper::KtimeGetNs).store(Size::Double, Reg::R6, Control::SINCE, Reg::R0);
        asm.store(Size::Double, Reg::R6, Control::EXECUTED, 1);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Ends unless waits are recorded.
    fn since(&self, asm: &mut Assembler<'m>, end: Label) {
        self.control(asm, end);
        asm.jump_if(Reg::R0, Compare::Equal, 0, end);
    }

    /// `R0` = since when waits are recorded, ns; 0: they are not.
    fn control(&self, asm: &mut Assembler<'m>, end: Label) {
        only_value(asm, &self.maps.control, end);
        asm.load(Size::Double, Reg::R0, Reg::R0, Control::SINCE);
    }

    /// Goes on only if the task in `R7` is neither idle nor the kernel's own.
    pub(super) fn user_task(&self, asm: &mut Assembler<'m>, other: Label) {
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.pid).jump_if(Reg::R1, Compare::Equal, 0, other);
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.flags);
        asm.jump_if(Reg::R1, Compare::Common, KERNEL_THREAD, other);
    }

    /// `R0` = the value of the task in `R7`, or 0.
    pub(super) fn find(&self, asm: &mut Assembler<'m>) {
        asm.store(Size::Double, Reg::R10, TASK_KEY, Reg::R7).look_up(&self.maps.tasks, TASK_KEY);
    }

    /// `R0` = the value of the task in `R7`, which has none: one that says nothing. Where there is no room, it is counted.
    pub(super) fn make(&self, asm: &mut Assembler<'m>, other: Label) {
        let (no_room, made) = (asm.label(), asm.label());
        only_value(asm, &self.maps.nothing, no_room).set(Reg::R3, Reg::R0);
        asm.set_map(Reg::R1, &self.maps.tasks).stack(Reg::R2, TASK_KEY);
        // Another CPU may have made it.
        asm.set(Reg::R4, NEW).call(Helper::MapUpdate);
        self.find(asm);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, made).place(no_room);
        self.miss(asm, Control::NO_ROOM);
        asm.jump(other).place(made);
    }

    /// A task leaves its CPU, at `R8`.
    fn leaves(&self, asm: &mut Assembler<'m>, other: Label) {
        asm.load(Size::Double, Reg::R7, Reg::R6, 8);
        self.user_task(asm, other);
        self.value(asm, other);
        self.came_unseen(asm);
        let (preempted, known) = (asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R6, 0).alu(Alu::And, Reg::R1, 1);
        asm.jump_if(Reg::R1, Compare::Unequal, 0, preempted);
        match self.layout.state {
            None => asm.load(Size::Double, Reg::R1, Reg::R6, 8 * STATE_ARGUMENT as i16),
            Some(at) => asm.load(Size::Word, Reg::R1, Reg::R7, at),
        };
        asm.jump_if(Reg::R1, Compare::Common, DEAD, other);
        asm.store(Size::Word, Reg::R9, Place::STATE, Reg::R1).jump(known);
        asm.place(preempted).store(Size::Word, Reg::R9, Place::STATE, 0).place(known);
        asm.store(Size::Double, Reg::R9, Place::LEFT_AT, Reg::R8);
        self.stack_of_program(asm);
    }

    /// Takes the stack of the program whose task is `R7`, the current one, into the value that is `R9`.
    fn stack_of_program(&self, asm: &mut Assembler<'m>) {
        asm.store(Size::Double, Reg::R9, Place::OTHER, 0);
        match (self.layout.registers, self.layout.copied) {
            (Some(registers), Some(copied)) => copied.copy(asm, registers),
            (Some(registers), None) => walk_stack(asm, registers),
            (None, _) => {
                asm.set(Reg::R1, Reg::R6).set(Reg::R2, Reg::R9).alu(Alu::Add, Reg::R2, i32::from(Place::STACKS));
                asm.set(Reg::R3, Place::FRAMES_BYTES_MOST).set(Reg::R4, USER_STACK).call(Helper::GetStack);
                // An error is a large number.
                self.no_more_than_there_is(asm, Reg::R0);
                asm.store(Size::Word, Reg::R9, Place::USER_BYTES, Reg::R0);
            }
        }
    }

    /// What says how long the program's part of a record is: nothing, where that is not so.
    pub(super) fn no_more_than_there_is(&self, asm: &mut Assembler<'m>, bytes: Reg) {
        let so = asm.label();
        asm.jump_if(bytes, Compare::LessOrEqual, self.layout.user_bytes_most(), so).set(bytes, 0).place(so);
    }

    /// Where the task was not seen to come back, which happens on CPUs that were idle: it waited until it was woken, and had a CPU at once.
    fn came_unseen(&self, asm: &mut Assembler<'m>) {
        let (seen, known, unseen, left, born) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).jump_if(Reg::R1, Compare::Equal, HAS_CPU, seen);
        // It ran when recording began, unless it was woken since.
        asm.load(Size::Double, Reg::R2, Reg::R9, Place::WOKEN_AT).jump_if(Reg::R1, Compare::Unequal, 0, unseen);
        asm.jump_if(Reg::R2, Compare::Equal, 0, seen).place(unseen);
        self.miss(asm, Control::MISSED);
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).jump_if(Reg::R1, Compare::Unequal, 0, left);
        // It slept since before recording began, or it was born.
        self.control(asm, seen);
        asm.jump_if(Reg::R0, Compare::Equal, 0, seen).load(Size::Double, Reg::R1, Reg::R7, self.layout.start_time);
        asm.jump_if(Reg::R1, Compare::GreaterOrEqual, Reg::R0, born).set(Reg::R1, Reg::R0).place(born);
        asm.store(Size::Double, Reg::R9, Place::LEFT_AT, Reg::R1).store(Size::Word, Reg::R9, Place::STATE, 1);
        asm.place(left).load(Size::Double, Reg::R2, Reg::R9, Place::WOKEN_AT);
        asm.jump_if(Reg::R2, Compare::LessOrEqual, Reg::R1, seen);
        asm.store(Size::Double, Reg::R10, NOW, Reg::R8).set(Reg::R8, Reg::R2);
        asm.store(Size::Double, Reg::R10, SUM + 24, 0);
        self.add_up(asm, known);
        asm.place(known).load(Size::Double, Reg::R8, Reg::R10, NOW).place(seen);
    }

    /// A task comes back, at `R8`.
    fn comes(&self, asm: &mut Assembler<'m>, end: Label) {
        let (no_room, unseen) = (asm.label(), asm.label());
        let (left, short, done) = (asm.label(), asm.label(), asm.label());
        asm.load(Size::Double, Reg::R7, Reg::R6, 16);
        self.user_task(asm, end);
        self.value_if_away(asm, end);
        self.control(asm, end);
        // It may have been switched off meanwhile.
        asm.jump_if(Reg::R0, Compare::Equal, 0, end).set(Reg::R2, Reg::R0);
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT);
        // It was not seen to leave.
        asm.jump_if(Reg::R1, Compare::Equal, HAS_CPU, unseen).jump_if(Reg::R1, Compare::GreaterOrEqual, Reg::R2, left);
        // It was away when recording began, or when it was born: asleep, if it was seen to sleep then, or was woken since.
        let (asleep, known, older) = (asm.label(), asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::CAME_AT).load(Size::Double, Reg::R3, Reg::R9, Place::WOKEN_AT);
        asm.jump_if(Reg::R1, Compare::GreaterOrEqual, Reg::R2, asleep).jump_if(Reg::R3, Compare::Equal, 0, known);
        asm.place(asleep).set(Reg::R3, 1).place(known).store(Size::Word, Reg::R9, Place::STATE, Reg::R3);
        asm.load(Size::Double, Reg::R1, Reg::R7, self.layout.start_time);
        asm.jump_if(Reg::R1, Compare::LessOrEqual, Reg::R2, older).set(Reg::R2, Reg::R1).place(older);
        asm.store(Size::Double, Reg::R9, Place::LEFT_AT, Reg::R2);
        self.registers_of_next(asm);
        // Unless there was no room for it when it left.
        only_value(asm, &self.maps.control, end);
        asm.load(Size::Double, Reg::R1, Reg::R0, Control::NO_ROOM).jump_if(Reg::R1, Compare::Unequal, 0, no_room);
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT);
        asm.place(left).store(Size::Double, Reg::R9, Place::CAME_AT, Reg::R8);
        asm.set(Reg::R2, Reg::R8).alu(Alu::Sub, Reg::R2, Reg::R1).set_wide(Reg::R3, self.least_ns);
        asm.store(Size::Double, Reg::R10, SUM + 24, 0);
        asm.jump_if(Reg::R2, Compare::Less, Reg::R3, short);
        self.write(asm, Whose::Next);
        asm.jump_if(Reg::R0, Compare::Equal, 0, done).store(Size::Double, Reg::R10, SUM + 24, 1);
        asm.place(short);
        self.add_up(asm, done);
        asm.place(done).store(Size::Double, Reg::R9, Place::LEFT_AT, HAS_CPU);
        asm.store(Size::Double, Reg::R9, Place::WOKEN_AT, 0).jump(end).place(unseen);
        self.miss(asm, Control::MISSED);
        asm.jump(end).place(no_room);
        self.miss(asm, Control::NO_ROOM);
        asm.jump(done);
    }

    /// Finds where the task in `R7` has waited, or waits, and for which lock, which was not seen to leave: without a look into its memory.
    pub(super) fn registers_of_next(&self, asm: &mut Assembler<'m>) {
        let Some(registers) = self.layout.registers else { return };
        asm.store(Size::Double, Reg::R9, Place::OTHER, 0).set(Reg::R1, Reg::R7).call(Helper::TaskPtRegs);
        registers.lock_unless_narrow(asm);
        match self.layout.copied {
            Some(copied) => copied.copy_registers(asm),
            None => {
                asm.load(Size::Double, Reg::R1, Reg::R0, registers.ip);
                asm.store(Size::Double, Reg::R9, Place::STACKS, Reg::R1);
                asm.store(Size::Word, Reg::R9, Place::USER_BYTES, 8);
            }
        }
    }

    /// One more of what is missing; `R0` to `R5` are lost.
    fn miss(&self, asm: &mut Assembler<'m>, which: i16) {
        let none = asm.label();
        only_value(asm, &self.maps.control, none);
        asm.set(Reg::R1, 1).atomic_add(Reg::R0, which, Reg::R1).place(none);
    }

    /// `to` = process and thread of the task in `R7`; `R1` is lost.
    pub(super) fn task(&self, asm: &mut Assembler<'m>, to: Reg) {
        asm.load(Size::Word, to, Reg::R7, self.layout.tgid).alu(Alu::ShiftLeft, to, 32);
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.pid).alu(Alu::Or, to, Reg::R1);
    }

    /// Into the value that is `R9` the priority of the task in `R7`; `R1` is lost.
    pub(super) fn priority(&self, asm: &mut Assembler<'m>) {
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.prio).store(Size::Word, Reg::R9, Place::PRIORITY, Reg::R1);
    }

    /// Writes the record in `R9`, with the kernel's stack of the task in `R7`; `R0` is then 0, or why there is none.
    fn write(&self, asm: &mut Assembler<'m>, whose: Whose) {
        let whole = asm.label();
        self.task(asm, Reg::R2);
        asm.store(Size::Double, Reg::R9, Place::TASK, Reg::R2);
        self.priority(asm);
        // R7 is the task, and then how long both stacks are.
        asm.load(Size::Word, Reg::R2, Reg::R9, Place::USER_BYTES);
        self.no_more_than_there_is(asm, Reg::R2);
        asm.store(Size::Double, Reg::R10, KEY, Reg::R2);
        asm.alu(Alu::Add, Reg::R2, Reg::R9).alu(Alu::Add, Reg::R2, i32::from(Place::STACKS));
        asm.set(Reg::R3, Place::KERNEL_BYTES_MOST);
        match whose {
            Whose::Next => asm.set(Reg::R4, 0).set(Reg::R1, Reg::R7).call(Helper::GetTaskStack),
            Whose::Current => asm.set(Reg::R4, OWN_FRAMES).set(Reg::R1, Reg::R6).call(Helper::GetStack),
        };
        asm.jump_if(Reg::R0, Compare::LessOrEqual, Place::KERNEL_BYTES_MOST, whole).set(Reg::R0, 0);
        asm.place(whole).store(Size::Word, Reg::R9, Place::KERNEL_BYTES, Reg::R0);
        asm.load(Size::Double, Reg::R5, Reg::R10, KEY);
        self.no_more_than_there_is(asm, Reg::R5);
        asm.alu(Alu::Add, Reg::R5, Reg::R0).alu(Alu::Add, Reg::R5, i32::from(Place::STACKS));
        asm.set(Reg::R1, Reg::R6).set_map(Reg::R2, &self.maps.outputs).set_wide(Reg::R3, CURRENT_CPU);
        asm.set(Reg::R4, Reg::R9).call(Helper::PerfEventOutput);
    }

    /// Adds the wait to what is known of its thread's waits that are not written. The last word of the sum is there already.
    fn add_up(&self, asm: &mut Assembler<'m>, done: Label) {
        let (runnable, known) = (asm.label(), asm.label());
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).load(Size::Double, Reg::R2, Reg::R9, Place::WOKEN_AT);
        // R3: until when it waited for something else than a CPU.
        asm.set(Reg::R3, Reg::R1).load(Size::Word, Reg::R4, Reg::R9, Place::STATE);
        asm.jump_if(Reg::R4, Compare::Equal, 0, runnable);
        asm.set(Reg::R3, Reg::R8).jump_if(Reg::R2, Compare::Equal, 0, runnable).set(Reg::R3, Reg::R1);
        asm.jump_if(Reg::R2, Compare::LessOrEqual, Reg::R1, runnable).set(Reg::R3, Reg::R2);
        asm.place(runnable).set(Reg::R4, Reg::R8).alu(Alu::Sub, Reg::R4, Reg::R3).alu(Alu::Sub, Reg::R3, Reg::R1);
        asm.store(Size::Double, Reg::R10, SUM, 1).store(Size::Double, Reg::R10, SUM + 8, Reg::R3);
        asm.store(Size::Double, Reg::R10, SUM + 16, Reg::R4);
        self.task(asm, Reg::R2);
        asm.store(Size::Double, Reg::R10, KEY, Reg::R2).look_up(&self.maps.sums, KEY);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, known).set_map(Reg::R1, &self.maps.sums);
        asm.stack(Reg::R2, KEY).stack(Reg::R3, SUM).set(Reg::R4, NEW).call(Helper::MapUpdate);
        asm.jump_if(Reg::R0, Compare::Equal, 0, done);
        // There is no room for it.
        asm.store(Size::Double, Reg::R10, KEY, 0).look_up(&self.maps.sums, KEY);
        asm.jump_if(Reg::R0, Compare::Equal, 0, done);
        asm.place(known);
        for at in [0, 8, 16, 24] {
            asm.load(Size::Double, Reg::R1, Reg::R10, SUM + at).atomic_add(Reg::R0, at, Reg::R1);
        }
    }
}

/// Whose stack a record has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// That of a task which does not run yet.
    Next,
    /// That of the task which runs the program.
    Current,
}

/// Walks the stack of the program whose task is `R7` and leaves, by frame pointers, into the value that is `R9`. Twice as fast as the
/// kernel does it: in a program without frame pointers the register holds anything, and reading there costs a fault. So only what can
/// be a frame is read: it lies above the one before, and not far.
fn walk_stack(asm: &mut Assembler<'_>, registers: Registers) {
    let (end, no_lock) = (asm.label(), asm.label());
    asm.store(Size::Double, Reg::R10, CONTEXT, Reg::R6).store(Size::Double, Reg::R10, NOW, Reg::R8);
    asm.set(Reg::R1, Reg::R7).call(Helper::TaskPtRegs).set(Reg::R8, 8);
    asm.load(Size::Double, Reg::R1, Reg::R0, registers.ip).store(Size::Double, Reg::R9, Place::STACKS, Reg::R1);
    registers.unless_narrow(asm, end);
    registers.lock(asm, no_lock);
    asm.place(no_lock);
    // R6 is below the frame, R7 the frame, R8 how many bytes there are.
    asm.load(Size::Double, Reg::R6, Reg::R0, registers.sp).load(Size::Double, Reg::R7, Reg::R0, registers.fp);
    for at in (8..Place::FRAMES_BYTES_MOST as i16).step_by(8) {
        asm.jump_if(Reg::R7, Compare::Less, Reg::R6, end).set(Reg::R1, Reg::R7).alu(Alu::Sub, Reg::R1, Reg::R6);
        asm.jump_if(Reg::R1, Compare::Greater, LARGEST_FRAME, end);
        asm.stack(Reg::R1, FRAME).set(Reg::R2, 16).set(Reg::R3, Reg::R7);
        asm.call(Helper::ProbeReadUser).jump_if(Reg::R0, Compare::Unequal, 0, end);
        asm.load(Size::Double, Reg::R1, Reg::R10, FRAME + 8).jump_if(Reg::R1, Compare::Equal, 0, end);
        asm.store(Size::Double, Reg::R9, Place::STACKS + at, Reg::R1).set(Reg::R8, i32::from(at) + 8);
        asm.set(Reg::R6, Reg::R7).alu(Alu::Add, Reg::R6, 8).load(Size::Double, Reg::R7, Reg::R10, FRAME);
    }
    asm.place(end).store(Size::Word, Reg::R9, Place::USER_BYTES, Reg::R8);
    asm.load(Size::Double, Reg::R6, Reg::R10, CONTEXT).load(Size::Double, Reg::R8, Reg::R10, NOW);
}

/// `R0` = the address of a map's only value; jumps where there is none.
pub(super) fn only_value<'a, 'm>(asm: &'a mut Assembler<'m>, map: &'m Map, none: Label) -> &'a mut Assembler<'m> {
    asm.store(Size::Word, Reg::R10, ZERO, 0).look_up(map, ZERO).jump_if(Reg::R0, Compare::Equal, 0, none)
}
