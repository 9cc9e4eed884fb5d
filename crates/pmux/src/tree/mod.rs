//! The process tree: who counted what.
//!
//! What it is: while a command runs, the kernel writes records of forks, execs, exits and of what each exiting task has
//! counted. [`TreeFollower`] reads them from a ring per CPU, in the order of their times, and drives the
//! engine's family with them. [`ProcessTree`] is the result.
//! Read first: [`ProcessTree`], then [`TreeFollower`].
//!
//! **Invariant:** the sum over all processes and [`ProcessTree::unattributed`] is the total. What was lost is a number.

mod entry;
mod follow;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use follow::{TreeFollower, make_reporting, with_identity};
pub use view::{Process, ProcessTree, Reporting};
