//! The machine: QEMU `virt`, aarch64, GICv3, PSCI by `hvc`.
//!
//! What it is: all `unsafe` code of the kernel. [`entry.s`](../../../src/arch/entry.s) has the entry of CPUs and exceptions; [`context`]
//! is the switch between kernel stacks, [`heap`] the allocator, [`table`] page tables, [`gic`] interrupts, [`console`] the serial port.
//!
//! **Invariant:** memory is one block of 1 GiB, mapped at its own address for EL1 in each address space, so that an address is
//! the same for the kernel, the CPU's tables and the devices.

pub mod console;
pub mod context;
pub mod gic;
pub mod heap;
pub mod lock;
pub mod pmu;
pub mod table;
pub mod watch;

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_TVAL_EL0, CNTVCT_EL0, DAIF, ESR_EL1, FAR_EL1, Readable, TPIDR_EL1, Writeable,
};
use alloc::string::String;
use core::arch::{asm, global_asm};
use smccc::{Hvc, psci};

global_asm!(include_str!("entry.s"));

/// How many CPUs there may be: the stacks of `link.ld`.
pub const CPUS: usize = 4;

/// What a CPU was doing when an exception came, as `entry.s` keeps it.
#[repr(C)]
#[derive(Clone, Default)]
pub struct Frame {
    /// `x0` to `x30`.
    pub x: [u64; 31],
    /// The stack pointer of EL0.
    pub sp: u64,
    /// Where it goes on.
    pub pc: u64,
    /// The state that it goes on in (`SPSR_EL1`).
    pub state: u64,
}

/// EL0, interrupts on.
pub const STATE_EL0: u64 = 0;

/// Why an exception came.
#[derive(Clone, Copy, Debug)]
pub enum Exception {
    /// An interrupt.
    Interrupt,
    /// `svc`.
    SystemCall,
    /// A program comes to an address that is watched.
    Watchpoint {
        /// The address.
        address: u64,
    },
    /// A program that is stepped has executed an instruction.
    Step,
    /// A program comes to a page that is not there.
    PageFault {
        /// The address.
        address: u64,
    },
    /// Something that the program must not do: class and address.
    Fault {
        /// The class of `ESR_EL1`.
        class: u64,
        /// `FAR_EL1`.
        address: u64,
    },
}

// SAFETY: (1) The name is that which `entry.s` calls; there is no other of it.
#[unsafe(no_mangle)]
extern "C" fn exception(frame: &mut Frame, vector: u64) {
    let syndrome = ESR_EL1.get();
    let class = syndrome >> 26 & 0x3f;
    let (from_user, what) = match (vector, class) {
        (5, _) => (false, Exception::Interrupt),
        (9, _) => (true, Exception::Interrupt),
        (8, 0x15) => (true, Exception::SystemCall),
        // A translation fault, of any level.
        (8, 0x24) if syndrome & 0x3c == 0x04 => (true, Exception::PageFault { address: FAR_EL1.get() }),
        (8, 0x34) => (true, Exception::Watchpoint { address: FAR_EL1.get() }),
        (8, 0x32) => (true, Exception::Step),
        (vector, class) => (vector == 8, Exception::Fault { class, address: FAR_EL1.get() }),
    };
    crate::trap::exception(frame, what, from_user);
}

// SAFETY: (1) As above.
#[unsafe(no_mangle)]
extern "C" fn start_cpu(cpu: usize) -> ! {
    if cpu == 0 {
        heap::init();
        gic::init();
    }
    gic::init_cpu(cpu);
    pmu::init();
    watch::init();
    crate::start(cpu)
}

/// The number of this CPU. It may be another one at once, unless interrupts are off.
pub fn cpu() -> usize {
    TPIDR_EL1.get() as usize
}

/// Interrupts are off while it lives, and then as they were.
pub struct InterruptsOff {
    before: u64,
}

impl InterruptsOff {
    /// Turns them off.
    pub fn new() -> Self {
        let before = DAIF.get();
        DAIF.set(before | 0xc0);
        Self { before }
    }
}

impl Drop for InterruptsOff {
    fn drop(&mut self) {
        DAIF.set(self.before);
    }
}

/// Turns interrupts on for as long as a closure runs.
pub fn with_interrupts<R>(work: impl FnOnce() -> R) -> R {
    let before = DAIF.get();
    DAIF.set(before & !0xc0);
    let result = work();
    DAIF.set(before);
    result
}

/// Waits for an interrupt, which is served before this returns. To be called with interrupts off.
pub fn wait_for_interrupt() {
    aarch64_cpu::asm::wfi();
    with_interrupts(|| ());
}

/// This CPU looks again and again for what another one does: that is let run first, where both are of one CPU of the machine below.
pub fn pause() {
    // SAFETY: (1) It is a hint, and changes nothing.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// The time since the machine began, in ns.
pub fn now_ns() -> u64 {
    barrier::isb(barrier::SY);
    (u128::from(CNTVCT_EL0.get()) * 1_000_000_000 / u128::from(CNTFRQ_EL0.get())) as u64
}

/// Has the timer of this CPU interrupt in so many ns.
pub fn set_timer(ns: u64) {
    CNTV_TVAL_EL0.set((u128::from(ns) * u128::from(CNTFRQ_EL0.get()) / 1_000_000_000) as u64);
    CNTV_CTL_EL0.set(1);
}

/// The timer of this CPU interrupts no more, until it is set again.
pub fn stop_timer() {
    CNTV_CTL_EL0.set(0);
}

/// Starts a CPU at [`start_cpu`]. `false` where there is none of this number, or it runs.
pub fn cpu_on(cpu: usize) -> bool {
    unsafe extern "C" {
        fn secondary_start();
    }
    psci::cpu_on::<Hvc>(cpu as u64, secondary_start as *const () as u64, cpu as u64).is_ok()
}

/// Whether a CPU is off, as its firmware says.
pub fn is_off(cpu: usize) -> bool {
    psci::affinity_info::<Hvc>(cpu as u64, psci::LowestAffinityLevel::All) == Ok(psci::AffinityState::Off)
}

/// Switches this CPU off. It begins anew at [`start_cpu`].
pub fn cpu_off() -> ! {
    stop_timer();
    gic::leave_cpu(cpu());
    let error = psci::cpu_off::<Hvc>();
    panic!("CPU_OFF failed: {error:?}");
}

/// What was behind `kernel/run`: Arm's semihosting has it.
pub fn command_line() -> String {
    /// `SYS_GET_CMDLINE`.
    const GET_CMDLINE: u64 = 0x15;
    let mut text = [0_u8; 256];
    let mut block = [text.as_mut_ptr().addr() as u64, text.len() as u64];
    // SAFETY: (1) The block names a buffer and its length, both of which are writable.
    unsafe { asm!("hlt #0xf000", inout("x0") GET_CMDLINE => _, in("x1") &raw mut block) };
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Ends QEMU with an exit status.
pub fn exit(status: u32) -> ! {
    /// `SYS_EXIT_EXTENDED` of Arm's semihosting.
    const EXIT_EXTENDED: u64 = 0x20;
    /// `ADP_Stopped_ApplicationExit`.
    const APPLICATION_EXIT: u64 = 0x2_0026;
    let block = [APPLICATION_EXIT, status.into()];
    loop {
        // SAFETY: (1) The block is as the call wants it, and readable. (2) Where the call returns, nothing has changed but `x0`.
        unsafe { asm!("hlt #0xf000", inout("x0") EXIT_EXTENDED => _, in("x1") &raw const block) };
    }
}
