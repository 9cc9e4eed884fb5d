//! The serial port (PL011), and `println!`.

use super::lock::IrqLock;
use alloc::string::String;
use core::fmt::{self, Write};

const DATA: *mut u32 = 0x900_0000 as *mut u32;

const FLAGS: *const u32 = 0x900_0018 as *const u32;
/// In the flags: there is nothing to read.
const RECEIVE_EMPTY: u32 = 1 << 4;

/// How long it is waited for a byte, in ns: who sends has gone after this.
const PATIENCE_NS: u64 = 60_000_000_000;

/// The next line that comes in, without its end. Waits for it, and lets other tasks run; `None` where nothing comes any more.
pub fn line() -> Option<String> {
    let (mut line, mut until) = (String::new(), super::now_ns() + PATIENCE_NS);
    loop {
        // SAFETY: (1) It is the register that says whether there is a byte, and reading it changes nothing.
        if unsafe { FLAGS.read_volatile() } & RECEIVE_EMPTY != 0 {
            if super::now_ns() > until {
                return None;
            }
            crate::sched::give_way();
            continue;
        }
        until = super::now_ns() + PATIENCE_NS;
        // SAFETY: (1) There is a byte, and only this function takes one.
        match unsafe { DATA.read_volatile() } as u8 {
            b'\n' => return Some(line),
            byte => line.push(byte.into()),
        }
    }
}

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
