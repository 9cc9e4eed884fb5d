//! The events that scenarios know by name.
//!
//! What it is: the main names and aliases that every Linux has, as `pmux stat -e` takes them, and what kind of event is behind
//! them.
//!
//! **Invariant:** pure. Whether a machine has an event, only the machine knows.

use super::ast::Event;

/// What is needed to count an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventClass {
    /// A counter of the CPU.
    Hardware,
    /// Nothing: the kernel counts by itself.
    Software,
    /// A tracepoint of the kernel.
    Tracepoint,
    /// A debug register.
    Breakpoint,
}

// Names, with a blank between.
const HARDWARE: &str = "cycles instructions cache-references cache-misses branches branch-misses bus-cycles \
                        stalled-cycles-frontend stalled-cycles-backend ref-cycles";
const SOFTWARE: &str = "cpu-clock task-clock page-faults context-switches cpu-migrations minor-faults major-faults \
                        alignment-faults emulation-faults dummy bpf-output cgroup-switches";
const CACHES: &str = "L1-dcache-loads L1-dcache-load-misses L1-dcache-stores L1-dcache-store-misses \
                      L1-dcache-prefetches L1-dcache-prefetch-misses L1-icache-loads L1-icache-load-misses \
                      LLC-loads LLC-load-misses LLC-stores LLC-store-misses LLC-prefetches LLC-prefetch-misses \
                      dTLB-loads dTLB-load-misses dTLB-stores dTLB-store-misses iTLB-loads iTLB-load-misses \
                      branch-loads branch-load-misses node-loads node-load-misses node-stores node-store-misses";

const ALIASES: [(&str, &str); 7] = [
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
    ("faults", "page-faults"),
    ("cs", "context-switches"),
    ("migrations", "cpu-migrations"),
];

/// All names of events that need no description of a PMU.
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    HARDWARE.split(' ').chain(SOFTWARE.split(' ')).chain(aliases).chain(CACHES.split(' '))
}

/// The one name of an event, whatever alias was written, without modifiers; `None` if it is no such event.
#[must_use]
pub fn canonical_event(name: &str) -> Option<&'static str> {
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    let main = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, main)| main);
    [HARDWARE, SOFTWARE, CACHES].into_iter().flat_map(|names| names.split(' ')).find(|known| *known == main)
}

/// What kind of event it is; `None` if no such event is known.
#[must_use]
pub fn event_class(event: &Event) -> Option<EventClass> {
    let Event::Named(text) = event else { return Some(EventClass::Breakpoint) };
    if let Some(name) = canonical_event(text) {
        let is_software = SOFTWARE.split(' ').any(|known| known == name);
        return Some(if is_software { EventClass::Software } else { EventClass::Hardware });
    }
    let raw = text.split_once(':').map_or(text.as_str(), |(raw, _)| raw);
    let digits = raw.strip_prefix('r').map(|digits| digits.strip_prefix("0x").unwrap_or(digits));
    let is_raw = digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if text.contains('/') || is_raw {
        return Some(EventClass::Hardware);
    }
    text.split_once(':').is_some_and(|(_, name)| !name.is_empty()).then_some(EventClass::Tracepoint)
}

/// How well a kernel's runner knows what really happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KernelTruth {
    /// To the digit: it is what the tasks were told to do.
    Exact,
    /// To within what beginning and ending a measurement costs.
    Near,
    /// Not at all.
    Unknown,
}

/// How well a kernel's runner knows what the tasks of a scenario really did.
pub(super) fn task_truth(event: &Event) -> KernelTruth {
    match event {
        Event::Breakpoint(_) => KernelTruth::Exact,
        Event::Named(text) => match canonical_event(text) {
            Some("page-faults" | "minor-faults") => KernelTruth::Exact,
            Some("task-clock" | "cpu-clock" | "instructions") => KernelTruth::Near,
            _ => KernelTruth::Unknown,
        },
    }
}

/// Whether beginning another program causes it, no task knows how often.
pub(super) fn hides_in_exec(event: &Event) -> bool {
    let hides = |name| matches!(name, "page-faults" | "minor-faults" | "instructions");
    matches!(event, Event::Named(text) if canonical_event(text).is_some_and(hides))
}

/// How well a kernel's runner knows what really happened on a whole CPU, where others run too.
pub(super) fn cpu_truth(event: &Event) -> KernelTruth {
    match event {
        Event::Named(text) if canonical_event(text) == Some("cpu-clock") => KernelTruth::Near,
        _ => KernelTruth::Unknown,
    }
}

pub(super) fn counts_time(event: &Event) -> bool {
    matches!(event, Event::Named(text) if matches!(canonical_event(text), Some("task-clock" | "cpu-clock")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_events() {
        for (text, class) in [
            ("cycles", Some(EventClass::Hardware)),
            ("cpu-cycles:u", Some(EventClass::Hardware)),
            ("faults", Some(EventClass::Software)),
            ("L1-dcache-load-misses", Some(EventClass::Hardware)),
            ("r1a8", Some(EventClass::Hardware)),
            ("cpu/event=1,umask=2/", Some(EventClass::Hardware)),
            ("sched:sched_switch", Some(EventClass::Tracepoint)),
            ("cylces", None),
            ("reset", None),
            ("sched:", None),
        ] {
            assert_eq!(event_class(&Event::Named(text.into())), class, "{text}");
        }
        assert_eq!(canonical_event("cs:u"), Some("context-switches"));
    }
}
