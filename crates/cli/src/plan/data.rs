//! A plan for programs: JSON, and lines of fields.
//!
//! **Invariant:** numbers are exact: a share is so many turns out of so many.

use super::{Planned, messages};
use crate::stderr::visible;
use pmux_plan::{Capacity, EventFit, Plan, Scope};
use serde_json::{Value, json};

pub(super) fn json(planned: &Planned) -> String {
    let Planned { target, plan, .. } = planned;
    let object = json!({
        "machine": target.json(),
        "scope": match plan.scope { Scope::Task => "task", Scope::EveryCpu => "every-cpu" },
        "answer": messages::answer(planned),
        "kernel_events": plan.kernel_events(),
        "period": plan.period(),
        "pmus": plan.pmus.iter().map(pmu).collect::<Vec<_>>(),
        "groups": plan.groups.iter().map(|group| {
            json!({
                "name": group.name,
                "events": group.events.clone().collect::<Vec<_>>(),
                "pinned": group.demand.pinned,
                "exclusive": group.demand.exclusive,
                "broken_up": group.broken.as_ref().map(|why| messages::why(plan, why)),
            })
        }).collect::<Vec<_>>(),
        "events": (0..plan.events.len()).map(|index| event(plan, index)).collect::<Vec<_>>(),
        "turns": turns(planned),
    });
    format!("{object:#}\n")
}

fn capacity(capacity: &Capacity) -> Value {
    match capacity {
        Capacity::Counters { general, fixed } => {
            let fixed: Vec<_> = fixed.iter().map(|kind| kind.name()).collect();
            json!({ "kind": "counters", "general": general, "fixed": fixed })
        }
        Capacity::Registers { total, execute, data } => {
            json!({ "kind": "debug-registers", "total": total, "execute": execute, "data": data })
        }
        Capacity::Plenty => json!({ "kind": "plenty" }),
        Capacity::Unknown => json!({ "kind": "unknown" }),
    }
}

fn pmu(pmu: &pmux_plan::PmuPlan) -> Value {
    let limited = pmu.capacity != Capacity::Plenty;
    json!({
        "name": pmu.name,
        "room": capacity(&pmu.capacity),
        "events": pmu.events,
        "counters_needed": limited.then_some(pmu.events),
        "counters_needed_if_equal_events_shared": limited.then_some(pmu.questions),
        "fits_if_equal_events_shared": pmu.capacity.total().map(|_| pmu.fits_if_shared),
        "period": pmu.period,
        "lead_in": pmu.lead_in,
    })
}

fn event(plan: &Plan, index: usize) -> Value {
    let event = &plan.events[index];
    let equals = plan.events.iter().position(|other| other.question == event.question);
    let share = event.fit.share();
    let why = match &event.fit {
        EventFit::Never(why) => Some(messages::why(plan, why)),
        _ => None,
    };
    json!({
        "name": event.name,
        "group": event.group,
        "pmu": event.pmu.and_then(|pmu| plan.pmus.get(pmu)).map(|pmu| &pmu.name),
        "equals": equals.filter(|&first| first != index),
        "fate": fit(&event.fit),
        "share": share.map(|share| json!({ "on": share.on, "of": share.of })),
        "percent": share.map(pmux_plan::Share::percent),
        "why": why,
    })
}

const fn fit(fit: &EventFit) -> &'static str {
    match fit {
        EventFit::Always => "always",
        EventFit::InTurns(_) => "in-turns",
        EventFit::Never(_) => "never",
        EventFit::Unknown => "unknown",
    }
}

/// By turn, the events that are on; those of which nothing is known are in no turn. No more than a reader can want.
fn turns(planned: &Planned) -> Vec<Vec<usize>> {
    const MOST: usize = 10_000;
    let plan = &planned.plan;
    let lead_in = plan.pmus.iter().map(|pmu| pmu.lead_in).max().unwrap_or(0);
    let turns = planned.turns.unwrap_or_else(|| lead_in.saturating_add(plan.period())).min(MOST);
    let on = |turn| (0..plan.events.len()).filter(|&event| plan.is_on(event, turn) == Some(true)).collect();
    (0..turns).map(on).collect()
}

/// An event a line. Names are not quoted: choose a separator that is not in them.
pub(super) fn csv(planned: &Planned, separator: &str) -> String {
    let plan = &planned.plan;
    let mut out = String::new();
    for event in &plan.events {
        let group = plan.groups.get(event.group).and_then(|group| group.name.clone());
        let group = group.unwrap_or_else(|| (event.group + 1).to_string());
        let pmu = event.pmu.and_then(|pmu| plan.pmus.get(pmu)).map(|pmu| pmu.name.clone()).unwrap_or_default();
        let share = event.fit.share();
        let number = |number: Option<usize>| number.map(|number| number.to_string()).unwrap_or_default();
        let why = match &event.fit {
            EventFit::Never(why) => messages::why(plan, why),
            _ => String::new(),
        };
        let fields = [
            visible(&event.name),
            visible(&group),
            visible(&pmu),
            fit(&event.fit).to_owned(),
            share.map(|share| format!("{:.2}", share.percent())).unwrap_or_default(),
            number(share.map(|share| share.on)),
            number(share.map(|share| share.of)),
            why,
        ];
        out.push_str(&fields.join(separator));
        out.push('\n');
    }
    out
}
