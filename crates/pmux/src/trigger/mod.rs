//! Triggers: noticing that something has happened, and what to do then.
//!
//! What it is: the language of `--on TRIGGER [ACTIONS]` and `--set NAME={EVENTS}` ([`Rule`], [`SetText`]), what a trigger listens to
//! ([`Triggers`]), and sets of events that go on and off together ([`EventSets`]).
//! Read first: [`Trigger`] for what can be written; [`Triggers`] for what becomes of it.
//!
//! **Invariant:** when a trigger fires is decided by the engine ([`pmux_engine::event_set`]), from readings and happenings that are
//! brought to it here.

mod engine;
mod events;
mod language;
mod open;
mod run;
mod sets;
mod sources;
mod triggers;

pub use events::{Fired, Reason, TriggerEvent, TriggerHit, TriggerTarget};
pub use language::{
    Action, Comparison, Every, ExitOf, Level, LevelQuantity, LineFilter, Pressure, Resource, Rounds, Rule, SetText,
    SignalName, StalledTasks, Switching, TermScope, TermSource, TextError, Trigger, TriggerTerm,
};
pub use pmux_engine::engine::SwitchError;
pub use pmux_engine::event_set::{Position, SwitchRequest};
pub use run::{Commands, REASON_VARIABLE, SNAPSHOT_VARIABLE};
pub use sets::{EventSets, Switched};
pub use triggers::{TriggerError, TriggerOptions, Triggers, USUAL_INTERVAL};
