//! The options of `pmux flight`, and of what asks recorders that run.
//!
//! **Invariant:** plain data; triggers and sets are understood here as far as that takes no look at the machine.

use super::record::ring_bytes;
use super::sampling::Sampling;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use pmux::trigger::{Action, Rule, SetText};
use pmux::units::{kept, size_bytes, span};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct FlightOptions {
    #[command(subcommand)]
    pub(crate) ask: Option<FlightAsk>,

    #[command(flatten)]
    pub(crate) sampling: Sampling,

    /// Keep also where threads wait, how long, and who ends it: each wait of MIN or longer with its stack (default 100us), shorter ones as a
    /// sum of each thread. Call chains are recorded, and cpu-clock where no event is given
    #[arg(long, value_name = "MIN", value_parser = span, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "100us", help_heading = "What to keep")]
    pub(crate) off_cpu: Option<Duration>,

    /// Keep the last 30s, 5m, … of each CPU, or 64MiB, 1G, … of each CPU (default 30s)
    #[arg(short, long, value_name = "TIME|SIZE", value_parser = kept, help_heading = "What to keep")]
    pub(crate) keep: Option<pmux::flight::Keeping>,

    /// Size of the ring buffers for metadata (mmap, comm, fork): pages, or bytes with B, K, M, G; rounded up to a power of two
    #[arg(short = 'm', long = "mmap-pages", value_name = "SIZE", value_parser = ring_bytes, help_heading = "What to keep")]
    pub(crate) ring_bytes: Option<u64>,

    #[command(flatten)]
    pub(crate) rules: RuleTexts,

    /// Write a snapshot only so long after its trigger, or after it was asked for, with what came meanwhile
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "When to take a snapshot")]
    pub(crate) after: Option<Duration>,

    /// After a snapshot no trigger takes another one for so long (default 10s); `pmux flight dump` still does
    #[arg(long, value_name = "TIME", value_parser = span, help_heading = "When to take a snapshot")]
    pub(crate) cool_down: Option<Duration>,

    /// Take a last snapshot at the end: always, never, or if there is no --on and none was taken
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = AtEnd::Auto, help_heading = "When to take a snapshot")]
    pub(crate) at_end: AtEnd,

    /// Write snapshots into DIR, which is made where it is not there (default: pmux-flight)
    #[arg(short = 'o', long = "output", value_name = "DIR", help_heading = "How to write")]
    pub(crate) directory: Option<PathBuf>,

    /// Keep the newest N snapshots of DIR only
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "How to write")]
    pub(crate) max_snapshots: Option<u32>,

    /// Keep as many of the newest snapshots of DIR as have room in SIZE, always one; or `none`: all (default 1G)
    #[arg(long, value_name = "SIZE", value_parser = most_disk, help_heading = "How to write")]
    pub(crate) max_disk: Option<MostDisk>,

    /// Tell what happens as JSON on the standard output, one object a line
    #[arg(short, long = "json", help_heading = "How to write")]
    pub(crate) json: bool,

    /// Print warnings and errors only
    #[arg(short, long, help_heading = "How to write")]
    pub(crate) quiet: bool,
}

/// How many bytes of snapshots are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MostDisk {
    Bytes(u64),
    Unlimited,
}

impl Default for MostDisk {
    /// As that of a recorder in the service's configuration: a search for a glitch that lasts weeks must not fill the disk.
    fn default() -> Self {
        Self::Bytes(1 << 30)
    }
}

fn most_disk(text: &str) -> Result<MostDisk, String> {
    if text == "none" {
        return Ok(MostDisk::Unlimited);
    }
    size_bytes(text).map(MostDisk::Bytes).map_err(|error| format!("{error}, or none"))
}

/// Whether a last snapshot is taken at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum AtEnd {
    /// If there is no --on and none was taken
    #[default]
    Auto,
    /// Whatever was taken before
    Always,
    /// Take none
    Never,
}

// Asking recorders that run.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum FlightAsk {
    /// Have a recorder take a snapshot now, and print its path
    Dump(DumpOptions),
    /// List the recorders that run
    List(ListOptions),
    /// Tell what recorders keep, what has happened, and what was written
    Status(DumpTo),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct DumpOptions {
    #[command(flatten)]
    pub(crate) to: DumpTo,

    /// Wait so long for the snapshot (default 1m)
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ListOptions {
    /// Print JSON: one object for each recorder
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    /// List those of the service at this socket, too [env: PMUX_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

// Which recorders are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct DumpTo {
    /// The recorder with this process, the one that writes into this folder, or all; without it, the only one that runs
    #[arg(long, value_name = "PID|DIR|all")]
    pub(crate) to: Option<String>,

    /// The recorder of this name in the configuration of pmux serve
    #[arg(long, value_name = "NAME", conflicts_with = "to")]
    pub(crate) recorder: Option<String>,

    /// Ask those of the service at this socket, too [env: PMUX_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Print JSON: one object for each recorder
    #[arg(short, long = "json")]
    pub(crate) json: bool,
}

/// `--on` and `--set`, as they were typed: each with one word or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleTexts {
    pub(crate) on: Vec<Vec<String>>,
    pub(crate) sets: Vec<Vec<String>>,
}

impl Args for RuleTexts {
    fn augment_args(command: Command) -> Command {
        let argument = |name: &'static str, names: [&'static str; 2], help: &'static str| {
            let argument = clap::Arg::new(name).long(name).value_names(names).num_args(1..=2).help(help);
            argument.action(ArgAction::Append).help_heading("When to take a snapshot")
        };
        let on = "When this happens, do that (default: snapshot); may be given again. See below";
        let set = "Events that actions switch on and off (default: off)";
        command.args([argument("on", ["TRIGGER", "ACTIONS"], on), argument("set", ["NAME={EVENTS}", "on|off"], set)])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RuleTexts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |name| {
            let occurrences = matches.get_occurrences::<String>(name).into_iter().flatten();
            occurrences.map(|words| words.cloned().collect()).collect()
        };
        Ok(Self { on: typed("on"), sets: typed("set") })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl FlightOptions {
    /// The sets.
    ///
    /// # Errors
    /// A sentence for the user, with a mark where it is wrong.
    pub(crate) fn sets(&self) -> Result<Vec<SetText>, String> {
        let parse = |words: &Vec<String>| {
            words.join(" ").parse::<SetText>().map_err(|error| format!("--set: {error}{}", behind(words)))
        };
        let sets: Vec<SetText> = self.rules.sets.iter().map(parse).collect::<Result<_, _>>()?;
        for (index, set) in sets.iter().enumerate() {
            if sets[..index].iter().any(|before| before.name == set.name) {
                return Err(format!("--set: there are two sets `{}`: give them different names", set.name));
            }
        }
        Ok(sets)
    }

    /// The rules.
    ///
    /// # Errors
    /// A sentence for the user, with a mark where it is wrong.
    pub(crate) fn rules(&self) -> Result<Vec<Rule>, String> {
        let parse = |words: &Vec<String>| {
            let trigger = words.first().map(String::as_str).unwrap_or_default();
            let actions = words.get(1).map(String::as_str);
            Rule::parse(trigger, actions).map_err(|error| format!("--on: {error}{}", behind(words)))
        };
        self.rules.on.iter().map(parse).collect()
    }

    /// Checks what clap cannot.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.ask.is_some() {
            return Ok(());
        }
        let (rules, sets) = (self.rules()?, self.sets()?);
        for action in rules.iter().flat_map(|rule| &rule.actions) {
            let Action::Set { name, .. } = action else { continue };
            if !sets.iter().any(|set| set.name == *name) {
                let known: Vec<_> = sets.iter().map(|set| set.name.as_str()).collect();
                return Err(match &known[..] {
                    [] => format!("--on: there is no set `{name}`: define it with --set '{name}={{EVENTS}}'"),
                    known => format!("--on: there is no set `{name}`, only {}", known.join(", ")),
                });
            }
        }
        self.sampling.check()
    }
}

/// Where the second word was perhaps meant to be a command.
fn behind(words: &[String]) -> &'static str {
    if words.len() > 1 { "\n  a command to record stands behind `--`" } else { "" }
}

const AFTER_HELP: &str = "\
pmux keeps the last seconds in memory, in rings that are overwritten. When a trigger fires, it writes a snapshot: a file that \
perf report and perf script read, and beside it a .json with the reason and the contents. Recording goes on meanwhile, and no \
event is missed between two snapshots. Times are those of perf script.

TRIGGER is one of these, or several with `and` between them:
  rate(EVENT) > N/s                 an event comes so often; also <, per cpu, per cgroup
  EVENT / EVENT > N                 the ratio of two events
  psi:cpu some 150ms/1s             tasks wait for cpu, memory or io
  SYSTEM:TRACEPOINT [if FILTER]     a tracepoint or a probe is hit
  watch:ADDRESS                     an address is accessed, as pmux watch takes it
  exit:NAME, exit:PID, crash[:NAME] a process ends, or ends badly
  line:TEXT, line:/REGEX/           a line comes on the standard input
  signal:NAME                       this process gets a signal, which then does not end it
Behind it: `for TIME` (it must last), `every N`, `every TIME`, `once`. SIGUSR2 always takes a snapshot.

ACTIONS are these, with `;` between them:
  snapshot                          the default
  set NAME on|off [for TIME]        switch a set of events; also `set NAME on while it holds`
  run COMMAND                       with the shell, once the snapshot is written; `{}` is its path
  mark [TEXT]                       note the moment in the next snapshot

A last snapshot is taken at the end if there is no --on and none was taken before.

Exit status: that of the command, as with pmux stat; 125 if it is 0 and a snapshot could not be written.";

#[cfg(test)]
mod tests {
    use super::super::{Invocation, parse};
    use super::*;
    use std::ffi::OsString;

    fn typed(words: &[&str]) -> Result<FlightOptions, String> {
        let words = ["pmux", "flight"].iter().chain(words).map(OsString::from).collect();
        match parse(words).map_err(|shown| shown.to_string())? {
            Invocation::Flight(options) => Ok(*options),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_rule_has_one_word_or_two() {
        let set = ["--set", "fine={sched:*}", "on", "--", "make"];
        let rules = ["-a", "--on", "crash", "--on", "exit:5 once", "mark gone; snapshot"];
        let options = typed(&[&rules[..], &set].concat()).unwrap();
        let rules = options.rules().unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!((rules[0].actions.len(), rules[1].actions.len()), (1, 2));
        assert_eq!(options.sets().unwrap()[0].name, "fine");
        assert_eq!(options.sampling.command, ["make"]);
    }

    #[test]
    fn what_is_wrong_is_shown() {
        for (words, says) in [
            (&["-a", "--on", "rate(page-faults) > 5"][..], "expected `/s`"),
            (&["-a", "--on", "crash", "snapshto"], "snapshot"),
            (&["--on", "crash", "make"], "behind `--`"),
            (&["-a", "--on", "crash", "set fine on"], "there is no set `fine`"),
            (&["-a", "--set", "fine={sched:*"], "--set"),
            (&["-a", "--set", "x={page-faults}", "--set", "x={cs}"], "two sets"),
            (&["--on", "crash"], "nothing to record:"),
            (&["-a", "--after", "2"], "expected a time"),
            (&["-a", "--keep", "30"], "expected a time"),
            (&["-a", "--max-snapshots", "0"], "max-snapshots"),
            (&["-a", "--max-disk", "all"], "or none"),
        ] {
            let text = typed(words).unwrap_err();
            assert!(text.contains(says), "{words:?}: {text}");
        }
    }

    #[test]
    fn recorders_are_asked_by_words_of_their_own() {
        let options = typed(&["dump", "--to", "12"]).unwrap();
        let Some(FlightAsk::Dump(dump)) = options.ask else { panic!("{options:?}") };
        assert_eq!(dump.to.to.as_deref(), Some("12"));
        assert_eq!(typed(&["--", "dump"]).unwrap().sampling.command, ["dump"]);
        assert!(typed(&["list"]).unwrap().ask.is_some());
        assert!(typed(&["dump", "--to", "1", "--recorder", "x"]).is_err());
    }
}
