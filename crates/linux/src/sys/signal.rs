//! Signals as bytes in a pipe.
//!
//! A handler for the whole process writes the number of each signal into the pipe of every [`SignalPipe`] that wants
//! it. Several signal pipes share a handler: the first to want a signal installs it, the last to leave restores what was
//! there before. What the program was started to ignore is received all the same, but for the signals that a pipe is
//! told to leave: a shell lets its jobs in the background ignore `SIGINT`. A command that is started meanwhile ignores
//! what the program was started to ignore ([`is_ignored`]).
//!
//! The pipes belong to slots and are never closed, only handed on: a handler that still runs on another thread while
//! its signal pipe goes away writes into a pipe of ours at worst, never into a file of other code.
//!
//! **Invariant:** the handler makes async-signal-safe calls only and keeps `errno`.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Errno, check, pipe, read};

/// How many signal pipes may be open at once in a process.
const SLOTS: usize = 64;
/// Signals 1 to 63 fit in a word of bits; no caller asks for the 64th.
const SIGNALS: usize = 64;

/// Which signals each slot wants, a bit for each. Written under [`REGISTRY`], read by the handler.
static WANTED: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// The writing end of each slot's pipe, or -1. Set before the first bit in [`WANTED`].
static WRITERS: [AtomicI32; SLOTS] = [const { AtomicI32::new(-1) }; SLOTS];
/// The process whose signal pipes these are: a forked child that hasn't exec'ed must not write into them.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The handler that `SIGCHLD` had before, called after ours; 0 for none.
static CHILD_NEXT: AtomicUsize = AtomicUsize::new(0);
/// The signals, a bit for each, that were ignored before our handler came. Written under [`REGISTRY`], read by a forked
/// child.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static CHILD_NEXT_FLAGS: AtomicI32 = AtomicI32::new(0);

struct Registry {
    /// Readers of the pipes, kept for ever: `(read end, write end)`.
    pipes: [Option<(OwnedFd, OwnedFd)>; SLOTS],
    taken: [bool; SLOTS],
    users: [u32; SIGNALS],
    before: [Option<libc::sigaction>; SIGNALS],
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    pipes: [const { None }; SLOTS],
    taken: [false; SLOTS],
    users: [0; SIGNALS],
    before: [None; SIGNALS],
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pipe that receives the numbers of signals for as long as it lives.
#[derive(Debug)]
pub(crate) struct SignalPipe {
    slot: usize,
    reader: BorrowedFd<'static>,
    installed: Vec<i32>,
}

impl SignalPipe {
    /// Opens a pipe for these signals; those of `leave` stay ignored where they are.
    ///
    /// Errors: `EINVAL` for a number that isn't a signal or can't be handled; `EMFILE` where all slots or descriptors
    /// are taken.
    pub(crate) fn open(signals: &[i32], leave: &[i32]) -> Result<Self, Errno> {
        let mut registry = registry();
        let slot = registry.taken.iter().position(|taken| !taken).ok_or(Errno::EMFILE)?;
        // SAFETY: (1) The call touches no memory.
        OWNER.store(unsafe { libc::getpid() }, Ordering::Release); // Pairs with the load in `on_signal`.
        if registry.pipes[slot].is_none() {
            registry.pipes[slot] = Some(pipe()?);
        }
        let Some((reader, writer)) = &registry.pipes[slot] else { return Err(Errno::EMFILE) };
        // SAFETY: (1) The pipe stays in the registry, open, until the process ends.
        let reader = unsafe { BorrowedFd::borrow_raw(reader.as_raw_fd()) };
        // Release: pairs with the acquire load in `on_signal`, which so meets an open pipe.
        WRITERS[slot].store(writer.as_raw_fd(), Ordering::Release);
        registry.taken[slot] = true;
        let mut signal_pipe = Self { slot, reader, installed: Vec::with_capacity(signals.len()) };
        // What a late handler of the last owner wrote belongs to no owner.
        signal_pipe.drain();
        for &signal in signals {
            if let Err(error) = signal_pipe.add(&mut registry, signal, leave.contains(&signal)) {
                // The pipe's drop takes the lock again.
                drop(registry);
                return Err(error);
            }
        }
        Ok(signal_pipe)
    }

    fn add(&mut self, registry: &mut Registry, signal: i32, leave: bool) -> Result<(), Errno> {
        let index = usize::try_from(signal).map_err(|_| Errno::EINVAL)?;
        if index == 0 || index >= SIGNALS {
            return Err(Errno::EINVAL);
        }
        if self.installed.contains(&signal) {
            return Ok(());
        }
        if leave && was_ignored(registry, signal, index)? {
            return Ok(());
        }
        // Release: pairs with the acquire load in `on_signal`. Before the handler, so that no signal falls between.
        WANTED[self.slot].fetch_or(1 << index, Ordering::Release);
        if registry.users[index] == 0 {
            let before = install(signal)?;
            if before.sa_sigaction == libc::SIG_IGN && signal != libc::SIGCHLD {
                // Pairs with the load in `is_ignored`, after a fork by this process.
                IGNORED.fetch_or(1 << index, Ordering::Release);
            }
            registry.before[index] = Some(before);
        }
        registry.users[index] += 1;
        self.installed.push(signal);
        Ok(())
    }

    /// The descriptor that is readable when a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'static> {
        self.reader
    }

    /// Takes the signals that have come since the last call: a bit for each number.
    pub(crate) fn take(&self) -> u64 {
        self.drain() & WANTED[self.slot].load(Ordering::Relaxed) // Only this pipe changes its word: no pair.
    }

    fn drain(&self) -> u64 {
        let mut seen = 0;
        let mut bytes = [0; 64];
        // The end comes as `EAGAIN`: the pipe doesn't block, and its other end is never closed.
        while let Ok(count @ 1..) = read(self.reader, &mut bytes) {
            for &signal in bytes.iter().take(count) {
                seen |= 1_u64.checked_shl(signal.into()).unwrap_or(0);
            }
        }
        seen
    }
}

impl Drop for SignalPipe {
    fn drop(&mut self) {
        let mut registry = registry();
        for &signal in &self.installed {
            let Ok(index) = usize::try_from(signal) else { continue };
            registry.users[index] -= 1;
            if registry.users[index] == 0
                && let Some(before) = registry.before[index].take()
            {
                // SAFETY: (1) `before` is the action that the kernel gave when ours was installed.
                unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
                IGNORED.fetch_and(!(1 << index), Ordering::Release); // Pairs with the load in `is_ignored`.
            }
        }
        // Release: pairs with the acquire load in `on_signal`; one that came too late writes into a pipe of ours.
        WANTED[self.slot].store(0, Ordering::Release);
        registry.taken[self.slot] = false;
    }
}

/// Whether the program was started to ignore a signal that our handler receives now. It is for a child that was forked:
/// what the command does with the signal is not ours to change.
pub(super) fn is_ignored(signal: i32) -> bool {
    // Pairs with the changes of the word under the lock, which a forked child can't take.
    u32::try_from(signal).is_ok_and(|signal| IGNORED.load(Ordering::Acquire).checked_shr(signal).unwrap_or(0) & 1 == 1)
}

/// What a signal does now. Async-signal-safe.
///
/// Errors: `EINVAL` for numbers that have no signal.
pub(super) fn action(signal: i32) -> Result<libc::sigaction, Errno> {
    // SAFETY: (1) `sigaction` is plain data: all zeroes is a value of it.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: (1) `action` is writable; a null new action only asks.
    check(unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) })?;
    Ok(action)
}

/// Whether a signal is ignored, or was until our handler came.
fn was_ignored(registry: &Registry, signal: i32, index: usize) -> Result<bool, Errno> {
    let before = match registry.before[index] {
        Some(before) => before,
        None => action(signal)?,
    };
    Ok(before.sa_sigaction == libc::SIG_IGN)
}

/// Installs the handler; answers what was there before.
fn install(signal: i32) -> Result<libc::sigaction, Errno> {
    let before = action(signal)?;
    if signal == libc::SIGCHLD {
        // Ours can stand there if other code saved and restored it: it must not call itself.
        let none = before.sa_sigaction == libc::SIG_IGN || before.sa_sigaction == our_address();
        let next = if none { libc::SIG_DFL } else { before.sa_sigaction };
        CHILD_NEXT_FLAGS.store(before.sa_flags, Ordering::Relaxed); // Ordered by the store after it.
        // Release: pairs with the acquire load in `call_next`. Left there when the handler goes: a late one needs it.
        CHILD_NEXT.store(next, Ordering::Release);
    }
    // SAFETY: (1) As above.
    let mut ours: libc::sigaction = unsafe { mem::zeroed() };
    ours.sa_sigaction = our_address();
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // All signals wait while the handler runs. Otherwise those that come together lie on top of each other on the thread's signal
    // stack, which has room for two or three: the kernel ends the process with SIGSEGV.
    // SAFETY: (1) `sa_mask` is a valid set to fill. (2) `ours` names a function of the type that `SA_SIGINFO` asks
    // for, and that keeps the rules of handlers.
    check(unsafe {
        libc::sigfillset(&raw mut ours.sa_mask);
        libc::sigaction(signal, &raw const ours, ptr::null_mut())
    })?;
    Ok(before)
}

fn our_address() -> libc::sighandler_t {
    on_signal as *const () as libc::sighandler_t
}

/// The handler: writes into the pipes that want the signal.
extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: (1) The address of this thread's `errno` is valid in handlers too.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: (1) As above.
    let kept = unsafe { *errno };
    // SAFETY: (1) The call touches no memory.
    let me = unsafe { libc::getpid() };
    // Acquire: pairs with the store in `open`.
    if OWNER.load(Ordering::Acquire) == me {
        let byte = signal as u8;
        for (wanted, writer) in WANTED.iter().zip(&WRITERS) {
            // Acquire, both: pair with the stores in `open` and `add`.
            if wanted.load(Ordering::Acquire) >> (byte & 63) & 1 == 1 {
                let fd = writer.load(Ordering::Acquire);
                // SAFETY: (1) One byte is readable. (2) The pipe is open for ever and doesn't block; a full one has
                // the signal in it already.
                unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
            }
        }
    }
    if signal == libc::SIGCHLD {
        call_next(signal, info, context);
    }
    // SAFETY: (1) As above.
    unsafe { *errno = kept };
}

/// Calls the handler that the program had for ended children: taking it away would leave its children unreaped.
fn call_next(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // Acquire: pairs with the store in `install`, so the flags belong to the address.
    let next = CHILD_NEXT.load(Ordering::Acquire);
    if next == libc::SIG_DFL || next == libc::SIG_IGN {
        return;
    }
    if CHILD_NEXT_FLAGS.load(Ordering::Relaxed) & libc::SA_SIGINFO != 0 {
        // SAFETY: (1) The kernel gave this address as a handler with three arguments.
        let next = unsafe {
            mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(next)
        };
        next(signal, info, context);
    } else {
        // SAFETY: (1) The kernel gave this address as a handler with one argument.
        let next = unsafe { mem::transmute::<usize, extern "C" fn(libc::c_int)>(next) };
        next(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals that come together: more than the signal stack of a thread has room for.
    #[test]
    fn signals_that_come_together_need_the_stack_of_one() {
        let signals = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGIO];
        let signal_pipe = SignalPipe::open(&signals, &[]).unwrap();
        std::thread::spawn(move || {
            // SAFETY: (1) `sigset_t` is numbers: all zeroes is a value of it. (2) The sets are valid to fill, to use and to write. (3)
            // The thread exists.
            unsafe {
                let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
                libc::sigfillset(&raw mut all);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
                for signal in signals {
                    libc::pthread_kill(libc::pthread_self(), signal);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
            }
            assert_eq!(signal_pipe.take(), signals.iter().fold(0, |bits, signal| bits | 1 << signal));
        })
        .join()
        .unwrap();
    }
}
