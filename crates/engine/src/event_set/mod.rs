//! Event sets and triggers: expensive events only around the moment that matters.
//!
//! What it is: [`EventSet`], an array of groups and system-wide sets that is switched together; and [`Trigger`], which says from
//! readings and happenings when something is the case. What is read, and what follows from a trigger, is for the code that drives them:
//! the engine carries out what a set orders ([`crate::Engine::switch_event_set`]).
//! Read first: [`Trigger`], then `term` (what a condition is made of) and `switch` (whether a set is on).
//!
//! **Invariant:** pure steps. Time is an argument and never goes back; what is not known is neither true nor false; nothing happens
//! between two steps that [`Trigger::next`] or [`EventSet::next`] has not announced.

mod set;
mod switch;
mod term;
mod trigger;

#[cfg(test)]
mod tests;

pub use set::{EventSet, Member, SetOp};
pub use switch::{Position, SwitchRequest, SwitchState};
pub use term::{Lasting, Reach, Term, TermValue};
pub use trigger::{Happening, Repeat, Rounds, Trigger, TriggerSpec, TriggerTarget};
