//! The integration tests of the simulator, in one executable.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod ledger_races;
mod oracles;
mod plan;
mod samples;
mod scenarios;
mod swarm;
