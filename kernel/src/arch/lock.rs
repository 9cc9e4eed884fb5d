//! The lock of the kernel: interrupts of its CPU are off while it is held.

use super::InterruptsOff;
use core::ops::{Deref, DerefMut};
use spin::mutex::SpinMutex;

/// A spin lock that may be taken in interrupts.
pub struct IrqLock<T> {
    value: SpinMutex<T>,
}

/// It is held.
pub struct IrqGuard<'l, T> {
    // Fields are dropped in this order: interrupts come back last.
    value: spin::mutex::SpinMutexGuard<'l, T>,
    _off: InterruptsOff,
}

impl<T> IrqLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        Self { value: SpinMutex::new(value) }
    }

    /// Takes it. Any context.
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let off = InterruptsOff::new();
        IrqGuard { value: self.value.lock(), _off: off }
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
