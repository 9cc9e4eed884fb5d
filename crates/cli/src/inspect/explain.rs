//! `pmux explain`.
//!
//! **Invariant:** the reason is that of an attempt on the target that was named.

use super::{print, print_page};
use crate::failure::{ended, failed};
use crate::options::exit_status;
use crate::options::inspect::ExplainOptions;
use crate::stat::{cpu_choice, error_message};
use crate::style::{Ink, Style};
use pmux::event::EventList;
use pmux::{Backend, Event, Probe, Refusal, Session, Target};
use serde_json::{Value, json};

/// Runs `pmux explain` and returns the exit status: not 0 where the event can't be opened.
pub(crate) fn explain(options: &ExplainOptions) -> u8 {
    ended(try_explain(options).map_err(failed))
}

fn try_explain(options: &ExplainOptions) -> Result<u8, String> {
    let session = Session::new().map_err(|error| error_message(&error))?;
    let list = EventList::parse(&[&options.event], session.catalog()).map_err(|error| error.to_string())?;
    let style = Style::of_stdout(options.color);
    let mut out = String::new();
    let mut all_open = true;
    for event in list.events() {
        let (target, words) = target(options, &session, event)?;
        let probe = session.probe(event, &target).map_err(|error| error_message(&error))?;
        all_open &= !matches!(probe, Probe::Refused(_));
        if options.json {
            out.push_str(&format!("{}\n", as_json(event, &words, &probe, &session)));
        } else {
            describe(&mut out, event, &words, &probe, &session, style);
        }
    }
    let status = if options.json { print(&out) } else { print_page(&out) };
    Ok(if status == exit_status::SUCCESS && !all_open { exit_status::FAILED } else { status })
}

fn target(options: &ExplainOptions, session: &Session, event: &Event) -> Result<(Target<'static>, String), String> {
    let ids = |ids: &[i32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Ok(if !options.pid.is_empty() {
        (Target::Processes(options.pid.clone()), format!("process {}", ids(&options.pid)))
    } else if !options.tid.is_empty() {
        (Target::Threads(options.tid.clone()), format!("thread {}", ids(&options.tid)))
    } else if options.all_cpus {
        (Target::Cpus(cpu_choice(None)?), "every CPU".to_owned())
    } else if let Some(list) = &options.cpu {
        (Target::Cpus(cpu_choice(Some(list))?), format!("CPU {list}"))
    } else {
        let target = session.easiest_target(event);
        let words =
            if matches!(target, Target::CurrentThread) { "a process of yours" } else { "one CPU of its package" };
        (target, words.to_owned())
    })
}

fn describe(out: &mut String, event: &Event, target: &str, probe: &Probe, session: &Session, style: Style) {
    let mut line = |label: &str, text: &str, ink: Ink| {
        style.paint(out, Ink::Faint, &format!("{label:>10}  "));
        style.paint(out, ink, text);
        out.push('\n');
    };
    line("event", &event.name, Ink::Strong);
    if !event.canonical.is_empty() && event.canonical != event.name {
        line("same as", &event.canonical, Ink::Plain);
    }
    let counted_by = match event.counted_by(session.catalog()) {
        Some(pmus) => format!("the kernel, PMU {}", pmus.join(" or ")),
        None => "pmux itself, from wait4 and /proc".to_owned(),
    };
    line("counted by", &counted_by, Ink::Plain);
    line("encoding", &event.encoding_on(session.catalog()), Ink::Plain);
    if !event.unit.is_empty() {
        line("unit", &format!("{} (the count times {})", event.unit, event.scale), Ink::Plain);
    }
    line("tried on", target, Ink::Plain);
    match probe {
        Probe::Opens => line("opens", "yes", Ink::Plain),
        Probe::OpensChanged(change) => line("opens", &format!("yes, but {change}"), Ink::Notice),
        Probe::Refused(refusal) => {
            line("opens", "no", Ink::Bad);
            for refusal in reasons(refusal, session) {
                line("because", &refusal.summary, Ink::Plain);
            }
            for help in reasons(refusal, session).flat_map(|refusal| &refusal.help) {
                line("what helps", help, Ink::Plain);
            }
        }
    }
    out.push('\n');
}

/// Why it is refused, and why the kernel's events are, where that is another reason.
fn reasons<'r>(refusal: &'r Refusal, session: &'r Session) -> impl Iterator<Item = &'r Refusal> {
    let why = match session.backend() {
        Backend::Usage { why } if why.summary != refusal.summary => Some(&**why),
        _ => None,
    };
    [refusal].into_iter().chain(why)
}

fn as_json(event: &Event, target: &str, probe: &Probe, session: &Session) -> Value {
    let refusals: Vec<&Refusal> = match probe {
        Probe::Refused(refusal) => reasons(refusal, session).collect(),
        _ => Vec::new(),
    };
    json!({
        "event": event.name,
        "same_as": event.canonical,
        "pmus": event.counted_by(session.catalog()),
        "encoding": event.encoding_on(session.catalog()),
        "unit": event.unit,
        "scale": event.scale,
        "tried_on": target,
        "opens": refusals.is_empty(),
        "changed": if let Probe::OpensChanged(change) = probe { Some(change.to_string()) } else { None },
        "reasons": refusals.iter().map(|refusal| &refusal.summary).collect::<Vec<_>>(),
        "what_helps": refusals.iter().flat_map(|refusal| &refusal.help).collect::<Vec<_>>(),
    })
}
