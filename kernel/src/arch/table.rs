//! Address spaces: page tables, and the pages of a program.
//!
//! A program is mapped from [`BASE`] on; below it is the kernel, for EL1 only.
//!
//! **Invariant:** a table that a CPU uses is not freed: [`activate`] keeps it until the CPU has another one.

use crate::arch::lock::IrqLock;
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{TTBR0_EL1, Writeable};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where programs begin.
pub const BASE: u64 = 1 << 39;
/// How far they reach: one table of the second level, 1 GiB.
pub const SIZE: u64 = 1 << 30;
/// Where a program gets a page when it first comes to it: 16,384 of them.
pub const FRESH: core::ops::Range<u64> = crate::abi::FRESH..crate::abi::FRESH + 16_384 * PAGE as u64;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A table, or a page: words that the CPU or a program changes, too.
#[repr(align(4096))]
struct Words([AtomicU64; PAGE / 8]);

fn words() -> Box<Words> {
    Box::new(Words([const { AtomicU64::new(0) }; PAGE / 8]))
}

fn address(words: &Words) -> u64 {
    core::ptr::from_ref(words).addr() as u64
}

/// Valid, and a table or a page.
const TABLE: u64 = 3;
/// A page of memory of a program: attribute 1, EL0 reads and writes, inner shareable, access flag, not global, not for EL1 to execute.
const USER_PAGE: u64 = 3 | 1 << 2 | 1 << 6 | 3 << 8 | 1 << 10 | 1 << 11 | 1 << 53;

/// The memory of a program.
pub struct AddressSpace {
    root: Box<Words>,
    level1: Box<Words>,
    level2: Box<Words>,
    inner: IrqLock<Inner>,
}

#[derive(Default)]
struct Inner {
    level3: BTreeMap<usize, Box<Words>>,
    pages: BTreeMap<u64, Box<Words>>,
}

impl AddressSpace {
    /// One without pages.
    pub fn new() -> Self {
        unsafe extern "C" {
            static kernel_l0: AtomicU64;
        }
        let (root, level1, level2) = (words(), words(), words());
        // SAFETY: (1) It is the first word of a table that `entry.s` has filled, and which does not change.
        let kernel = unsafe { &kernel_l0 }.load(Ordering::Relaxed);
        root.0[0].store(kernel, Ordering::Relaxed);
        root.0[1].store(address(&level1) | TABLE, Ordering::Relaxed);
        level1.0[0].store(address(&level2) | TABLE, Ordering::Relaxed);
        Self { root, level1, level2, inner: IrqLock::new(Inner::default()) }
    }

    /// Maps a page of zeroes at an address, unless there is one.
    pub fn map(&self, at: u64) {
        let (page, inner) = (at & !(PAGE as u64 - 1), &mut *self.inner.lock());
        assert!((BASE..BASE + SIZE).contains(&page), "a program has no address {at:#x}");
        if inner.pages.contains_key(&page) {
            return;
        }
        let words_of_page = words();
        let (index2, index3) = ((page >> 21 & 511) as usize, (page >> 12 & 511) as usize);
        let level3 = inner.level3.entry(index2).or_insert_with(words);
        level3.0[index3].store(address(&words_of_page) | USER_PAGE, Ordering::Relaxed);
        self.level2.0[index2].store(address(level3) | TABLE, Ordering::Relaxed);
        inner.pages.insert(page, words_of_page);
        barrier::dsb(barrier::ISHST);
        barrier::isb(barrier::SY);
    }

    /// A copy of all of it.
    pub fn fork(&self) -> Self {
        let copy = Self::new();
        let pages: alloc::vec::Vec<u64> = self.inner.lock().pages.keys().copied().collect();
        for page in pages {
            copy.map(page);
            let (from, to) = (self.inner.lock(), copy.inner.lock());
            if let (Some(from), Some(to)) = (from.pages.get(&page), to.pages.get(&page)) {
                for (from, to) in from.0.iter().zip(&to.0) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        }
        copy.publish();
        copy
    }

    /// Copies bytes into it. Pages that are not there are made.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        for page in (at & !(PAGE as u64 - 1)..at + bytes.len() as u64).step_by(PAGE) {
            self.map(page);
        }
        let inner = self.inner.lock();
        for (address, &byte) in (at..).zip(bytes) {
            let Some(page) = inner.pages.get(&(address & !(PAGE as u64 - 1))) else {
                continue;
            };
            let (word, shift) = (&page.0[address as usize % PAGE / 8], address % 8 * 8);
            let value = word.load(Ordering::Relaxed) & !(0xff << shift) | u64::from(byte) << shift;
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Copies bytes out of it. `None` where it has no such page.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Option<()> {
        let inner = self.inner.lock();
        for (address, byte) in (at..).zip(bytes) {
            let page = inner.pages.get(&(address & !(PAGE as u64 - 1)))?;
            *byte = (page.0[address as usize % PAGE / 8].load(Ordering::Relaxed) >> (address % 8 * 8)) as u8;
        }
        Some(())
    }

    /// What was written is what a program executes, on every CPU.
    pub fn publish(&self) {
        for page in self.inner.lock().pages.values() {
            for line in (address(page)..address(page) + PAGE as u64).step_by(64) {
                // SAFETY: (1) It changes no memory: it cleans a line of the data cache to where instructions are fetched from.
                unsafe { asm!("dc cvau, {}", in(reg) line) };
            }
        }
        // SAFETY: (1) They change no memory: all instruction caches are emptied.
        unsafe { asm!("dsb ish", "ic ialluis", "dsb ish", "isb") };
    }
}

static ACTIVE: [IrqLock<Option<Arc<AddressSpace>>>; super::CPUS] = [const { IrqLock::new(None) }; super::CPUS];

/// Gives this CPU the memory of a program, or none. With interrupts off.
pub fn activate(space: Option<Arc<AddressSpace>>) {
    unsafe extern "C" {
        static kernel_l0: AtomicU64;
    }
    let mut active = ACTIVE[super::cpu()].lock();
    let same = match (&*active, &space) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    };
    if same {
        return;
    }
    let root = space.as_ref().map_or((&raw const kernel_l0).addr() as u64, |space| address(&space.root));
    TTBR0_EL1.set(root);
    // SAFETY: (1) The kernel is mapped alike by all tables. (2) What was cached of the old one is gone before the next instruction.
    unsafe { asm!("isb", "tlbi vmalle1", "dsb nsh", "isb") };
    // The old one is let go now that this CPU has forgotten it.
    let old = core::mem::replace(&mut *active, space);
    drop(active);
    drop(old);
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // No CPU has it: `ACTIVE` holds a reference. The field is read here so that it lives as long as the table that points to it.
        self.level1.0[0].store(0, Ordering::Relaxed);
    }
}
