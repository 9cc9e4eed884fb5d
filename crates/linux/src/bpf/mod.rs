//! Small programs that run in the kernel.
//!
//! What it is: programs are written with [`Assembler`], a function for each instruction; [`Program::load`] hands them to the
//! kernel, which verifies them; [`Map`]s are what they share with us; [`Program::attach`] runs one at each overflow of an event.
//! No compiler and no library is needed for it. Read first: [`Assembler`].
//!
//! It needs a right that few users have and a kernel that was built for it: [`why_not`] says what is missing, and everything
//! that is done with a program has another way that is taken then.
//!
//! **Invariant:** a map outlives the code that names it. What a program does is decided by the code that assembles it.

mod assembler;
mod code;
mod map;
mod program;
mod support;

pub use crate::sys::bpf::{MapKind, Update};
pub use assembler::{Assembler, Bytecode, Label};
pub use code::{Alu, Compare, Helper, Operand, Reg, Size};
pub use map::{Map, MapEntries, Values};
pub use program::{Attached, EventContext, LoadError, Program, ProgramKind};
pub use support::why_not;

#[cfg(test)]
mod tests;
