//! The integration tests of the library, in one executable: linking thirty took longer than all else.
//!
//! Read first: [`common`], which skips, runs commands, and reads what was counted.
//!
//! **Invariant:** tests run side by side, as threads of one process. One that measures the process has a process of its own
//! ([`pmux_testkit::own_process`]), and one that needs a part of the machine for itself holds a lock ([`pmux_testkit::lock`]).
#![allow(clippy::unwrap_used, unreachable_pub)]

mod common;

mod architecture;
mod breakpoint_fuzz;
mod breakpoint_ledger;
mod by_cgroup;
mod counting;
mod fallback;
mod flight;
mod glitch;
mod hotplug;
mod limits;
mod overflow;
mod pressure;
mod probes;
mod profile;
mod sharing;
mod symbols;
mod targets;
mod tree;
mod triggers;
mod turns;
mod turns_of_cgroups;
mod watch;
mod watch_many;
mod watch_rows;
mod watch_values;

#[test]
fn role() {
    pmux_testkit::role::play_if_asked(roles);
}

/// The roles that a module defines for itself, as `MODULE/NAME`.
fn roles(role: &str, arguments: &str) {
    let (module, name) = role.split_once('/').unwrap_or_else(|| panic!("there is no role {role}"));
    match module {
        "by_cgroup" => by_cgroup::role(name, arguments),
        "fallback" => fallback::role(name, arguments),
        "flight" => flight::role(name, arguments),
        "limits" => limits::role(name, arguments),
        "pressure" => pressure::role(name, arguments),
        "sharing" => sharing::role(name, arguments),
        "tree" => tree::role(name, arguments),
        "turns" => turns::role(name, arguments),
        "turns_of_cgroups" => turns_of_cgroups::role(name, arguments),
        "watch_many" => watch_many::role(name, arguments),
        _ => panic!("there is no role {role}"),
    }
}
