//! Programs, and how they come into memory.

use crate::abi::{WATCH, WATCH_BYTES};
use crate::arch::table::{AddressSpace, BASE, PAGE, SIZE};
use alloc::sync::Arc;

/// Bytes of a stack of a program; it ends where the program's memory does.
const STACK: u64 = 16 << 10;

macro_rules! programs {
    ($($name:literal),*) => {
        /// Each program with its name, as `kernel/run` has built it.
        pub const PROGRAMS: &[(&str, &[u8])] = &[$(($name, include_bytes!(concat!(env!("PROGRAMS"), "/", $name)))),*];
    };
}

programs!(
    "hello",
    "forks",
    "execs",
    "spins",
    "moves",
    "faults",
    "counts",
    "moves_counts",
    "execs_counts",
    "forks_counts",
    "loops",
    "forks_loops",
    "touches",
    "pages",
    "obeys"
);

/// A program in memory.
pub struct Loaded {
    /// Its memory.
    pub space: Arc<AddressSpace>,
    /// Where it begins.
    pub entry: u64,
    /// Where its stack begins.
    pub stack: u64,
}

/// Loads a program. `None` where there is none of this name.
pub fn load(name: &str) -> Option<Loaded> {
    let (_, file) = PROGRAMS.iter().find(|(known, _)| *known == name)?;
    let space = AddressSpace::new();
    let (headers, size, count) = (word(file, 32, 8)?, word(file, 54, 2)?, word(file, 56, 2)?);
    for index in 0..count {
        let header = usize::try_from(headers + index * size).ok()?;
        let field = |offset: usize| word(file, header + offset, 8);
        // PT_LOAD
        if word(file, header, 4)? != 1 {
            continue;
        }
        let (offset, at, in_file, in_memory) = (field(8)? as usize, field(16)?, field(32)? as usize, field(40)?);
        space.write(at, file.get(offset..offset + in_file)?);
        for page in (at..at + in_memory).step_by(PAGE).chain([at + in_memory - 1]) {
            space.map(page);
        }
    }
    let stack = BASE + SIZE;
    for page in (stack - STACK..stack).step_by(PAGE) {
        space.map(page);
    }
    for page in (WATCH..WATCH + WATCH_BYTES).step_by(PAGE) {
        space.map(page);
    }
    space.publish();
    Some(Loaded { space: Arc::new(space), entry: word(file, 24, 8)?, stack })
}

/// A number of an ELF file.
fn word(file: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(file.get(at..at + bytes)?);
    Some(u64::from_le_bytes(word))
}
