//! The integration tests of the command, in one executable: linking forty took longer than all else.
//!
//! Read first: [`common`], which starts the command and reads what it prints.
//!
//! **Invariant:** tests run side by side, as threads of one process. One that needs a part of the machine for itself holds a lock
//! ([`pmux_testkit::lock`]).
#![allow(clippy::unwrap_used, unreachable_pub)]

mod common;

mod bench;
mod control;
mod convert;
mod diff;
mod errors;
mod fallback;
mod filters;
mod flame;
mod flight;
mod flight_serve;
mod formats;
mod formats_vs_perf;
mod former;
mod fuzz_corpus;
mod golden;
mod hotplug;
mod inlined;
mod input;
mod inspect;
mod metrics;
mod mistakes;
mod names;
mod neighbours;
mod off_cpu;
mod off_cpu_cgroup;
mod off_cpu_events;
mod plan;
mod prometheus;
mod record;
mod regions;
mod report;
mod report_view;
mod run;
mod run_container;
mod run_hostile;
mod serve;
mod serve_hostile;
mod serve_records;
mod serve_reload;
mod serve_rights;
mod serve_scarce;
mod serve_soak;
mod shared;
mod signals;
mod sim;
mod stat_command;
mod stat_targets;
mod status_page;
mod timeline;
mod top;
mod tree;
mod turns;
mod unwind;
mod watch;

#[test]
fn role() {
    pmux_testkit::role::play_if_asked(|name, arguments| match name {
        // regions:KIND, a program that marks regions
        "regions" => regions::play(arguments),
        // asks-for-all:SOCKET, and pings:SOCKET,DOOR
        "asks-for-all" => serve_reload::asks_for_all(arguments),
        "pings" => serve_reload::pings(arguments),
        _ => common::roles::play(name, arguments),
    });
}
