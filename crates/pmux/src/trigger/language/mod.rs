//! What can be written behind `--on` and `--set`.
//!
//! What it is: text taken apart, without a look at the machine. Text to a tree in `parser` and `actions`, by means of `cursor`. A trigger
//! and its terms print as they were written.
//!
//! ```text
//! trigger  = term { "and" term } [ "every" ( NUMBER | DURATION ) ] [ "once" ]
//! term     = source [ "per" ( "cpu" | "cgroup" ) ] [ "for" DURATION ]
//! source   = "rate(" EVENT ")" OP NUMBER "/" UNIT      rate(page-faults) > 100k/s
//!          | EVENT "/" EVENT OP NUMBER [ "%" ]         cache-misses / cache-references > 20%
//!          | "psi:" ( "cpu" | "memory" | "io" ) [ ":" CGROUP ] ( "some" | "full" ) DURATION "/" DURATION
//!          | SYSTEM ":" TRACEPOINT [ "if" FILTER ]     sched:sched_process_exit if prio < 100
//!          | "watch:" TARGET                           watch:counter:w
//!          | "exit:" ( PID | NAME )  |  "crash" [ ":" NAME ]
//!          | "line:" ( TEXT | "/" REGEX "/" )          a line on the standard input
//!          | "signal:" NAME                            signal:USR2
//! OP       = ">" | ">=" | "<" | "<=" | "==" | "!="
//! actions  = action { ";" action }
//! action   = "snapshot" | "mark" [ TEXT ] | "run" COMMAND
//!          | "set" NAME ( "on" | "off" ) [ "for" DURATION ]  |  "set" NAME "on" "while" "it" "holds"
//! set      = NAME "=" "{" EVENT { "," EVENT } "}" [ "on" | "off" ]
//! ```
//!
//! `for` says for how long a term must have held: `a for 1s and b for 1s` is both, for a second. Rates, ratios and pressure last;
//! all others are moments, and a trigger waits for one of these at most, while the rest of it holds. Quotes keep words together.
//!
//! **Invariant:** pure. The same text gives the same tree on every machine.

mod actions;
mod cursor;
mod parser;
#[cfg(test)]
mod tests;

use crate::symbol::AddressSpec;
pub use crate::text::TextError;
use parser::{COMPARISONS, RESOURCES};
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// When something is to be done: terms that must hold at once.
///
/// ```
/// use pmux::trigger::Trigger;
/// let text = "rate(page-faults) > 100k/s for 500ms and psi:memory some 100ms/1s every 10s";
/// let trigger: Trigger = text.parse().expect("a trigger");
/// assert_eq!((trigger.terms.len(), trigger.to_string().as_str()), (2, text));
/// let error = "rate(page-faults) > 5".parse::<Trigger>().expect_err("five in what time?");
/// assert!(error.to_string().contains("expected `/s`"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Trigger {
    /// At least one; at most one of them is a moment.
    pub terms: Vec<TriggerTerm>,
    /// Which occurrences fire.
    pub every: Every,
    /// How often it fires.
    pub rounds: Rounds,
    /// As it was written.
    text: String,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One thing that must hold.
#[derive(Clone, PartialEq, Debug)]
pub struct TriggerTerm {
    /// What.
    pub source: TermSource,
    /// Where it is looked at.
    pub scope: TermScope,
    /// For how long it must have held; zero: at once.
    pub held: Duration,
    /// As it was written.
    text: String,
}

impl fmt::Display for TriggerTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Which occurrences fire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// Each so many-th.
    Nth(NonZeroU32),
    /// One in such a span, and again while the condition goes on.
    Span(Duration),
}

impl Default for Every {
    fn default() -> Self {
        Self::Nth(NonZeroU32::MIN)
    }
}

/// How often a trigger fires.
pub use pmux_engine::event_set::Rounds;

/// Where a term is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TermScope {
    /// In all of the target together.
    #[default]
    All,
    /// On each CPU.
    PerCpu,
    /// In each cgroup.
    PerCgroup,
}

/// How a number is compared with a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Comparison {
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `!=`
    Unequal,
}

impl Comparison {
    /// Whether it is so.
    #[must_use]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Greater => value > limit,
            Self::GreaterOrEqual => value >= limit,
            Self::Less => value < limit,
            Self::LessOrEqual => value <= limit,
            // A user who writes it means numbers that are small and whole.
            Self::Equal => value == limit,
            Self::Unequal => value != limit,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(COMPARISONS.iter().find(|(_, of)| of == self).map_or("", |(sign, _)| sign))
    }
}

/// What a term listens to.
#[derive(Clone, PartialEq, Debug)]
pub enum TermSource {
    /// A number that is read now and then.
    Level(Level),
    /// Tasks that wait for something.
    Pressure(Pressure),
    /// Hits of a tracepoint, of a probe too.
    Tracepoint {
        /// `SYSTEM:NAME`.
        event: String,
        /// Which hits, in the kernel's own language of filters.
        filter: Option<String>,
    },
    /// Accesses to an address.
    Watch(AddressSpec),
    /// A process that ends.
    Exit(ExitOf),
    /// A process that is ended by a signal that says that something is wrong with it; whose name is this, if one is given.
    Crash(Option<String>),
    /// A line on the standard input.
    Line(LineFilter),
    /// A signal to this process.
    Signal(SignalName),
}

/// A number that is compared with a limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Level {
    /// Which number.
    pub quantity: LevelQuantity,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what: occurrences in a second, or a ratio. Never infinite.
    pub limit: f64,
}

/// What is compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LevelQuantity {
    /// Occurrences of an event in a second.
    Rate(String),
    /// Of two events, how many of the first for one of the second.
    Ratio(String, String),
}

/// What tasks wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resource {
    /// A CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Input and output.
    Io,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RESOURCES.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name))
    }
}

/// For how long tasks waited for a resource within a window. Source: `Documentation/accounting/psi.rst`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// For what.
    pub resource: Resource,
    /// In which cgroup; `None` for the machine.
    pub cgroup: Option<String>,
    /// Which tasks.
    pub tasks: StalledTasks,
    /// For how long.
    pub stalled: Duration,
    /// Within what time: 500 ms to 10 s.
    pub window: Duration,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, cgroup, tasks, stalled, window } = self;
        write!(f, "psi:{resource}")?;
        if let Some(cgroup) = cgroup {
            write!(f, ":{cgroup}")?;
        }
        write!(f, " {tasks} {}/{}", whole(*stalled), whole(*window))
    }
}

/// A time in the largest unit in which it is whole.
fn whole(span: Duration) -> String {
    let ns = span.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (unit, in_ns) = units.into_iter().find(|(_, in_ns)| ns.is_multiple_of(*in_ns)).unwrap_or(("ns", 1));
    format!("{}{unit}", ns / in_ns)
}

/// Which tasks wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StalledTasks {
    /// One at least.
    Some,
    /// All that have something to do.
    Full,
}

impl fmt::Display for StalledTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Some => "some",
            Self::Full => "full",
        })
    }
}

/// Whose end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExitOf {
    /// That of one process.
    Process(i32),
    /// That of any with this name.
    Named(String),
}

/// Which lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineFilter {
    /// Those that have this text in them.
    Text(String),
    /// Those that a regular expression matches somewhere.
    Pattern(String),
}

/// A signal, by its name without `SIG`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalName(pub &'static str);

/// What is done when a trigger fires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// What the rings hold is written to a file.
    Snapshot,
    /// A set of events goes on or off.
    Set {
        /// Which.
        name: String,
        /// Where to.
        to: Switching,
    },
    /// A command of the shell is run. `{}` in it, and `PMUX_SNAPSHOT` in its environment, are the path of the last snapshot.
    Run(String),
    /// The moment is noted, with this text.
    Mark(String),
}

/// Where a set of events goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switching {
    /// On.
    On,
    /// Off.
    Off,
    /// On, and so long at least.
    OnFor(Duration),
    /// Off, for so long at least.
    OffFor(Duration),
    /// On as long as the trigger's condition holds.
    WhileItHolds,
}

/// `--on TRIGGER [ACTIONS]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// When.
    pub trigger: Trigger,
    /// What is done, in this order.
    pub actions: Vec<Action>,
}

impl Rule {
    /// Reads a rule; without actions it takes a snapshot.
    ///
    /// # Errors
    /// The first fault of the trigger, then of the actions; [`TextError`] also for a set that is to be on while a moment holds.
    pub fn parse(trigger: &str, actions: Option<&str>) -> Result<Self, TextError> {
        let parsed: Trigger = trigger.parse()?;
        let Some(text) = actions else { return Ok(Self { trigger: parsed, actions: vec![Action::Snapshot] }) };
        let actions = actions::parse(text)?;
        let waits = actions.iter().any(|action| matches!(action, Action::Set { to: Switching::WhileItHolds, .. }));
        if waits && parsed.terms.iter().any(|term| term.source.is_moment()) {
            let column = text.find("while").unwrap_or_default();
            let problem = format!("`{parsed}` is a moment and holds no longer than that: write `for DURATION` instead");
            return Err(TextError::new(text, column, problem));
        }
        Ok(Self { trigger: parsed, actions })
    }
}

/// `--set NAME={EVENTS} [on|off]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetText {
    /// What rules call it.
    pub name: String,
    /// Its events, as `-e` takes them.
    pub events: String,
    /// Whether it is on at the beginning.
    pub at_first: pmux_engine::event_set::Position,
}

impl TermSource {
    /// Whether it happens, and is over.
    #[must_use]
    pub fn is_moment(&self) -> bool {
        !matches!(self, Self::Level(_) | Self::Pressure(_))
    }

    /// Whether it can be told where it is the case.
    fn takes(&self, scope: TermScope) -> bool {
        match scope {
            TermScope::All => true,
            TermScope::PerCpu => matches!(self, Self::Level(_) | Self::Tracepoint { .. } | Self::Watch(_)),
            TermScope::PerCgroup => matches!(self, Self::Level(_)),
        }
    }
}
