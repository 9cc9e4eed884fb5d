//! What `read(2)` on an event returns, and what samples and READ records hold of it.
//!
//! What it is: the layouts that `read_format` chooses, in both directions.
//! Read first: [`ReadLayout`].
//!
//! ```text
//! alone:  value, [time_enabled], [time_running], [id], [lost]
//! GROUP:  nr, [time_enabled], [time_running], nr x { value, [id], [lost] }
//! ```
//!
//! Source: `perf_event_open(2)`.
//!
//! **Invariant:** values are what was counted while running. Nothing is scaled here.

mod layout;
mod timed;
mod values;

pub use layout::ReadLayout;
pub use timed::{TimedLayout, TimedRead, ValuePlace};
pub use values::{Members, ReadMember, ReadValues};
