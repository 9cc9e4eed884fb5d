//! Who is on in which turn, as a chart: a line for each event, a column for each turn.
//!
//! **Invariant:** the environment is an argument.

use pmux_plan::{Capacity, EventFit, EventPlan, Plan};
use pmux_ui::text::has_utf8;

/// Columns where the width of the page is not known.
const WIDTH: usize = 100;

/// What a chart is drawn with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Signs {
    on: char,
    off: char,
}

impl Signs {
    /// Blocks, where the locale has them.
    pub(super) fn of_locale(variable: impl Fn(&str) -> Option<String>) -> Self {
        if has_utf8(variable) { Self { on: '█', off: '·' } } else { Self { on: '#', off: '.' } }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chart {
    pub(super) turns: usize,
    /// How many turns there are until it begins again, what comes before the repetition included.
    pub(super) all: usize,
    /// Each event that it shows, with its line.
    pub(super) lines: Vec<(usize, String)>,
}

/// Draws so many turns, or as many as there are until they repeat. `width` is that of the page, `margin` what stands before
/// the lines. `None` where no event takes turns and no number was given.
pub(super) fn draw(
    plan: &Plan,
    turns: Option<usize>,
    width: Option<usize>,
    margin: usize,
    signs: Signs,
) -> Option<Chart> {
    let lead_in = plan.pmus.iter().map(|pmu| pmu.lead_in).max().unwrap_or(0);
    let all = lead_in.saturating_add(plan.period());
    let columns = width.unwrap_or(WIDTH).saturating_sub(margin).max(8);
    let turns = match turns {
        Some(turns) if width.is_none() => turns,
        Some(turns) => turns.min(columns),
        None if all <= 1 => return None,
        None => all.min(columns),
    };
    // An event that needs no counter is on anyway.
    let counts = |event: &EventPlan| {
        let capacity = event.pmu.and_then(|pmu| plan.pmus.get(pmu)).map(|pmu| &pmu.capacity);
        matches!(event.fit, EventFit::Always) && matches!(capacity, Some(Capacity::Counters { .. }))
    };
    let is_shown = |event: &EventPlan| counts(event) || matches!(event.fit, EventFit::InTurns(_));
    let shown = plan.events.iter().enumerate().filter(|(_, event)| is_shown(event));
    let sign = |event, turn| if plan.is_on(event, turn) == Some(true) { signs.on } else { signs.off };
    let lines = shown.map(|(event, _)| (event, (0..turns).map(|turn| sign(event, turn)).collect()));
    Some(Chart { turns, all, lines: lines.collect() })
}
