//! Threads as the C library makes them, with nothing around them.
//!
//! What it is: [`Thread`]. A thread of the standard library brings a stack for signals along: some system calls at its
//! start and at its end, which a program that measures the starts and ends of threads does not want to measure.
//!
//! **Invariant:** what a thread runs belongs to the code that joins it: the thread gives no memory back. The first time a thread
//! does that, the C library may make a heap for it.

use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::Arc;

use super::Errno;

/// A thread that runs a function once. Dropping it waits until the thread has ended.
pub struct Thread<F> {
    handle: libc::pthread_t,
    /// What it runs. Given back only when the thread has ended.
    work: ManuallyDrop<Arc<F>>,
}

impl<F: Fn() + Send + Sync + 'static> Thread<F> {
    /// Starts a thread that calls `work` once. A panic in it ends the process.
    ///
    /// # Errors
    /// `EAGAIN` where no more threads may be; whatever the kernel says where events that the thread inherits can't be
    /// opened for it (`ENOSPC`: no debug register is left).
    pub fn start(work: &Arc<F>) -> Result<Self, Errno> {
        let work = Arc::clone(work);
        let argument = Arc::as_ptr(&work).cast_mut().cast::<c_void>();
        let mut handle = MaybeUninit::uninit();
        // SAFETY: (1) `handle` is writable, and default attributes are asked for. (2) `argument` points to an `F`, as
        // `enter::<F>` wants it; `work` keeps it alive until the thread has been joined, and for ever where it never is.
        // (3) `F` is `Sync` and borrows nothing, so another thread may call it by reference.
        let answer = unsafe { libc::pthread_create(handle.as_mut_ptr(), ptr::null(), enter::<F>, argument) };
        if answer != 0 {
            return Err(Errno::from_raw(answer));
        }
        // SAFETY: (1) The call succeeded, so it has written the handle.
        let handle = unsafe { handle.assume_init() };
        Ok(Self { handle, work: ManuallyDrop::new(work) })
    }
}

extern "C" fn enter<F: Fn()>(argument: *mut c_void) -> *mut c_void {
    // SAFETY: (1) Only `start` passes this function on, with a pointer to an `F` that outlives the thread.
    let work = unsafe { &*argument.cast_const().cast::<F>() };
    work();
    ptr::null_mut()
}

impl<F> Drop for Thread<F> {
    fn drop(&mut self) {
        // SAFETY: (1) It asks for nothing but the handle of the calling thread.
        let own = unsafe { libc::pthread_self() };
        // A thread that drops itself can't be waited for: what it runs is then never given back.
        if self.handle == own {
            return;
        }
        // SAFETY: (1) The handle is of a thread that was not joined or detached: only this does it, and once. (2) The
        // thread's result is not asked for.
        let answer = unsafe { libc::pthread_join(self.handle, ptr::null_mut()) };
        // The C library refuses where two threads would wait for each other for ever.
        if answer == 0 {
            // SAFETY: (1) It is dropped here only, once. (2) The thread has ended and does not use it any more.
            unsafe { ManuallyDrop::drop(&mut self.work) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn threads_run_once_and_are_waited_for() {
        let count = Arc::new(AtomicU32::new(0));
        let work = Arc::new({
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let threads: Vec<_> = (0..10).map(|_| Thread::start(&work).unwrap()).collect();
        drop(threads);
        assert_eq!(count.load(Ordering::Relaxed), 10);
        assert_eq!(Arc::strong_count(&work), 1, "what they ran was given back");
    }

    #[test]
    fn a_thread_may_let_go_of_itself() {
        type Held = Mutex<Option<Box<dyn std::any::Any + Send>>>;
        struct Own<F>(#[allow(dead_code, reason = "dropping it is what it is for")] Thread<F>);
        // SAFETY: (1) A handle may be used by any thread of the process.
        unsafe impl<F> Send for Own<F> {}
        let held: Arc<Held> = Arc::default();
        let done = Arc::new(AtomicU32::new(0));
        let work = Arc::new({
            let (held, done) = (Arc::clone(&held), Arc::clone(&done));
            move || {
                let own = loop {
                    if let Some(own) = held.lock().unwrap().take() {
                        break own;
                    }
                    std::thread::yield_now();
                };
                drop(own);
                done.store(1, Ordering::Release);
            }
        });
        *held.lock().unwrap() = Some(Box::new(Own(Thread::start(&work).unwrap())));
        while done.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
    }
}
