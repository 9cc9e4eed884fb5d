//! `pmux plan`: how events would fit, before anything is counted.
//!
//! What it is: the events of the command line become a request to [`pmux_plan`], for this machine or another, and what
//! comes back is printed.
//! Read first: [`plan`]; then `planned_machine` (which machine), `request` (events to a request), `here` (this machine), and `page`,
//! `messages`, `data` (how it is printed).
//!
//! **Invariant:** who is on when, the engine decides: here it is only asked and told.

mod chart;
mod data;
mod here;
mod messages;
mod page;
mod planned_machine;
mod request;
#[cfg(test)]
mod tests;

use crate::failure::{ended, failed};
use crate::inspect::print;
use crate::options::exit_status;
use crate::options::plan::PlanOptions;
use crate::style::Style;
use planned_machine::PlannedMachine;
use pmux_plan::Plan;
use pmux_ui::text::in_locale;

/// Runs `pmux plan` and returns the exit status: [`exit_status::NEVER_FITS`] where an event can never be counted.
pub(crate) fn plan(options: &PlanOptions) -> u8 {
    let printed = |(text, status): (String, u8)| match print(&text) {
        exit_status::SUCCESS => status,
        other => other,
    };
    ended(text(options).map(printed).map_err(failed))
}

fn text(options: &PlanOptions) -> Result<(String, u8), String> {
    let style = Style::of_stdout(options.color);
    let (target, request) = PlannedMachine::find(options)?;
    let plan = pmux_plan::plan(&target.machine, &request).map_err(|error| error.to_string())?;
    let status = if plan.has_never() { exit_status::NEVER_FITS } else { exit_status::SUCCESS };
    let planned = Planned { target, plan, turns: options.ticks.map(|ticks| ticks as usize) };
    let text = match &options.separator {
        _ if options.json => data::json(&planned),
        Some(separator) => data::csv(&planned, if separator == "\\t" { "\t" } else { separator }),
        None => {
            let signs = chart::Signs::of_locale(|name| std::env::var(name).ok());
            in_locale(&page::compose(&planned, style, signs)).into_owned()
        }
    };
    Ok((text, status))
}

/// A plan, with what was asked for.
struct Planned {
    target: PlannedMachine,
    plan: Plan,
    /// How many turns are to be shown, where that was said.
    turns: Option<usize>,
}
