//! Events to a request for a plan.
//!
//! **Invariant:** it opens nothing; of the machine it asks only which PMU is that of the CPU cores.

use pmux::Event;
use pmux::event::{Catalog, EventList, EventSource as Counted, GroupStrength, PmuCpus};
use pmux_plan::machine::Kind;
use pmux_plan::{EventRequest, GroupRequest, Request, Scope, Source, Strength};

/// Types of events below this one are the same on every Linux.
const FIRST_DYNAMIC: u32 = 6;
/// The type of raw events: it belongs to a PMU of the CPU cores. The others of those show on which CPUs they are.
const RAW: u32 = 4;
/// PMUs of sysfs whose events the kernel counts itself, one by one.
const OF_THE_KERNEL: [&str; 2] = ["kprobe", "uprobe"];

/// Makes a request of a list of events. `is_core` says whether a PMU of sysfs is that of the CPU cores.
pub(super) fn request(list: &EventList, scope: Scope, is_core: impl Fn(&str) -> bool) -> Request {
    let event =
        |event: &Event| EventRequest { name: event.name.clone(), attr: event.attr, source: source(event, &is_core) };
    let groups = list.groups.iter().map(|group| GroupRequest {
        name: group.name.clone(),
        events: group.events.iter().map(event).collect(),
        strength: match group.strength {
            GroupStrength::Strong => Strength::Whole,
            GroupStrength::Weak => Strength::MayBreak,
        },
    });
    Request { groups: groups.collect(), scope }
}

/// Whether a PMU of sysfs is that of the CPU cores.
pub(super) fn is_core(catalog: &Catalog, name: &str) -> bool {
    catalog.pmu(name).is_ok_and(|pmu| pmu.kind() == RAW || matches!(pmu.cpus(), Ok(PmuCpus::Only(_))))
}

fn source(event: &Event, is_core: &impl Fn(&str) -> bool) -> Source {
    let Counted::Kernel { pmu } = &event.source else { return Source::Kernel };
    let kind = || Kind::by_name(&event.canonical).filter(|kind| Kind::hardware().any(|other| other == *kind));
    match pmu.as_str() {
        _ if event.attr.kind.0 < FIRST_DYNAMIC => Source::Machine(kind()),
        name if OF_THE_KERNEL.contains(&name) => Source::Kernel,
        name if is_core(name) => Source::Machine(kind()),
        "" => Source::Unknown(format!("of type {}", event.attr.kind.0)),
        name => Source::Unknown(name.to_owned()),
    }
}
