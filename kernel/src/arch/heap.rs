//! The heap: all memory behind the kernel. It may be used with interrupts off, and in interrupts.

use super::lock::IrqLock;
use buddy_system_allocator::Heap;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};

/// Where memory ends: QEMU is given 256 MiB.
const MEMORY_END: usize = 0x5000_0000;

struct Global(IrqLock<Heap<32>>);

#[global_allocator]
static HEAP: Global = Global(IrqLock::new(Heap::new()));

// SAFETY: (1) A buddy allocator hands out blocks that do not overlap, and the lock keeps two CPUs out of it.
unsafe impl GlobalAlloc for Global {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.lock().alloc(layout).map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some(pointer) = NonNull::new(pointer) else {
            return;
        };
        // SAFETY: (1) The caller says that `alloc` gave it, with this layout.
        unsafe { self.0.lock().dealloc(pointer, layout) };
    }
}

/// Gives it its memory. To be called once, by the first CPU.
pub(super) fn init() {
    unsafe extern "C" {
        static kernel_end: u8;
    }
    let start = (&raw const kernel_end).addr();
    // SAFETY: (1) From the end of the kernel (`link.ld`) to the end of memory nothing else is: QEMU puts its device tree, which is not
    // read, at the beginning of memory. (2) It is called once.
    unsafe { HEAP.0.lock().init(start, MEMORY_END - start) };
}

/// How many bytes are in use.
pub fn used_bytes() -> usize {
    HEAP.0.lock().stats_alloc_actual()
}
