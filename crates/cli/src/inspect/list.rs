//! `pmux list`.
//!
//! **Invariant:** every event is opened to see whether it can be, but for tracepoints: closing one makes the kernel
//! wait for all CPUs, so one of them stands for all.

use super::{print, print_page};
use crate::options::exit_status;
use crate::options::inspect::ListOptions;
use crate::stat::backend_line;
use crate::stderr::report_error;
use crate::style::{Ink, Style};
use pmux::event::list::{EventKind, Filter, Listed, Listing, NameForm, list as listing};
use pmux::{Event, Probe, Session};
use std::fmt::Write as _;

#[derive(Clone)]
enum Openness {
    Opens,
    /// In another way, in a sentence.
    Changed(String),
    Refused(String),
    /// A template; there is nothing to open.
    Unknown,
}

impl Openness {
    /// Why it does not open as it is, with the title of the list of such reasons.
    fn reason(&self) -> Option<(&'static str, &String)> {
        match self {
            Self::Changed(how) => Some(("changed", how)),
            Self::Refused(why) => Some(("why not", why)),
            Self::Opens | Self::Unknown => None,
        }
    }
}

pub(crate) fn list(options: &ListOptions) -> u8 {
    let session = match Session::new() {
        Ok(session) => session,
        Err(error) => return report_error(&error.to_string(), exit_status::FAILED),
    };
    let filter = options.pattern.as_deref().map_or(Filter::All, Filter::parse);
    let found = listing(session.catalog(), &filter);
    if let Some(pattern) = options.pattern.as_deref().filter(|_| found.events.is_empty()) {
        let gaps: Vec<_> = found.gaps.iter().map(ToString::to_string).collect();
        let text = match &gaps[..] {
            [] => format!("no event matches '{pattern}': `pmux list` shows all"),
            gaps => format!("no event that can be listed matches '{pattern}': {}", gaps.join("; ")),
        };
        return report_error(&text, exit_status::FAILED);
    }
    let rows = probed(&session, &found);
    if options.json {
        return print(&json(&rows, &found, &session));
    }
    let mut text = table(&rows, &found, Style::of_stdout(options.color));
    if let Some(line) = backend_line(&session) {
        text.push('\n');
        text.push_str(&line);
        text.push('\n');
    }
    print_page(&text)
}

fn probed<'l>(session: &Session, found: &'l Listing) -> Vec<(&'l Listed, Openness)> {
    let mut tracepoints: Option<Openness> = None;
    let mut openness = |listed: &Listed| match (listed.form, listed.kind) {
        (NameForm::Template, _) => Openness::Unknown,
        (_, EventKind::Tracepoint) => tracepoints.get_or_insert_with(|| probe(session, listed)).clone(),
        _ => probe(session, listed),
    };
    found.events.iter().map(|listed| (listed, openness(listed))).collect()
}

fn probe(session: &Session, listed: &Listed) -> Openness {
    let event = match Event::parse_with(&listed.name, session.catalog()) {
        Ok(event) => event,
        Err(error) => return Openness::Refused(error.to_string()),
    };
    match session.probe(&event, &session.easiest_target(&event)) {
        Ok(Probe::Opens) => Openness::Opens,
        Ok(Probe::OpensChanged(how)) => Openness::Changed(how),
        Ok(Probe::Refused(refusal)) => Openness::Refused(refusal.summary),
        Err(error) => Openness::Refused(error.to_string()),
    }
}

fn table(rows: &[(&Listed, Openness)], found: &Listing, style: Style) -> String {
    let mut out = String::new();
    let widest = rows.iter().map(|(listed, _)| shown_name(listed).chars().count()).max().unwrap_or_default().min(44);
    let mut kind = None;
    for (listed, openness) in rows {
        if kind != Some(listed.kind) {
            if kind.is_some() {
                out.push('\n');
            }
            kind = Some(listed.kind);
            style.paint(&mut out, Ink::Strong, &format!("{} events", listed.kind.name()));
            out.push('\n');
        }
        let (mark, ink) = match openness {
            Openness::Opens | Openness::Changed(_) => ("yes", Ink::Plain),
            Openness::Refused(_) => ("no ", Ink::Faint),
            Openness::Unknown => ("   ", Ink::Plain),
        };
        out.push_str("  ");
        style.paint(&mut out, ink, mark);
        out.push_str("  ");
        style.paint(&mut out, ink, &format!("{:widest$}", shown_name(listed)));
        out.push_str("  ");
        style.paint(&mut out, Ink::Faint, &listed.description);
        out.push('\n');
    }
    reasons(&mut out, rows, "changed", style);
    reasons(&mut out, rows, "why not", style);
    for gap in &found.gaps {
        let _ = writeln!(out, "\nNot listed: {gap}");
    }
    out
}

fn shown_name(listed: &Listed) -> String {
    let mut name = listed.name.clone();
    for alias in &listed.aliases {
        name.push_str(" or ");
        name.push_str(alias);
    }
    name
}

/// So many events that have one reason are named.
const NAMED: usize = 3;

/// Each reason once, with the number of events that have it.
fn reasons(out: &mut String, rows: &[(&Listed, Openness)], title: &str, style: Style) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (listed, openness) in rows {
        let Some((_, why)) = openness.reason().filter(|(of, _)| *of == title) else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(&listed.name),
            None => reasons.push((why, vec![&listed.name])),
        }
    }
    if !reasons.is_empty() {
        out.push('\n');
        style.paint(out, Ink::Strong, title);
        out.push('\n');
    }
    for (why, names) in reasons {
        let few = if names.len() <= NAMED { format!(" ({})", names.join(", ")) } else { String::new() };
        let _ = writeln!(out, "  {:5} × {why}{few}", names.len());
    }
}

fn json(rows: &[(&Listed, Openness)], found: &Listing, session: &Session) -> String {
    let event = |(listed, openness): &(&Listed, Openness)| {
        let opens = match openness {
            Openness::Opens | Openness::Changed(_) => Some(true),
            Openness::Refused(_) => Some(false),
            Openness::Unknown => None,
        };
        serde_json::json!({
            "name": listed.name,
            "aliases": listed.aliases,
            "kind": listed.kind.name(),
            "description": listed.description,
            "encoding": listed.encoding,
            "opens": opens,
            "reason": openness.reason().map(|(_, why)| why),
        })
    };
    let events: Vec<_> = rows.iter().map(event).collect();
    let gaps: Vec<_> = found.gaps.iter().map(ToString::to_string).collect();
    let note = backend_line(session);
    format!("{:#}\n", serde_json::json!({ "events": events, "not_listed": gaps, "note": note }))
}
