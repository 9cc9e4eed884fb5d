//! Recorders: what `pmux flight` in the foreground and those of the service have in common.
//!
//! What it is: the flight itself, its snapshots and what it listens to are the library's. Here is what is done when something
//! happens (`pilot`), who may ask a recorder that runs (`place`, `control`, `ask`), how what happened is told (`told`), and
//! recorders in threads of the service (`hosted`).
//! Read first: [`Pilot`].
//!
//! **Invariant:** one pilot, wherever a recorder runs.

mod ask;
mod child;
mod control;
mod hosted;
mod pilot;
mod place;
mod told;
mod wishes;

pub use ask::{AskError, Question, ask};
pub use child::Child;
pub use control::{Asked, AskerId, Askers, Control, ControlError};
pub use hosted::Recorders;
pub use pilot::{Pilot, PilotError, Plan};
pub use place::{Called, Folder};
pub use told::{Told, snapshot_line};
