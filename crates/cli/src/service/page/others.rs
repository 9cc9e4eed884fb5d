//! The processes that hold events without the service.
//!
//! **Invariant:** what a process is called reaches the terminal without control characters.

use super::{L, R, StatusPage, list, number, some_of, words};
use pmux::abi::AttrFlags;
use pmux::server_api::foreign::ForeignEvents;
use pmux::{BackendChoice, CpuList, Holder, Session, holders_and_unseen, watchdog_counts};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the machine says of them, but for the service. What their events count is said where this user may load BPF programs.
pub(in crate::service) fn survey(service: Option<i64>) -> Value {
    let (holders, unseen) = holders_and_unseen();
    // For the names of tracepoints.
    let look = ForeignEvents::open().zip(Session::with_backend(BackendChoice::Usage).ok());
    let holder = |Holder { pid, command, events }: Holder| {
        let counts = look.as_ref().map(|look| counted(look, pid, &events));
        json!({ "process": pid, "command": command, "events": events.len(), "counts": counts })
    };
    let others = holders.into_iter().filter(|holder| Some(i64::from(holder.pid)) != service);
    let others: Vec<_> = others.map(holder).collect();
    json!({ "list": others, "unseen": unseen, "nmi_watchdog": watchdog_counts() })
}

/// What the events of a process count: equal ones of several CPUs are one line.
fn counted((foreign, session): &(ForeignEvents, Session), process: i32, files: &[i32]) -> Vec<Value> {
    let mut places: BTreeMap<(String, Option<i32>), Vec<u32>> = BTreeMap::new();
    for event in files.iter().filter_map(|&file| foreign.look(process, file)) {
        let mut attr = event.attr;
        if event.task.is_none() {
            // No task inherits one of a CPU.
            attr.flags.remove(AttrFlags::INHERIT);
        }
        let cpus = places.entry((session.describe(&attr), event.task)).or_default();
        cpus.extend(event.cpu);
    }
    let line = |((event, task), cpus): ((String, Option<i32>), Vec<u32>)| {
        let cpus = Some(CpuList::from_iter(cpus).to_string()).filter(|cpus| !cpus.is_empty());
        json!({ "event": event, "task": task, "cpus": cpus })
    };
    places.into_iter().map(line).collect()
}

/// An event with its place, for people.
fn with_place(counted: &Value) -> String {
    let task = counted["task"].as_i64().map(|task| format!("task {task}"));
    let cpus = counted["cpus"].as_str().map(|cpus| {
        let word = if cpus.contains([',', '-']) { "CPUs" } else { "CPU" };
        format!("{word} {cpus}")
    });
    let place = task.into_iter().chain(cpus).collect::<Vec<_>>().join(" on ");
    format!("{} of {place}", words(&counted["event"]))
}

impl StatusPage {
    pub(super) fn others(&mut self, others: &Value) {
        if others.is_null() {
            return;
        }
        let holders = list(&others["list"]);
        self.title(&format!("other processes that hold events: {}", holders.len()));
        let row = |holder: &Value| {
            let counts: Vec<_> = list(&holder["counts"]).iter().map(with_place).collect();
            [
                holder["process"].as_i64().unwrap_or_default().to_string(),
                words(&holder["command"]),
                number(&holder["events"]).to_string(),
                if counts.is_empty() { "?".to_owned() } else { some_of(&counts) },
            ]
        };
        let rows: Vec<_> = holders.iter().map(row).collect();
        self.table(["process", "command", "events", "which"], [R, L, R, L], &rows);
        if others["nmi_watchdog"] == true {
            self.line("kernel", "its NMI watchdog holds a counter of each CPU (kernel.nmi_watchdog=0 gives it back)");
        }
        if let unseen @ 1.. = number(&others["unseen"]) {
            self.line("unseen", &format!("{unseen} processes, which only root may look into"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page;
    use crate::style::{Color, Grouping, Style};
    use serde_json::json;

    #[test]
    fn others_are_listed_with_what_they_count() {
        let cpus = json!({ "event": "page-faults", "task": null, "cpus": "0-1" });
        let both = json!({ "event": "cycles:u", "task": 77, "cpus": "3" });
        let agent = json!({ "process": 812, "command": "ag\u{1b}ent", "events": 3, "counts": [cpus, both] });
        let hidden = json!({ "process": 9, "command": "perf", "events": 1, "counts": null });
        let others = json!({ "list": [agent, hidden], "unseen": 2, "nmi_watchdog": true });
        let style = Style { color: Color::Off, width: None, grouping: Grouping::None };
        let expected = "\
other processes that hold events: 2
  process  command         events  which
      812  ag\\u{1b}ent       3  page-faults of CPUs 0-1, cycles:u of task 77 on CPU 3
        9  perf                 1  ?
      kernel  its NMI watchdog holds a counter of each CPU (kernel.nmi_watchdog=0 gives it back)
      unseen  2 processes, which only root may look into
";
        let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(plain(&page(&json!({ "others": others }), style)), plain(expected));
    }
}
