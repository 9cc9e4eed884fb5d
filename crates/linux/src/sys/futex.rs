//! `futex(2)`: waiting for a word of memory to change.
//!
//! **Invariant:** only words of this process are waited for. What the values mean is for the caller to know.

use std::ptr;
use std::sync::atomic::AtomicU32;

/// Waits until another thread wakes the word, if it is `value` now. It may return for no reason: the caller looks again.
pub(crate) fn wait(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let no_limit = ptr::null::<libc::timespec>();
    // SAFETY: (1) `word` is aligned and readable for the whole call. (2) The null pointer means that there is no time limit.
    // Its answer says why it returned, which the caller finds out by looking at the word.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_limit) };
}

/// Wakes at most so many of those who wait for the word.
pub(crate) fn wake(word: &AtomicU32, most: u32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
    // SAFETY: (1) `word` is aligned and stays readable for the whole call; the kernel only looks at its address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, most) };
}
