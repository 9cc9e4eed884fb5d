//! The serial port (PL011), and `println!`.

use super::lock::IrqLock;
use core::fmt::{self, Write};

const DATA: *mut u32 = 0x900_0000 as *mut u32;

/// The port; the lock keeps lines whole.
pub struct Console;

/// All lines go through it.
pub static CONSOLE: IrqLock<Console> = IrqLock::new(Console);

impl Console {
    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // SAFETY: (1) This is the data register of the port of QEMU's `virt`, which takes a byte at any time.
            unsafe { DATA.write_volatile(byte.into()) };
        }
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// Writes a line.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {{
        let mut console = $crate::arch::console::CONSOLE.lock();
        // It does not fail.
        let _ = core::fmt::Write::write_fmt(&mut *console, format_args!("{}\n", format_args!($($argument)*)));
    }};
}
