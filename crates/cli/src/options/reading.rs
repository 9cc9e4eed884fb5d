//! The options of the commands that read recordings: `pmux report`, `pmux script`. Letters are those of `perf` wherever it has them.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::picture::{InputOptions, PartOptions};
use crate::style::ColorChoice;
use clap::Args;
use pmux::profile::{Order, SortKey};

/// Options of `pmux report`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Print a table. It is what is done anyway where the output is no terminal
    #[arg(long, conflicts_with = "tui")]
    pub(crate) stdio: bool,

    /// Show the interactive view. It is what is done anyway on a terminal; `?` in it tells the keys
    #[arg(long, conflicts_with_all = ["json", "header_only"])]
    pub(crate) tui: bool,

    /// Tell rows apart by these: comm, dso, symbol, cpu, thread, cgroup (default comm,dso,symbol)
    #[arg(short, long, value_name = "KEY,…", value_delimiter = ',', value_parser = sort_key)]
    pub(crate) sort: Vec<SortChoice>,

    /// Show who calls: `caller` (from the outermost function on), `callee` (from the row's function outwards) or `none` (default: as
    /// perf does, if call chains were recorded)
    #[arg(short = 'g', long = "call-graph", value_name = "HOW", num_args = 0..=1, default_missing_value = "usual", value_parser = graph)]
    pub(crate) graph: Option<Graph>,

    /// Count what a function called for the function too. It is the default where call chains were recorded
    #[arg(long, overrides_with = "no_children")]
    pub(crate) children: bool,

    /// Count for each function only what was met in it
    #[arg(long, overrides_with = "children")]
    pub(crate) no_children: bool,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,

    /// Print a table for each event of a group, not one with columns for all of them
    #[arg(long)]
    pub(crate) no_group: bool,

    /// Leave rows out that weigh less than PERCENT
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) percent_limit: Option<Percent>,

    /// Print one JSON object
    #[arg(short = 'j', long)]
    pub(crate) json: bool,

    /// Say only what the machine was and what was recorded
    #[arg(long)]
    pub(crate) header_only: bool,

    /// Use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) color: ColorChoice,
}

/// A word of `--sort`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SortChoice(pub(crate) SortKey);

/// What `-g` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Graph {
    /// No trees.
    None,
    /// Trees, in the order that fits the rows.
    Usual,
    /// Trees in this order.
    In(Order),
}

/// A share, in per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Percent(pub(crate) f64);

fn sort_key(text: &str) -> Result<SortChoice, String> {
    let names = || SortKey::ALL.map(|(_, names)| names[0]).join(", ");
    SortKey::from_name(text).map(SortChoice).ok_or_else(|| format!("rows can be told apart by {}", names()))
}

fn graph(text: &str) -> Result<Graph, String> {
    // As with perf, what belongs to the order may come among other words: `graph,0.5,caller`.
    let word = |wanted: &str| text.split(',').any(|word| word == wanted);
    let known = |word: &str| {
        matches!(
            word,
            "usual" | "none" | "caller" | "callee" | "graph" | "fractal" | "flat" | "folded" | "function" | "percent"
        ) || word.parse::<f64>().is_ok()
    };
    match text.split(',').find(|word| !known(word)) {
        Some(other) => Err(format!("expected caller, callee or none, not {other}")),
        None if word("none") => Ok(Graph::None),
        None if word("caller") => Ok(Graph::In(Order::Caller)),
        None if word("callee") => Ok(Graph::In(Order::Callee)),
        None => Ok(Graph::Usual),
    }
}

fn percent(text: &str) -> Result<Percent, String> {
    let wrong = || "expected per cent from 0 to 100, such as 0.5".to_owned();
    let percent: f64 = text.trim_end_matches('%').parse().map_err(|_| wrong())?;
    if (0.0..=100.0).contains(&percent) { Ok(Percent(percent)) } else { Err(wrong()) }
}

/// Options of `pmux script`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ScriptOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Print these fields, separated by commas: comm, pid, tid, cpu, time, event, period, ip, sym, symoff, dso, addr, trace, callchain,
    /// cgroup; `+FIELD` and `-FIELD` change what is usual for the event
    #[arg(short = 'F', long, value_name = "FIELD,…", allow_hyphen_values = true)]
    pub(crate) fields: Option<String>,

    /// Print names, forks, exits too
    #[arg(long)]
    pub(crate) show_task_events: bool,

    /// Print mappings too
    #[arg(long)]
    pub(crate) show_mmap_events: bool,

    /// Print context switches too
    #[arg(long)]
    pub(crate) show_switch_events: bool,

    /// Print losses too
    #[arg(long)]
    pub(crate) show_lost_events: bool,

    /// Print times in ns instead of us
    #[arg(long)]
    pub(crate) ns: bool,

    /// Print one JSON object a line
    #[arg(short = 'j', long)]
    pub(crate) json_lines: bool,
}
