//! A plan in words.
//!
//! **Invariant:** names of events reach the text without control characters.

use super::Planned;
use crate::stderr::visible;
use pmux_plan::{Capacity, EventFit, GroupPlan, NeverReason, Plan, PmuPlan, Scope, Share};

/// `1 event`, `2 events`.
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `75 %`, `33.33 %`.
pub(super) fn percent(share: Share) -> String {
    let percent = share.percent();
    if percent.fract() == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

/// The answer, a sentence after the other.
pub(super) fn answer(planned: &Planned) -> Vec<String> {
    let plan = &planned.plan;
    let mut sentences: Vec<String> = (0..plan.pmus.len()).filter_map(|pmu| about_pmu(plan, pmu)).collect();
    let nowhere = plan.events.iter().filter(|event| event.pmu.is_none()).count();
    if nowhere > 0 {
        let (events, them) = (count(nowhere, "event"), them(nowhere));
        sentences.push(format!("{events} can never be counted: there is no PMU for {them}."));
    }
    if plan.scope == Scope::EveryCpu {
        let events = count(usize::try_from(plan.kernel_events()).unwrap_or(usize::MAX), "kernel event");
        sentences.push(format!("On {} that makes {events}.", count(plan.cpus as usize, "CPU")));
    }
    sentences
}

fn them(number: usize) -> &'static str {
    if number == 1 { "it" } else { "them" }
}

fn about_pmu(plan: &Plan, index: usize) -> Option<String> {
    let pmu = plan.pmus.get(index)?;
    let fits: Vec<&EventFit> =
        plan.events.iter().filter(|event| event.pmu == Some(index)).map(|event| &event.fit).collect();
    let events = count(pmu.events, "event");
    Some(match &pmu.capacity {
        Capacity::Plenty => {
            let kept = fits.iter().any(|fit| !matches!(fit, EventFit::Always));
            let (need, seen) = match (pmu.events, kept) {
                (1, false) => ("needs", "it is seen all the time"),
                (1, true) => ("needs", "it is seen with its group"),
                (_, false) => ("need", "they are seen all the time"),
                (_, true) => ("need", "they are seen all the time, or with their group"),
            };
            format!("{events} {need} no counter: {seen}.")
        }
        Capacity::Unknown => {
            let name = visible(&pmu.name);
            format!(
                "{events} of the PMU {name}: how many of those run at once is not known, so nothing is said of {}.",
                them(pmu.events)
            )
        }
        Capacity::Counters { fixed, .. } => {
            let limited = plan.pmus.iter().filter(|pmu| matches!(pmu.capacity, Capacity::Counters { .. })).count();
            let unit = if limited > 1 { format!("counter of {}", visible(&pmu.name)) } else { "counter".to_owned() };
            let one_kind = match fixed.len() {
                0 => String::new(),
                1 => " (1 of them for one kind of event only)".to_owned(),
                fixed => format!(" ({fixed} of them for one kind of event each)"),
            };
            needs(pmu, "event", &unit, &one_kind) + &outcome(&fits) + sharing(pmu, &fits)
        }
        Capacity::Registers { total, execute, data } => {
            let kinds =
                if execute + data > *total { String::new() } else { format!(" ({execute} for code, {data} for data)") };
            needs(pmu, "breakpoint", "debug register", &kinds) + &outcome(&fits)
        }
    })
}

/// `8 events need 8 counters (6 if equal ones shared one), 6 are there: `
fn needs(pmu: &PmuPlan, what: &str, unit: &str, note: &str) -> String {
    let need = if pmu.events == 1 { "needs" } else { "need" };
    let units = match unit.split_once(' ') {
        Some(("counter", of)) if pmu.events != 1 => format!("counters {of}"),
        _ if pmu.events != 1 => format!("{unit}s"),
        _ => unit.to_owned(),
    };
    let shared = match pmu.questions {
        questions if questions < pmu.events && matches!(pmu.capacity, Capacity::Counters { .. }) => {
            format!(" ({questions} if equal ones shared one)")
        }
        // Debug registers are not shared.
        _ => String::new(),
    };
    let there = pmu.capacity.total().unwrap_or(0);
    let are = if there == 1 { "is" } else { "are" };
    format!("{} {need} {} {units}{shared}, {there} {are} there{note}: ", count(pmu.events, what), pmu.events)
}

/// `they take turns, each is seen 75 % of the time.`
fn outcome(fits: &[&EventFit]) -> String {
    let never = fits.iter().filter(|fit| matches!(fit, EventFit::Never(_))).count();
    let shares: Vec<Share> =
        fits.iter().filter(|fit| !matches!(fit, EventFit::Never(_))).filter_map(|fit| fit.share()).collect();
    let by_size = |a: &&Share, b: &&Share| (a.on * b.of).cmp(&(b.on * a.of));
    let (Some(least), Some(most)) = (shares.iter().min_by(by_size), shares.iter().max_by(by_size)) else {
        let none = if never == 1 { "it can never be counted." } else { "none of them can ever be counted." };
        return none.to_owned();
    };
    let rest = if never > 0 { "the others " } else { "" };
    let seen = match (shares.len(), least.on == least.of) {
        (1, true) if never == 0 => "it is seen all the time".to_owned(),
        (1, _) => format!("{}is seen {}", if never > 0 { "the other one " } else { "it " }, of_the_time(*least)),
        (_, true) => format!("{}are seen all the time", if never > 0 { rest } else { "all " }),
        _ if least.on * most.of == most.on * least.of => {
            format!("{}take turns, each is seen {}", if never > 0 { rest } else { "they " }, of_the_time(*least))
        }
        _ => {
            let who = if never > 0 { rest } else { "they " };
            format!("{who}take turns and are seen between {} and {} of the time", percent(*least), percent(*most))
        }
    };
    match never {
        0 => format!("{seen}."),
        never => format!("{never} can never be counted, {seen}."),
    }
}

fn of_the_time(share: Share) -> String {
    if share.on == share.of { "all the time".to_owned() } else { format!("{} of the time", percent(share)) }
}

fn sharing(pmu: &PmuPlan, fits: &[&EventFit]) -> &'static str {
    let all = fits.iter().all(|fit| matches!(fit, EventFit::Always));
    let helps = !all && pmu.questions < pmu.events && pmu.fits_if_shared;
    if helps { " If equal events shared a counter, all would be on at once." } else { "" }
}

/// A group as it is written: `{a,b}`, or the event alone.
pub(super) fn group(plan: &Plan, group: usize) -> String {
    let Some(group) = plan.groups.get(group) else { return String::new() };
    let names: Vec<String> = plan.events[group.events.clone()].iter().map(|event| visible(&event.name)).collect();
    match (&group.name, &names[..]) {
        (Some(name), _) => format!("{}{{{}}}", visible(name), names.join(",")),
        (None, [name]) => name.clone(),
        (None, names) => format!("{{{}}}", names.join(",")),
    }
}

/// Why a group, or an event, is never counted, with its name in front.
pub(super) fn reason(plan: &Plan, who: &str, why: &NeverReason) -> String {
    let why = self::why(plan, why);
    let colon = if why.starts_with(NEEDS) { "" } else { ":" };
    format!("{who}{colon} {why}")
}

/// How a reason begins that follows a name like a verb.
const NEEDS: &str = "needs ";

pub(super) fn why(plan: &Plan, why: &NeverReason) -> String {
    let name = |event: &usize| plan.events.get(*event).map(|event| visible(&event.name)).unwrap_or_default();
    let pmu = |event: &usize| {
        let pmu = plan.events.get(*event).and_then(|event| plan.pmus.get(event.pmu?));
        pmu.map(|pmu| visible(&pmu.name)).unwrap_or_default()
    };
    match why {
        NeverReason::NoPmu { event } => format!("the machine has no PMU for {}", name(event)),
        NeverReason::NotCounted { event } => format!("the PMU {} has no counter for {}", pmu(event), name(event)),
        NeverReason::MixedPmus { events: [first, second] } => {
            let [(one, of_one), (other, of_other)] = [first, second].map(|event| (name(event), pmu(event)));
            format!("{one} is for the PMU {of_one} and {other} for {of_other}: a group can't have both")
        }
        NeverReason::TooFew { events, counters } => {
            let registers = events.first().and_then(|event| plan.pmus.get(plan.events.get(*event)?.pmu?));
            let registers = registers.is_some_and(|pmu| matches!(pmu.capacity, Capacity::Registers { .. }));
            let unit = if registers { "debug register" } else { "counter" };
            let whole = |group: &&GroupPlan| group.events.clone().eq(events.iter().copied());
            let (who, them) = match plan.groups.iter().find(whole) {
                Some(_) => (NEEDS.to_owned(), "it"),
                None => (format!("{} need ", and(&events.iter().map(name).collect::<Vec<_>>())), "them"),
            };
            let there = match counters {
                0 => format!("there is none for {them}"),
                1 => format!("there is 1 for {them}"),
                counters => format!("there are {counters} for {them}"),
            };
            format!("{who}{} at once, and {there}", count(events.len(), unit))
        }
        NeverReason::RegistersTaken { by } => {
            let names = and(&by.iter().map(name).collect::<Vec<_>>());
            format!("the debug registers are taken by {names}, and are never shared in time")
        }
        NeverReason::PinnedFirst { groups } => {
            let names = and(&groups.iter().map(|&group| self::group(plan, group)).collect::<Vec<_>>());
            let (is, leave) = if groups.len() == 1 { ("is", "leaves") } else { ("are", "leave") };
            format!("{names} {is} pinned: always on, and {leave} too little room")
        }
        NeverReason::Refused(error) => error.to_string(),
    }
}

/// `a`, `a and b`, `a, b and c`; of many the first ones.
fn and(names: &[String]) -> String {
    const SHOWN: usize = 6;
    match names {
        [] => "others".to_owned(),
        [name] => name.clone(),
        [names @ .., last] if names.len() < SHOWN => format!("{} and {last}", names.join(", ")),
        names => format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
    }
}
