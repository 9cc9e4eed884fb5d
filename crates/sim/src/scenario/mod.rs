//! The scenario language.
//!
//! What it is: text files that open events, let tasks run, fork, migrate and exit, take CPUs away, and say what must then be
//! so. The same file runs on the simulated machine, on this kernel and in the lab. `docs/scenarios.md` is its reference.
//! Read first: [`ast`].
//!
//! **Invariant:** what reads, checks, prints and minimises a scenario runs nothing; each runner gives what it sees to
//! [`eval`], so that an expectation means the same everywhere.

pub mod ast;
mod check;
mod error;
pub mod eval;
pub mod files;
mod lex;
mod minimise;
mod names;
mod nearest;
mod parse;
mod print;
pub mod run;
#[cfg(test)]
mod tests;
pub mod trigger_watch;
mod vocabulary;

pub use check::{Requirements, check, needs};
pub use error::{Bearing, Problem, render};
pub use minimise::{Minimised, Outcome, minimise};
pub use names::{EventClass, canonical_event, event_class};
pub use parse::parse;
pub use print::print;
