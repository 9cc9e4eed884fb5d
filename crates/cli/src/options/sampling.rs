//! What is sampled, and whose: the options that `pmux record` and `pmux flight` have in common.
//!
//! **Invariant:** plain data; a field is what the user typed, as far as it can be understood without a look at the machine.

use super::filters::EventFilters;
use super::refuse_first;
use super::target::{self, TargetSpec};
use clap::Args;
use pmux::record::CallChain;
use pmux::units::scaled;
use std::ffi::OsString;

// What is sampled, and whose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct Sampling {
    #[command(flatten)]
    pub(crate) filters: EventFilters,

    /// Events to record, separated by commas; may be given again (default: cycles, or where there are no counters, cpu-clock)
    #[arg(short, long = "event", value_name = "EVENT,…", allow_hyphen_values = true, help_heading = "What to record")]
    pub(crate) events: Vec<String>,

    /// Take HZ samples a second, or as many as the kernel allows: `max` (default 4000; in flight 99, but each hit of tracepoints)
    #[arg(short = 'F', long = "freq", value_name = "HZ", value_parser = frequency, conflicts_with = "period", help_heading = "What to record")]
    pub(crate) frequency: Option<Frequency>,

    /// Take a sample after every N occurrences
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "What to record")]
    pub(crate) period: Option<u64>,

    /// Record call chains, by frame pointers
    #[arg(short = 'g', help_heading = "What to record")]
    pub(crate) frame_pointers: bool,

    /// Record call chains: `fp`, `dwarf` with or without the bytes of stack (default 8192), `lbr`, or `auto`: as the programs need it
    #[arg(long, value_name = "HOW", value_parser = call_graph, help_heading = "What to record")]
    pub(crate) call_graph: Option<CallGraph>,

    /// Record addresses of data, and mappings of data
    #[arg(short, long = "data", help_heading = "What to record")]
    pub(crate) data: bool,

    /// Do not record children of the command or of the processes
    #[arg(short = 'i', long, help_heading = "What to record")]
    pub(crate) no_inherit: bool,

    /// Record these processes
    #[arg(short, long, value_name = "PID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to record")]
    pub(crate) pid: Vec<i32>,

    /// Record these threads
    #[arg(short, long, value_name = "TID,…", value_delimiter = ',', value_parser = target::id, help_heading = "What to record")]
    pub(crate) tid: Vec<i32>,

    /// Record everything on every CPU, while COMMAND runs or until Ctrl-C
    #[arg(short, long = "all-cpus", help_heading = "What to record")]
    pub(crate) all_cpus: bool,

    /// Record everything on these CPUs, such as 0-3,6
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = target::cpus, help_heading = "What to record")]
    pub(crate) cpu: Option<String>,

    /// Record in these control groups, on all CPUs or those of -C; of several, samples say in which they were taken
    #[arg(short = 'G', long = "cgroup", value_name = "NAME,…", value_delimiter = ',', help_heading = "What to record")]
    pub(crate) cgroups: Vec<String>,

    /// Command to record, with its own options
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// How many samples a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frequency {
    PerSecond(u64),
    /// As many as the kernel allows.
    Most,
}

/// `--call-graph`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallGraph {
    /// In this way.
    As(CallChain),
    /// By frame pointers, and where a program or library keeps none, by copies of the stack.
    Auto,
}

/// By copies of the stack of the usual size.
pub(crate) const DWARF: CallChain = CallChain::Dwarf { stack_bytes: 8192 };

pub(super) fn frequency(text: &str) -> Result<Frequency, String> {
    match text {
        "max" => Ok(Frequency::Most),
        text => match scaled(text, &[('K', 1000), ('M', 1_000_000)]) {
            Some(hz) if hz > 0 => Ok(Frequency::PerSecond(hz)),
            _ => Err("expected samples per second, such as 99, 4k or max".to_owned()),
        },
    }
}

pub(super) fn call_graph(text: &str) -> Result<CallGraph, String> {
    const MOST: u32 = 65_528;
    let (how, bytes) = text.split_once(',').map_or((text, None), |(how, bytes)| (how, Some(bytes)));
    let chain = match (how, bytes) {
        ("fp", None) => CallChain::FramePointers,
        ("lbr", None) => CallChain::LastBranches,
        ("dwarf", None) => DWARF,
        ("auto", None) => return Ok(CallGraph::Auto),
        ("dwarf", Some(bytes)) => match bytes.parse::<u32>() {
            Ok(bytes @ 1..=MOST) => CallChain::Dwarf { stack_bytes: bytes.next_multiple_of(8) },
            _ => return Err(format!("the bytes of stack are a number up to {MOST}, such as dwarf,16384")),
        },
        _ => return Err("expected fp, dwarf, dwarf,BYTES, lbr or auto".to_owned()),
    };
    Ok(CallGraph::As(chain))
}

impl Sampling {
    /// The command, tasks or CPUs to record.
    pub(crate) fn target_spec(&self) -> Result<TargetSpec, String> {
        let Self { pid, tid, all_cpus, cpu, command, cgroups, .. } = self;
        // A control group is recorded on CPUs.
        let of_groups = !cgroups.is_empty() && cpu.is_none() && pid.is_empty() && tid.is_empty();
        let everywhere = *all_cpus || of_groups;
        target::target_spec((pid, tid), (everywhere, cpu.as_ref()), command, ("record", ""))
    }

    /// How call chains are to be found.
    pub(crate) fn call_graph(&self) -> CallGraph {
        let usual = if self.frame_pointers { CallChain::FramePointers } else { CallChain::None };
        self.call_graph.unwrap_or(CallGraph::As(usual))
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        self.filters.check()?;
        let cpus = matches!(self.target_spec()?, TargetSpec::Cpus(_));
        let groups = !self.cgroups.is_empty();
        refuse_first(&[
            (self.cgroups.iter().any(String::is_empty), "-G has an empty name in its list"),
            (groups && !cpus, "-G and -p or -t exclude each other: a control group is recorded on CPUs"),
            (self.no_inherit && cpus, "-a and -C record everything: leave out -i"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(frequency("4k"), Ok(Frequency::PerSecond(4000)));
        assert_eq!(frequency("max"), Ok(Frequency::Most));
        assert!(frequency("0").is_err() && frequency("fast").is_err());
    }

    #[test]
    fn a_control_group_is_recorded_on_all_cpus() {
        let (group, command) = (vec!["a".to_owned()], vec![OsString::from("true")]);
        let typed = Sampling { cgroups: group.clone(), command, ..Sampling::default() };
        assert_eq!((typed.target_spec(), typed.check()), (Ok(TargetSpec::Cpus(None)), Ok(())));
        let typed = Sampling { cgroups: group.clone(), cpu: Some("1".to_owned()), ..Sampling::default() };
        assert_eq!((typed.target_spec(), typed.check()), (Ok(TargetSpec::Cpus(Some("1".to_owned()))), Ok(())));
        let typed = Sampling { cgroups: group, pid: vec![1], ..Sampling::default() };
        assert!(typed.check().unwrap_err().contains("-G and -p"));
    }

    #[test]
    fn call_graphs() {
        assert_eq!(call_graph("dwarf,4093"), Ok(CallGraph::As(CallChain::Dwarf { stack_bytes: 4096 })));
        assert_eq!(call_graph("lbr"), Ok(CallGraph::As(CallChain::LastBranches)));
        assert_eq!(call_graph("auto"), Ok(CallGraph::Auto));
        for wrong in ["fp,1", "auto,4096", "dwarf,0", "dwarf,70000"] {
            assert!(call_graph(wrong).is_err(), "{wrong}");
        }
    }
}
