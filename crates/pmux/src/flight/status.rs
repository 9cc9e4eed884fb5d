//! How a flight recorder goes: what its rings hold, and what is wrong.
//!
//! Read first: [`Status`].

use std::time::Duration;

/// How far back a CPU's rings reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasted {
    /// To the beginning: nothing was overwritten.
    SinceStart,
    /// As far as there is room.
    Overwritten,
}

/// What a CPU's rings hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingSpan {
    /// The CPU.
    pub cpu: u32,
    /// All of this time is there.
    pub span: Duration,
    /// Bytes of records.
    pub used_bytes: u64,
    /// Bytes that there are for them.
    pub ring_bytes: u64,
    /// Whether something was overwritten.
    pub lasted: Lasted,
}

/// How it goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Each CPU.
    pub held: Vec<RingSpan>,
    /// What is wrong, in sentences: less is kept than was asked for, names were lost.
    pub warnings: Vec<String>,
    /// Bytes of what explains samples.
    pub past_bytes: u64,
    /// Bytes of waits.
    pub waits_bytes: u64,
    /// Records about tasks that were lost.
    pub lost: u64,
    /// Snapshots that were begun.
    pub begun: u64,
    /// Snapshots that are being written.
    pub writing: usize,
}

pub(super) fn too_short(held: &RingSpan, span: Duration, stuck: Option<&str>, most_bytes: u64) -> String {
    let text = format!(
        "CPU {} keeps {:.1} s of the {:.1} s that were asked for, in {} KiB",
        held.cpu,
        held.span.as_secs_f64(),
        span.as_secs_f64(),
        held.ring_bytes >> 10
    );
    match stuck {
        Some(why) => format!("{text}; {why}"),
        None if held.ring_bytes >= most_bytes => {
            format!("{text}; it may have no more: fewer events, or more memory for rings")
        }
        None => format!("{text}; its ring grows"),
    }
}
