//! The options of the commands that read recordings: `pmux report`, `pmux script`. Letters are those of `perf` wherever it has them.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::picture::{InputOptions, PartOptions};
use crate::style::ColorChoice;
use clap::Args;
use pmux::profile::{Order, SortKey};

#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Print a table: the default where the output is no terminal
    #[arg(long, conflicts_with = "tui")]
    pub(crate) stdio: bool,

    /// Show the interactive view: the default on a terminal; `?` in it lists the keys
    #[arg(long, conflicts_with_all = ["json", "header_only"])]
    pub(crate) tui: bool,

    /// Show wall time: what ran and what waited in one table, with what was waited for (`pmux record --off-cpu`)
    #[arg(long, conflicts_with = "branch_stack")]
    pub(crate) wall: bool,

    /// Show also what functions cost in time that passes: a sample counts 1/N where N threads of the command (of the process, with -a) ran
    /// at once. Rows are in this order (`pmux record --latency`)
    #[arg(long, conflicts_with_all = ["branch_stack", "tui", "wall", "no_group"])]
    pub(crate) latency: bool,

    /// Show the locks that threads waited for, by variable or address: how long, which threads, and which thread ended it (`pmux record --off-cpu`)
    #[arg(long, conflicts_with_all = ["branch_stack", "tui", "wall", "latency", "header_only", "sort", "fields", "graph"])]
    pub(crate) locks: bool,

    /// Show who waited for what, and who ended it (`pmux record --off-cpu`)
    #[arg(long, conflicts_with_all = ["branch_stack", "tui", "wall", "latency", "header_only", "sort", "fields", "graph", "locks"])]
    pub(crate) wakers: bool,

    /// Show how long runnable threads waited for a CPU: by length, thread and CPU, and the longest waits with what ran on that
    /// CPU meanwhile (`pmux record --off-cpu`)
    #[arg(long, conflicts_with_all = ["branch_stack", "tui", "wall", "latency", "header_only", "sort", "fields", "graph", "locks", "wakers"])]
    pub(crate) runqueue: bool,

    /// Show what the time of a thread (one --tid; one --pid: its main thread; otherwise that of the command) was spent on: by it, and, where
    /// it waited for another one, by that one meanwhile (`pmux record --off-cpu`). Also --from and --to choose
    #[arg(long, conflicts_with_all = ["branch_stack", "tui", "wall", "latency", "header_only", "sort", "fields", "graph", "locks", "wakers", "runqueue"])]
    pub(crate) critical_path: bool,

    /// Tell rows apart by these: comm, dso, symbol, cpu, thread, cgroup, parallelism (default comm,dso,symbol)
    #[arg(short, long, value_name = "KEY,…", value_delimiter = ',', value_parser = sort_key)]
    pub(crate) sort: Vec<SortKey>,

    /// Print these columns, in this order: overhead, overhead_children, sample, period, and what rows are told apart by, as with --sort;
    /// rows are in the order of the first number
    #[arg(short = 'F', long, value_name = "FIELD,…", value_delimiter = ',', value_parser = field)]
    pub(crate) fields: Vec<FieldChoice>,

    /// Print a column with the number of samples
    #[arg(short = 'n', long)]
    pub(crate) show_nr_samples: bool,

    /// Show callers: `caller` (from the outermost function on), `callee` (from the row's function outwards) or `none` (default: as
    /// perf does, if call chains were recorded); as a tree with shares of the whole (`graph`) or of what is above (`fractal`), or each chain
    /// by itself, a line a function (`flat`) or all in one line (`folded`); a number leaves out what weighs less, in per cent (default: 0.5).
    /// Words are separated by commas
    #[arg(short = 'g', long = "call-graph", value_name = "HOW", num_args = 0..=1, default_missing_value = "usual", value_parser = graph)]
    pub(crate) graph: Option<Graph>,

    /// Count what a function called for the function too. It is the default where call chains were recorded
    #[arg(long, overrides_with = "no_children")]
    pub(crate) children: bool,

    /// Count for each function only what was met in it
    #[arg(long, overrides_with = "children")]
    pub(crate) no_children: bool,

    /// Count branches instead of samples: rows are where they went, their callers where they were (`perf record -b`)
    #[arg(short = 'b', long, conflicts_with = "children")]
    pub(crate) branch_stack: bool,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,

    /// Print a table for each event of a group, not one with columns for all of them
    #[arg(long)]
    pub(crate) no_group: bool,

    /// Leave rows out that weigh less than PERCENT
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) percent_limit: Option<f64>,

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

/// A word of `--fields`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldChoice {
    Number(NumberColumn),
    /// What rows are told apart by.
    Key(SortKey),
}

/// A number of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberColumn {
    /// The share of what was met in it, or in what it had called.
    Children,
    /// The share of what was met in it.
    Own,
    /// How many samples that is.
    Samples,
    /// How many occurrences.
    Period,
}

/// What `-g` asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Graph {
    None,
    Shown(CallStyle),
}

/// How calls are shown.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct CallStyle {
    /// From where to where; `None` is what fits the rows.
    pub(crate) order: Option<Order>,
    pub(crate) form: CallForm,
    /// What weighs less is left out, in per cent; `None` is the usual.
    pub(crate) least_percent: Option<f64>,
}

/// How calls are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum CallForm {
    /// A tree with shares of the whole.
    #[default]
    Graph,
    /// A tree with shares of what is above.
    Fractal,
    /// Each chain by itself, a function a line.
    Flat,
    /// Each chain in one line.
    Folded,
}

fn sort_key_names() -> String {
    SortKey::ALL.map(|(_, names)| names[0]).join(", ")
}

fn sort_key(text: &str) -> Result<SortKey, String> {
    let wrong = || format!("rows can be told apart by {}", sort_key_names());
    SortKey::from_name(text).ok_or_else(wrong)
}

fn field(text: &str) -> Result<FieldChoice, String> {
    let wrong = || format!("columns are overhead, overhead_children, sample, period, {}", sort_key_names());
    Ok(FieldChoice::Number(match text {
        "overhead" => NumberColumn::Own,
        "overhead_children" => NumberColumn::Children,
        "sample" | "samples" => NumberColumn::Samples,
        "period" => NumberColumn::Period,
        key => return SortKey::from_name(key).map(FieldChoice::Key).ok_or_else(wrong),
    }))
}

fn graph(text: &str) -> Result<Graph, String> {
    let mut style = CallStyle::default();
    for word in text.split(',') {
        match word {
            "none" => return Ok(Graph::None),
            "caller" => style.order = Some(Order::Caller),
            "callee" => style.order = Some(Order::Callee),
            "graph" => style.form = CallForm::Graph,
            "fractal" => style.form = CallForm::Fractal,
            "flat" => style.form = CallForm::Flat,
            "folded" => style.form = CallForm::Folded,
            // What is shown anyway; perf has other words in their place.
            "usual" | "function" | "percent" => {}
            number => match percent(number) {
                Ok(least) => style.least_percent = Some(least),
                Err(_) => {
                    let known = "caller, callee, none, graph, fractal, flat, folded, or the least share in per cent";
                    return Err(format!("expected {known}, not {number}"));
                }
            },
        }
    }
    Ok(Graph::Shown(style))
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected per cent from 0 to 100, such as 0.5".to_owned())
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ScriptOptions {
    #[command(flatten)]
    pub(crate) input: InputOptions,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    /// Print these fields, separated by commas: comm, pid, tid, cpu, time, event, period, ip, sym, symoff, dso, srcline, addr, trace,
    /// callchain, cgroup, data_src, weight, phys_addr, iregs, uregs, brstack; `+FIELD` and `-FIELD` change what is usual for the event
    #[arg(short = 'F', long, value_name = "FIELD,…", allow_hyphen_values = true)]
    pub(crate) fields: Option<String>,

    /// Leave out functions that were inlined: faster where there is much debugging information
    #[arg(long)]
    pub(crate) no_inline: bool,

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
    #[arg(short = 'j', long, visible_alias = "json")]
    pub(crate) json_lines: bool,
}
