//! The report, for programs: one object.
//!
//! | field | what |
//! |---|---|
//! | `host`, `kernel`, `writer`, `command_line` | what the recording tells of itself |
//! | `events` | each with `name`, `samples`, `period` (the sum) and `rows`; with `--latency` before each event `NAME (latency)` |
//! | `rows` | `comm`, `dso`, `symbol`, `cpu`, `thread`, `cgroup`, `parallelism` as far as rows are told apart by them; `self` and `children`, each with `period`, `samples`, `percent`; with `-g` the `calls` |
//! | `lost` | what is missing, in numbers |
//! | `broken_chains` | call chains that frame pointers do not find: `samples`, `of` how many, and by `modules` (`dso`, `samples`) |
//! | `snapshots` | what the flight recorder tells of each: `file`, `snapshot` (its number), `causes` and `marks` (`at_ns`, `what`), `first_ns`, `last_ns`, `lost` (`count`, `what`) |
//! | `notes` | what has to be said, in sentences |
//!
//! **Invariant:** a field that is not known is `null`, never 0 and never missing.

use super::rows::rows;
use super::{View, missing, percent, table};
use crate::input::manifest::Manifest;
use pmux::profile::{BrokenChains, Call, Inlining, Losses, Row, SortKey, Spot, Trees, Weight};
use serde_json::{Value as Json, json};
use std::io::{self, Write};

pub(super) fn print(view: &View<'_>, broken: &BrokenChains, out: &mut dyn Write) -> io::Result<()> {
    let about = &view.profile.about;
    let events: Vec<Json> = view.events().map(|event| event_of(view, event)).collect();
    let notes: Vec<&String> = view.profile.notes.iter().chain(view.symbols.notes()).collect();
    let object = json!({
        "host": about.host,
        "kernel": about.kernel,
        "writer": about.writer,
        "command_line": about.command_line,
        "events": events,
        "lost": losses(&view.profile.losses),
        "broken_chains": missing::broken_chains_json(view.profile, broken),
        "snapshots": view.manifests.iter().map(Manifest::json).collect::<Vec<_>>(),
        "notes": notes,
    });
    writeln!(out, "{object}")
}

pub(crate) fn losses(losses: &Losses) -> Json {
    json!({
        "records": losses.lost,
        "samples": losses.lost_samples,
        "broken": losses.broken,
        "of_no_event": losses.of_no_event,
        "late": losses.late,
        "cut_off_bytes": losses.cut_off_bytes,
        "cut_chains": losses.cut_chains,
    })
}

fn event_of(view: &View<'_>, event: usize) -> Json {
    let total = view.tally.total(event);
    let mut trees = view.hot.trees();
    let rows: Vec<Json> =
        rows(view, &[event]).list.iter().map(|line| row_of(view, event, &line.row, &mut trees)).collect();
    json!({
        "name": view.profile.events[event].name,
        "samples": total.samples,
        "period": total.period,
        "rows": rows,
    })
}

fn weight(view: &View<'_>, event: usize, weight: Weight) -> Json {
    json!({
        "period": weight.period,
        "samples": weight.samples,
        "percent": percent(weight, view.tally.total(event)),
    })
}

fn row_of(view: &View<'_>, event: usize, row: &Row, trees: &mut Trees<'_>) -> Json {
    let mut object = serde_json::Map::new();
    let group = view.hot.group(row.group);
    let names = &view.profile.names;
    for key in view.keys {
        let (name, value) = match key {
            SortKey::Comm => ("comm", json!(group.comm.map(|name| names.get(name)))),
            SortKey::Dso => {
                let name = match row.spot {
                    Spot::Function(id) => Some(view.profile.modules.get(view.symbols.function(id).module).path),
                    Spot::Program(name) => Some(name),
                    Spot::Any => None,
                };
                ("dso", json!(name.map(|name| names.get(name).trim_end())))
            }
            SortKey::Symbol => ("symbol", symbol(view, row.spot)),
            SortKey::Cpu => ("cpu", json!(group.cpu)),
            SortKey::Thread => {
                let thread = group.thread.map(|thread| view.profile.tasks.thread(thread));
                object.insert("tid".into(), json!(thread.map(|thread| thread.tid)));
                let process = thread.map(|thread| view.profile.tasks.process(thread.process));
                object.insert("pid".into(), json!(process.map(|process| process.pid)));
                ("thread", json!(thread.map(|thread| names.get(thread.name()))))
            }
            SortKey::Cgroup => {
                let path = group.cgroup.and_then(|id| view.profile.cgroups.get(&id));
                ("cgroup", json!(path.map(|path| names.get(*path))))
            }
            SortKey::Parallelism => ("parallelism", json!(group.parallelism)),
        };
        object.insert(name.into(), value);
    }
    object.insert("self".into(), weight(view, event, row.own));
    object.insert("children".into(), weight(view, event, row.total));
    if let Some(wanted) = view.graph {
        let tree = trees.tree(event, row, wanted.order, view.least_period(event, wanted));
        object.insert("calls".into(), calls(view, event, &tree.roots));
    }
    Json::Object(object)
}

fn symbol(view: &View<'_>, spot: Spot) -> Json {
    match spot {
        Spot::Function(id) => {
            let function = view.symbols.function(id);
            let text = match (&*function.name, function.inlining) {
                ("", _) => format!("{:#x}", function.start),
                (name, Inlining::Called) => name.to_owned(),
                (name, Inlining::Inlined) => format!("{name} (inlined)"),
            };
            json!(text)
        }
        _ => Json::Null,
    }
}

fn calls(view: &View<'_>, event: usize, list: &[Call]) -> Json {
    let one = |call: &Call| {
        json!({
            "name": table::spot_name(view, call.spot),
            "weight": weight(view, event, call.weight),
            "calls": calls(view, event, &call.next),
        })
    };
    Json::Array(list.iter().map(one).collect())
}
