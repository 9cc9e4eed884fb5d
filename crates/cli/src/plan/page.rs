//! A plan as a page: the answer, the events, the turns, and who can never be counted.
//!
//! **Invariant:** a pure function of the plan; columns are padded before they are painted.

use super::chart::{self, Signs};
use super::{Planned, messages};
use crate::stderr::visible;
use crate::style::{Ink, Style};
use pmux_plan::{Capacity, EventFit, GroupPlan, Plan, Share};

/// The widest column of names.
const WIDEST: usize = 40;

pub(super) fn compose(planned: &Planned, style: Style, signs: Signs) -> String {
    let mut out = String::new();
    style.paint(&mut out, Ink::Strong, &messages::answer(planned).join("\n"));
    out.push_str("\n\n");
    table(&mut out, planned, style);
    turns(&mut out, planned, style, signs);
    never(&mut out, &planned.plan, style);
    out
}

/// A cell: its text, and how it looks.
type PageCell = (String, Ink);

fn table(out: &mut String, planned: &Planned, style: Style) {
    let plan = &planned.plan;
    let plain = |text: &str| (text.to_owned(), Ink::Faint);
    let mut rows: Vec<[PageCell; 6]> = vec![["", "event", "group", "counter", "share", "note"].map(plain)];
    for (number, event) in plan.events.iter().enumerate() {
        let (share, ink) = share(&event.fit);
        rows.push([
            ((number + 1).to_string(), Ink::Faint),
            (visible(&event.name), Ink::Plain),
            (group(plan, event.group), Ink::Plain),
            (counter(plan, number), Ink::Plain),
            (share, ink),
            (note(planned, number), Ink::Faint),
        ]);
    }
    let width = |column: usize| {
        let widest = rows.iter().map(|row| row[column].0.chars().count()).max().unwrap_or(0);
        if column == 1 { widest.min(WIDEST) } else { widest }
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let last = row.iter().rposition(|(text, _)| !text.is_empty()).unwrap_or(0);
        for (column, (text, ink)) in row.into_iter().enumerate().take(last + 1) {
            let width = if column == last { 0 } else { widths[column] };
            let padded = if column == 0 { format!(" {text:>width$}") } else { format!("  {text:width$}") };
            style.paint(out, ink, &padded);
        }
        out.push('\n');
    }
}

fn share(fit: &EventFit) -> (String, Ink) {
    match fit {
        EventFit::Always => ("100 %".to_owned(), Ink::Plain),
        EventFit::InTurns(share @ Share { on, of }) => {
            let ink = if on * 2 >= *of { Ink::Notice } else { Ink::Poor };
            (format!("{} ({on}/{of})", messages::percent(*share)), ink)
        }
        EventFit::Never(_) => ("never".to_owned(), Ink::Bad),
        EventFit::Unknown => ("unknown".to_owned(), Ink::Plain),
    }
}

/// The name of a group, or its number; a single event has none.
fn group(plan: &Plan, group: usize) -> String {
    match plan.groups.get(group) {
        Some(GroupPlan { name: Some(name), .. }) => visible(name),
        Some(found) if found.events.len() > 1 => {
            let before = plan.groups[..group].iter().filter(|group| group.events.len() > 1).count();
            format!("#{}", before + 1)
        }
        _ => "-".to_owned(),
    }
}

/// What it takes.
fn counter(plan: &Plan, event: usize) -> String {
    let Some(pmu) = plan.events[event].pmu.and_then(|pmu| plan.pmus.get(pmu)) else { return "no PMU".to_owned() };
    match pmu.capacity {
        Capacity::Counters { .. } => format!("1 of {}", visible(&pmu.name)),
        Capacity::Registers { .. } => "1 debug register".to_owned(),
        Capacity::Plenty => "none".to_owned(),
        Capacity::Unknown => format!("{}: unknown", visible(&pmu.name)),
    }
}

fn note(planned: &Planned, number: usize) -> String {
    let plan = &planned.plan;
    let event = &plan.events[number];
    let mut notes = Vec::new();
    let first = plan.events.iter().position(|other| other.question == event.question);
    let limited = event.pmu.and_then(|pmu| plan.pmus.get(pmu)).is_some_and(|pmu| pmu.capacity != Capacity::Plenty);
    if let Some(first) = first.filter(|&first| first != number && limited) {
        notes.push(format!("equals {}", first + 1));
    }
    let group = &plan.groups[event.group];
    if number == group.events.start {
        let demand = group.demand;
        notes.extend(demand.pinned.then(|| "pinned".to_owned()));
        notes.extend(demand.exclusive.then(|| "exclusive".to_owned()));
        if let Some(why) = &group.broken {
            notes.push(format!("broken up: {}", messages::reason(plan, "the group", why)));
        }
    }
    notes.join(", ")
}

fn turns(out: &mut String, planned: &Planned, style: Style, signs: Signs) {
    let plan = &planned.plan;
    let digits = plan.events.len().to_string().len();
    let name = |event: usize| format!(" {:>digits$}  {}", event + 1, visible(&plan.events[event].name));
    let margin = (0..plan.events.len()).map(|event| name(event).chars().count()).max().unwrap_or(0).min(WIDEST) + 2;
    let chart = chart::draw(plan, planned.turns, style.width, margin, signs);
    let Some(chart) = chart.filter(|chart| !chart.lines.is_empty()) else { return };
    let title = match (chart.turns, chart.all) {
        (shown, all) if shown < all => format!("the first {shown} of {all} turns"),
        (shown, all) if shown > all => format!("{shown} turns; they repeat after {all}"),
        (_, 1) => "the turn: no group waits".to_owned(),
        (_, all) => format!("{all} turns, and then again from the first"),
    };
    out.push('\n');
    style.paint(out, Ink::Strong, &title);
    out.push('\n');
    for (event, line) in chart.lines {
        out.push_str(&format!("{:margin$}", cut(&name(event), margin - 2)));
        out.push_str(&line);
        out.push('\n');
    }
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(2)).chain("..".chars()).collect()
}

/// Each reason once, with the group that it is for.
fn never(out: &mut String, plan: &Plan, style: Style) {
    let mut reasons: Vec<String> = Vec::new();
    for event in &plan.events {
        let EventFit::Never(why) = &event.fit else { continue };
        let whole = plan.groups[event.group].broken.is_none();
        let who = if whole { messages::group(plan, event.group) } else { visible(&event.name) };
        let reason = messages::reason(plan, &who, why);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        return;
    }
    out.push('\n');
    style.paint(out, Ink::Strong, "never");
    out.push('\n');
    for reason in reasons {
        out.push_str("  ");
        style.paint(out, Ink::Bad, &reason);
        out.push('\n');
    }
}
