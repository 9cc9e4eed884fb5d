//! The simulated machine: a host of the engine whose truth is known.
//!
//! What it is: any number of CPUs, tasks with programs, PMUs described by data, faults and virtual time; slow and obvious
//! models to compare the engine with; and the language of scenario files.
//! Read first: [`scenario`] (what people write), [`machine`] (what it runs on), then [`check`] (what must hold).
//!
//! **Invariant:** nothing here asks for the real time, the real machine or real randomness: one seed and one commit
//! reproduce a run.
#![forbid(unsafe_code)]

pub mod check;
pub mod machine;
pub mod oracle;
pub mod scenario;
pub mod swarm;
pub mod timeline;
