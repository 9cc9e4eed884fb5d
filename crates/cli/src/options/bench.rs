//! `pmux bench`: what breakpoints cost.
//!
//! **Invariant:** plain data, and the rules that clap can't say.

use super::refuse_first;
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;

/// The most threads that one option asks for.
const MOST_THREADS: i64 = 100_000;
/// The most CPUs of an imagined machine.
const MOST_CPUS: i64 = 8192;
/// The defaults of `perf bench`.
const REPEAT: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) collection: Collection,

    /// How often to do it
    #[arg(short, long, value_name = "N", global = true, default_value_t = REPEAT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Print JSON: one object with the parameters and the cost
    #[arg(short, long = "json", global = true)]
    pub(crate) json: bool,
}

// The collections of benchmarks.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Collection {
    /// Breakpoints: what it costs to have them and to switch them
    Breakpoint(BreakpointOptions),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct BreakpointOptions {
    #[command(subcommand)]
    pub(crate) benchmark: Benchmark,
}

// The benchmarks of breakpoints.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Benchmark {
    /// Threads that inherit breakpoints start and end
    Thread(ThreadOptions),
    /// A breakpoint that threads have inherited is switched off and on
    Enable(EnableOptions),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = THREAD_HELP)]
pub(crate) struct ThreadOptions {
    /// Breakpoints that each thread inherits
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) breakpoints: u32,

    /// Threads that start others at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub(crate) parallelism: u32,

    /// Threads that each of those starts before it waits for them
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub(crate) threads: u32,

    /// What decides whether there is a debug register for each breakpoint
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    pub(crate) engine: Accountant,

    /// With --engine ledger: CPUs of the machine; without it, as many as this one has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_CPUS))]
    pub(crate) cpus: Option<u32>,

    /// With --engine ledger: do the same with another algorithm, and say how many times slower it is
    #[arg(long, value_name = "ALGORITHM", value_enum)]
    pub(crate) baseline: Option<Baseline>,

    /// With --baseline: end it after TIME (seconds, or 2s, 1m), and measure what was done until then
    #[arg(long, value_name = "TIME", value_parser = limit)]
    pub(crate) limit: Option<Duration>,
}

fn limit(text: &str) -> Result<Duration, String> {
    match pmux::units::seconds(text)? {
        Duration::ZERO => Err("it must be more than 0".to_owned()),
        time => Ok(time),
    }
}

/// What keeps account of debug registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accountant {
    /// This kernel, with real threads
    #[default]
    Kernel,
    /// pmux's own ledger, without threads and without a kernel
    Ledger,
}

/// What the ledger is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Baseline {
    /// One lock, one list of all breakpoints that is scanned for each request, and a loop over all CPUs
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
#[command(after_help = ENABLE_HELP)]
pub(crate) struct EnableOptions {
    /// Threads that have the breakpoint and sleep
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=MOST_THREADS))]
    pub(crate) passive: u32,

    /// Threads that have the breakpoint and never stop running
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=MOST_THREADS))]
    pub(crate) active: u32,
}

impl BenchOptions {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// A sentence for the user, about `bench breakpoint thread`.
    pub(super) fn check(&self) -> Result<(), String> {
        let Collection::Breakpoint(BreakpointOptions { benchmark: Benchmark::Thread(options) }) = &self.collection
        else {
            return Ok(());
        };
        let ThreadOptions { engine, cpus, baseline, limit, .. } = options;
        let is_kernel = *engine == Accountant::Kernel;
        refuse_first(&[
            (is_kernel && cpus.is_some(), "--cpus is for --engine ledger: the kernel has the CPUs of this machine"),
            (is_kernel && baseline.is_some(), "--baseline is compared with the ledger: give --engine ledger as well"),
            (limit.is_some() && baseline.is_none(), "--limit ends a baseline: give --baseline as well"),
        ])
    }
}

const THREAD_HELP: &str = "\
It does what `perf bench breakpoint thread` does: PARALLELISM threads take turns at starting THREADS threads and waiting for \
them, REPEAT times in all. An operation is the life of one thread; the breakpoints watch an address that no thread touches.

With --engine ledger, tasks take the place of threads: each reserves a debug register for each of its breakpoints, and gives \
them back when it goes. PARALLELISM threads do so at once, for a quarter of a second; the median is printed. A CPU of \
this machine has four registers.

  usecs/op      microseconds for each operation
  usecs/op/cpu  the same, times PARALLELISM";

const ENABLE_HELP: &str = "\
It does what `perf bench breakpoint enable` does. An operation is to switch the breakpoint off and on again, in the thread \
that has opened it and in all that have inherited it.

  usecs/op      microseconds for each operation";
