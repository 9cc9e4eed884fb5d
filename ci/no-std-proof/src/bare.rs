//! What a program without `std` must bring: an allocator and a panic handler.
//!
//! **Invariant:** the panic handler is the only one; a second one from `std` would not link.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

struct Exhausted;

// SAFETY: it never hands out memory, so nothing can be wrong with what it hands out.
unsafe impl GlobalAlloc for Exhausted {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Exhausted = Exhausted;

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
