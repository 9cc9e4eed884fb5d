//! Recorders: what `pmux flight` in the foreground and those of the service have in common.
//!
//! What it is: the flight itself, its snapshots and what it listens to are the library's. Here is what is done when something
//! happens (`recorder`), who may ask a recorder that runs (`socket_dir`, `control`, `ask`), how what happened is told (`recorder_event`), and
//! recorders in threads of the service (`hosted`).
//! Read first: [`FlightRecorder`].
//!
//! **Invariant:** one pilot, wherever a recorder runs.

mod ask;
mod control;
mod hosted;
mod recorder;
mod recorder_event;
mod socket_dir;
mod throttle;

pub use ask::{AskError, ControlCommand, ask};
pub use control::{Control, ControlAccess, ControlClientId, ControlRequest};
pub use hosted::Recorders;
pub use recorder::{Child, FlightRecorder, RecorderError, RecorderPlan, ran_without_its_rights};
pub use recorder_event::{RecorderEvent, snapshot_line};
pub use socket_dir::{RecorderId, SocketDir};
