//! Reading watched data out of a process.
//!
//! What it is: `/proc/PID/mem`, which stays open for the processes that are hit. Reading it needs the right to trace the
//! process; it doesn't stop it, and is not a hit.
//!
//! **Invariant:** what can't be read is `None`, never 0.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// How many processes are kept open.
const MOST_OPEN: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Memory {
    open: HashMap<i32, Option<File>>,
    /// What stood at an address of a process at the last look.
    last: HashMap<(i32, u64), u64>,
}

impl Memory {
    /// The number of `len` bytes (1, 2, 4 or 8) at an address.
    pub(super) fn read(&mut self, pid: i32, address: u64, len: u64) -> Option<u64> {
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&pid) {
            self.open.clear();
        }
        let file = self.open.entry(pid).or_insert_with(|| File::open(format!("/proc/{pid}/mem")).ok());
        let mut bytes = [0; 8];
        let into = bytes.get_mut(..usize::try_from(len).ok()?)?;
        file.as_ref()?.read_exact_at(into, address).ok()?;
        Some(number(into))
    }

    /// As [`Memory::read`], and what it was at the last look.
    pub(super) fn look(&mut self, pid: i32, address: u64, len: u64) -> Option<(u64, Option<u64>)> {
        let now = self.read(pid, address, len)?;
        Some((now, self.last.insert((pid, address), now)))
    }

    /// The process has another memory now: an exec, or another process with its number.
    pub(super) fn forget(&mut self, pid: i32) {
        self.open.remove(&pid);
        self.last.retain(|&(of, _), _| of != pid);
    }
}

/// Bytes as the machine reads a number of that length.
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WATCHED: AtomicU64 = AtomicU64::new(41);

    #[test]
    fn own_memory_is_read() {
        let mut memory = Memory::default();
        let (pid, address) = (std::process::id().cast_signed(), (&raw const WATCHED) as u64);
        let Some(first) = memory.look(pid, address, 8) else {
            println!("skipped: needs the right to read /proc/self/mem");
            return;
        };
        assert_eq!(first, (41, None));
        WATCHED.store(42, Ordering::Relaxed);
        assert_eq!(memory.look(pid, address, 8), Some((42, Some(41))));
        assert_eq!(memory.look(pid, 8, 8), None, "nothing is mapped there");
        memory.forget(pid);
        assert_eq!(memory.look(pid, address, 8), Some((42, None)));
        assert_eq!(memory.read(i32::MAX, address, 8), None);
    }

    #[test]
    fn numbers_of_each_length() {
        assert_eq!(number(&[7]), 7);
        assert_eq!(number(&0x1234_u16.to_ne_bytes()), 0x1234);
        assert_eq!(number(&0x8000_0001_u32.to_ne_bytes()), 0x8000_0001);
        assert_eq!(number(&u64::MAX.to_ne_bytes()), u64::MAX);
    }
}
