//! `pmux plan`: how events would fit, before anything is counted.
//!
//! **Invariant:** plain data, and the one rule that clap can't say.

use super::refuse_first;
use crate::style::ColorChoice;
use clap::Args;
use clap::builder::PossibleValuesParser;

/// The most turns that are shown.
const MOST_TURNS: u64 = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PlanOptions {
    /// Events to plan, separated by commas; may be given again. See `pmux list`
    #[arg(short, long = "event", value_name = "EVENT,…", allow_hyphen_values = true)]
    pub(crate) events: Vec<String>,

    /// Plan for every CPU; without it, for a task
    #[arg(short, long = "all-cpus")]
    pub(crate) all_cpus: bool,

    /// Plan for a machine whose hardware PMU has N counters that take any event
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=64))]
    pub(crate) counters: Option<u8>,

    /// Plan for a machine with N CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) cpus: Option<u32>,

    /// Plan for a machine of this kind
    #[arg(long, value_name = "PROFILE", value_parser = PossibleValuesParser::new(pmux_plan::machine::profiles::NAMES))]
    pub(crate) machine: Option<String>,

    /// Show N turns, instead of all until they repeat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_TURNS))]
    pub(crate) ticks: Option<u64>,

    /// Print JSON
    #[arg(short, long = "json", conflicts_with = "separator")]
    pub(crate) json: bool,

    /// Print fields separated by SEP, an event a line: event, group, PMU, what becomes of it, share in %, turns on, turns of
    /// a period, why not
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", allow_hyphen_values = true)]
    pub(crate) separator: Option<String>,

    /// When to use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
}

impl PlanOptions {
    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        let text = "give the events with -e, such as -e cycles,instructions. `pmux list` shows which there are on this \
                    machine, `pmux explain EVENT` shows which PMU counts it";
        refuse_first(&[(self.events.is_empty(), text)])
    }
}

const AFTER_HELP: &str = "\
Nothing is counted. How many debug registers of this machine are free is found by taking them all for a moment, where \
breakpoints are planned.

A turn is the time from one rotation to the next. pmux's engine decides which events are on in a turn, as when it counts. Raw \
events and PMU events are taken to need a counter that takes any event.

Exit status: 1 where an event can never be counted.";
