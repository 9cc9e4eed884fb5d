//! What depends on the instruction set: a loop whose instructions are known, and the code of a return.
//!
//! **Invariant:** nothing here touches memory but what it is told to make executable.

pub(super) use imp::{CODE, clone, publish_code, turn};

/// How many instructions a round of the known loop is, where that is known.
pub const INSTRUCTIONS_PER_ROUND: Option<u64> = imp::INSTRUCTIONS;

#[cfg(target_arch = "x86_64")]
mod imp {
    pub(super) const INSTRUCTIONS: Option<u64> = Some(2);
    /// A return from a call.
    pub(in super::super) const CODE: &[u8] = &[0xc3];

    /// Takes rounds of the loop.
    pub(in super::super) fn turn(rounds: u64) {
        if rounds > 0 {
            // SAFETY: (1) Two instructions that change one register, which is named, and flags; no memory. (2) It ends: the
            // register was not 0.
            unsafe {
                std::arch::asm!("2: dec {rounds}", "jnz 2b", rounds = inout(reg) rounds => _, options(nomem, nostack));
            }
        }
    }

    /// The CPU sees by itself what was written.
    pub(in super::super) fn publish_code(_: usize, _: usize) {}

    /// Starts a child that calls `born` with the top of its stack; answers as the system call does. Not the C library's
    /// function: some refuse threads that are not their own.
    ///
    /// # Safety
    /// (1) `flags` make the child share our memory. (2) `top` is the aligned upper end of a stack that no task uses. (3) `born`
    /// never returns, and keeps to what a task without thread-local storage may do.
    pub(in super::super) unsafe fn clone(
        born: extern "C" fn(*mut libc::c_void) -> libc::c_int,
        top: *mut libc::c_void,
        flags: libc::c_int,
    ) -> isize {
        let answer: isize;
        // SAFETY: (1) In the parent it is a system call that changes the named registers only. (2) The child has another
        // stack, of which nothing is used before the call; it never comes out of this block.
        unsafe {
            std::arch::asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "xor ebp, ebp",
                "mov rdi, rsp",
                "call r12",
                "ud2",
                "2:",
                inlateout("rax") libc::SYS_clone as isize => answer,
                in("rdi") flags as isize,
                in("rsi") top,
                in("rdx") 0,
                in("r10") 0,
                in("r8") 0,
                in("r12") born,
                lateout("rcx") _,
                lateout("r11") _,
            );
        }
        answer
    }
}

#[cfg(target_arch = "aarch64")]
mod imp {
    pub(super) const INSTRUCTIONS: Option<u64> = Some(2);
    /// A return from a call.
    pub(in super::super) const CODE: &[u8] = &[0xc0, 0x03, 0x5f, 0xd6];

    /// Takes rounds of the loop.
    pub(in super::super) fn turn(rounds: u64) {
        if rounds > 0 {
            // SAFETY: (1) Two instructions that change one register, which is named, and flags; no memory. (2) It ends: the
            // register was not 0.
            unsafe {
                std::arch::asm!(
                    "2: subs {rounds}, {rounds}, #1", "b.ne 2b",
                    rounds = inout(reg) rounds => _, options(nomem, nostack)
                );
            }
        }
    }

    /// Makes sure that what was written there is what the CPU executes.
    pub(in super::super) fn publish_code(start: usize, bytes: usize) {
        // The caches' lines are longer than this on every such CPU.
        for line in (start..start.saturating_add(bytes)).step_by(4) {
            // SAFETY: (1) Both only bring caches up to date; no memory changes by it. The caller's mapping is there.
            unsafe {
                std::arch::asm!("dc cvau, {line}", "dsb ish", "ic ivau, {line}", line = in(reg) line, options(nostack));
            }
        }
        // SAFETY: (1) They only wait.
        unsafe { std::arch::asm!("dsb ish", "isb", options(nostack)) };
    }

    /// Starts a child that calls `born` with the top of its stack; answers as the system call does. Not the C library's
    /// function: some refuse threads that are not their own.
    ///
    /// # Safety
    /// (1) `flags` make the child share our memory. (2) `top` is the aligned upper end of a stack that no task uses. (3) `born`
    /// never returns, and keeps to what a task without thread-local storage may do.
    pub(in super::super) unsafe fn clone(
        born: extern "C" fn(*mut libc::c_void) -> libc::c_int,
        top: *mut libc::c_void,
        flags: libc::c_int,
    ) -> isize {
        let answer: isize;
        // SAFETY: (1) In the parent it is a system call that changes the named registers only. (2) The child has another
        // stack, of which nothing is used before the call; it never comes out of this block.
        unsafe {
            std::arch::asm!(
                "svc #0",
                "cbnz x0, 2f",
                "mov x29, xzr",
                "mov x30, xzr",
                "mov x0, sp",
                "blr x9",
                "brk #1",
                "2:",
                inlateout("x0") flags as isize => answer,
                in("x1") top,
                in("x2") 0,
                in("x3") 0,
                in("x4") 0,
                in("x8") libc::SYS_clone,
                in("x9") born,
                lateout("x30") _,
            );
        }
        answer
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod imp {
    pub(super) const INSTRUCTIONS: Option<u64> = None;
    /// None is known: nothing is executed there.
    pub(in super::super) const CODE: &[u8] = &[];

    /// Takes rounds of a loop.
    pub(in super::super) fn turn(rounds: u64) {
        (0..rounds).for_each(|round| {
            std::hint::black_box(round);
        });
    }

    /// There is no code.
    pub(in super::super) fn publish_code(_: usize, _: usize) {}

    /// Starts a child that calls `born` with the top of its stack; answers as the system call does.
    ///
    /// # Safety
    /// As for the other instruction sets.
    pub(in super::super) unsafe fn clone(
        born: extern "C" fn(*mut libc::c_void) -> libc::c_int,
        top: *mut libc::c_void,
        flags: libc::c_int,
    ) -> isize {
        // SAFETY: the caller's promises.
        let child = unsafe { libc::clone(born, top, flags, top) };
        if child < 0 { -(crate::sys::Errno::last().raw() as isize) } else { child as isize }
    }
}
