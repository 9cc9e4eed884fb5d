//! Kernel stacks, and the switch between them.
//!
//! **Invariant:** a context that runs, or whose stack is not left yet, has `saved` 0 and is not switched to. Only this file makes
//! contexts, so each other one has a frame that [`switch`] kept, or one that [`Context::new`] wrote. `RUNNING` and `LEFT` keep the
//! contexts of a switch alive.

use super::lock::IrqLock;
use super::{CPUS, Frame};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a kernel stack.
const STACK: usize = 32 << 10;
/// Words that `switch_stacks` keeps.
const KEPT: usize = 12;

#[repr(align(16))]
struct Stack(UnsafeCell<[u64; STACK / 8]>);

// SAFETY: (1) Only the CPU that runs on it touches it, and `Context::new` before that.
unsafe impl Sync for Stack {}

/// Where a task is in the kernel.
pub struct Context {
    /// Its stack pointer while it does not run; 0 while it does.
    saved: AtomicU64,
    /// The same, as `switch_stacks` writes it; for the CPU that leaves it.
    kept: AtomicU64,
    /// `None` for the stack that a CPU began on.
    stack: Option<Box<Stack>>,
}

unsafe extern "C" {
    fn switch_stacks(from: *mut u64, to: u64);
    fn first_return();
}

/// The context that runs on each CPU.
static RUNNING: [IrqLock<Option<Arc<Context>>>; CPUS] = [const { IrqLock::new(None) }; CPUS];
/// The one that ran there before it, until [`left`].
static LEFT: [IrqLock<Option<Arc<Context>>>; CPUS] = [const { IrqLock::new(None) }; CPUS];

impl Context {
    /// One that begins with [`crate::sched::task_begins`], and then goes on as the frame says.
    pub fn new(frame: &Frame) -> Arc<Self> {
        let mut stack = Box::new(Stack(UnsafeCell::new([0; STACK / 8])));
        let words = stack.0.get_mut();
        let frame_at = words.len() - size_of::<Frame>() / 8;
        words[frame_at..frame_at + 31].copy_from_slice(&frame.x);
        words[frame_at + 31..].copy_from_slice(&[frame.sp, frame.pc, frame.state]);
        let kept_at = frame_at - KEPT;
        // x30, where the switch returns to.
        words[kept_at + KEPT - 1] = first_return as *const () as u64;
        let saved = (&raw const words[kept_at]).addr() as u64;
        Arc::new(Self { saved: AtomicU64::new(saved), kept: AtomicU64::new(0), stack: Some(stack) })
    }

    /// That of the stack which a CPU began on.
    pub fn of_cpu() -> Arc<Self> {
        Arc::new(Self { saved: AtomicU64::new(0), kept: AtomicU64::new(0), stack: None })
    }

    /// Whether it has a stack of its own.
    pub fn is_task(&self) -> bool {
        self.stack.is_some()
    }
}

/// This CPU begins, on the stack of this context.
pub fn begin(cpu: usize, context: Arc<Context>) {
    *LEFT[cpu].lock() = None;
    *RUNNING[cpu].lock() = Some(context);
}

/// Goes on with another context; returns when another switch comes back to this one. With interrupts off. What runs next calls
/// [`left`] first.
///
/// # Panics
/// The other one runs.
pub fn switch(to: Arc<Context>) {
    let cpu = super::cpu();
    let other = to.saved.swap(0, Ordering::Acquire);
    assert!(other != 0, "a context that runs is switched to");
    let from = RUNNING[cpu].lock().replace(to);
    let kept = from.as_ref().map(|from| from.kept.as_ptr()).expect("a CPU runs a context");
    *LEFT[cpu].lock() = from;
    // SAFETY: (1) `other` is the stack pointer of a frame that `switch_stacks` takes back (see the head). (2) It is ours alone: the
    // swap took it, and `RUNNING` keeps its stack. (3) `kept` is a word of the context in `LEFT`, which only this CPU empties, later.
    unsafe { switch_stacks(kept, other) };
}

/// The stack of the context that ran here before is left: it may be switched to. With interrupts off.
pub fn left() {
    let from = LEFT[super::cpu()].lock().take();
    if let Some(from) = from {
        let kept = from.kept.swap(0, Ordering::Relaxed);
        from.saved.store(kept, Ordering::Release);
    }
}

// SAFETY: (1) The name is that which `entry.s` calls; there is no other of it.
#[unsafe(no_mangle)]
extern "C" fn task_begins() {
    crate::sched::task_begins();
}
