//! What has to be said of events that take turns (`--mux=engine`).
//!
//! Read first: [`contention`].
//!
//! **Invariant:** time in which another program or the kernel had a counter is told, event by event.

use super::plan::Plan;
use super::report::Note;
use pmux::{Counters, Holder, Nanos, PmuCapacity};

/// A smaller part of an event's turns, or less time, is what switching takes.
const SMALLEST_SHARE: f64 = 0.001;
const SMALLEST_LOSS: Nanos = Nanos(1_000_000);
/// More processes than this are counted instead of named.
const HOLDERS_NAMED: usize = 4;

/// How many counters were found, a line for each PMU.
pub(super) fn capacities(counters: &Counters) -> Vec<String> {
    counters.pmu_capacities().iter().map(capacity).collect()
}

fn capacity(capacity: &PmuCapacity) -> String {
    let PmuCapacity { pmu, counters, shared, events, .. } = capacity;
    let mut text = format!("{pmu}: {counters} of these events run at once");
    for (name, capacity) in events.iter().filter(|(_, capacity)| capacity.own > 0) {
        let counters = if capacity.own == 1 { "a counter".to_owned() } else { format!("{} counters", capacity.own) };
        text.push_str(&format!(", {name} has {counters} of its own"));
    }
    for (name, capacity) in events.iter().filter(|(_, capacity)| capacity.alone < shared + capacity.own) {
        text.push_str(&format!(", {name} only {} times", capacity.alone));
    }
    text
}

/// Where the kernel had to multiplex a second time: a note for each event, and what is behind it.
pub(super) fn contention(plan: &Plan, counters: &[Counters]) -> Vec<Note> {
    let mut notes = Vec::new();
    for (part, counters) in plan.parts.iter().zip(counters) {
        for (local, &event) in part.columns.iter().enumerate() {
            let Some(contention) = counters.contention(local) else { continue };
            let share = contention.lost.0 as f64 / contention.wanted.0.max(1) as f64;
            if share >= SMALLEST_SHARE && contention.lost >= SMALLEST_LOSS {
                let text = format!("for {:.1} % of its turns another program had its counter", share * 100.0);
                notes.push(Note::measurement(text).of(event));
            }
        }
    }
    // Where no event takes turns, nothing was changed either.
    let capacities = counters.iter().filter(|counters| counters.takes_turns()).flat_map(Counters::pmu_capacities);
    let fewer: Vec<_> = capacities.filter(|capacity| capacity.limit < capacity.counters).collect();
    if !(notes.is_empty() && fewer.is_empty()) {
        notes.push(cause(&fewer, &pmux::holders(), pmux::watchdog_counts()));
    }
    notes
}

/// What came of it, who it may have been, and what helps; `fewer` are the PMUs of which less is put on since.
fn cause(fewer: &[PmuCapacity], holders: &[Holder], watchdog: bool) -> Note {
    let mut text = "another program uses counters: the kernel multiplexed what pmux had multiplexed already".to_owned();
    for PmuCapacity { pmu, counters, limit, .. } in fewer {
        text.push_str(&format!("; of {pmu} only {limit} events at once instead of {counters} were on in the end"));
    }
    let mut help = Vec::new();
    if watchdog {
        help.push("as root, `sysctl kernel.nmi_watchdog=0` frees the counter that the watchdog holds".to_owned());
    }
    if !holders.is_empty() {
        let mut names: Vec<_> =
            holders.iter().take(HOLDERS_NAMED).map(|h| format!("{} ({})", h.command, h.pid)).collect();
        if holders.len() > HOLDERS_NAMED {
            names.push(format!("{} more", holders.len() - HOLDERS_NAMED));
        }
        help.push(format!("end what else has events open: {}", names.join(", ")));
    }
    if help.is_empty() {
        let how = "programs that have events open can be looked for, as root: `ls -l /proc/*/fd | grep perf_event`";
        help.push(how.to_owned());
    }
    Note { help, ..Note::measurement(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::EventCapacity;

    fn seven() -> PmuCapacity {
        let capacity = |alone, own| EventCapacity { alone, own };
        PmuCapacity {
            pmu: "cores".to_owned(),
            counters: 7,
            limit: 5,
            shared: 6,
            events: vec![
                ("cycles".to_owned(), capacity(7, 1)),
                ("branches".to_owned(), capacity(6, 0)),
                ("loads".to_owned(), capacity(2, 0)),
            ],
        }
    }

    #[test]
    fn counters_are_told_in_a_line() {
        assert_eq!(
            capacity(&seven()),
            "cores: 7 of these events run at once, cycles has a counter of its own, loads only 2 times"
        );
    }

    #[test]
    fn competing_counters_are_named() {
        let holder = |pid| Holder { pid, command: "perf".to_owned(), events: vec![3] };
        let note = cause(&[seven()], &[holder(7), holder(8)], true);
        assert!(note.text.ends_with("of cores only 5 events at once instead of 7 were on in the end"), "{}", note.text);
        assert!(note.help[0].contains("nmi_watchdog=0"));
        assert_eq!(note.help[1], "end what else has events open: perf (7), perf (8)");
        let many: Vec<_> = (0..9).map(holder).collect();
        assert!(cause(&[], &many, false).help[0].ends_with("perf (3), 5 more"));
        assert!(cause(&[], &[], false).help[0].contains("perf_event"));
    }
}
