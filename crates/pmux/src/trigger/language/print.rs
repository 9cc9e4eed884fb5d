//! A tree back to text.
//!
//! **Invariant:** what is printed reads back as the tree.

use super::{
    Action, Comparison, Every, Level, Line, Pressure, Resource, Rounds, Rule, Scope, SetText, Share, SignalName,
    Source, Switching, Trigger, TriggerTerm, Waiting, Whose,
};
use pmux_engine::event_set::Position;
use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

/// A time in the largest unit in which it is whole.
pub(super) struct Span(pub(super) Duration);

impl Display for Span {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let ns = self.0.as_nanos();
        let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
        let whole = units.into_iter().find(|(_, in_ns)| ns.is_multiple_of(*in_ns));
        let (unit, in_ns) = whole.unwrap_or(("ns", 1));
        write!(f, "{}{unit}", ns / in_ns)
    }
}

/// A text that may have blanks and words of the language in it.
pub(super) struct Quoted<'t>(pub(super) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let plain = |c: char| c.is_alphanumeric() || "_-.,+*[]()@%#=".contains(c);
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
            Self::Unequal => "!=",
        })
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        })
    }
}

impl Display for Waiting {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::Some => "some",
            Self::Full => "full",
        })
    }
}

impl Display for Pressure {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { resource, cgroup, tasks, stalled, window } = self;
        write!(f, "psi:{resource}")?;
        if let Some(cgroup) = cgroup {
            write!(f, ":{cgroup}")?;
        }
        write!(f, " {tasks} {}/{}", Span(*stalled), Span(*window))
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { share, comparison, limit } = self;
        match share {
            Share::Rate(event) => write!(f, "rate({event}) {comparison} {limit}/s"),
            Share::Ratio(event, of) => write!(f, "{event} / {of} {comparison} {limit}"),
        }
    }
}

impl Display for SignalName {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.0)
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Level(level) => level.fmt(f),
            Self::Pressure(pressure) => pressure.fmt(f),
            Self::Tracepoint { event, filter: None } => f.write_str(event),
            Self::Tracepoint { event, filter: Some(filter) } => write!(f, "{event} if {filter}"),
            Self::Watch(wanted) => write!(f, "watch:{wanted}"),
            Self::Exit(Whose::Process(pid)) => write!(f, "exit:{pid}"),
            // Digits alone would be a number.
            Self::Exit(Whose::Named(name)) if name.bytes().all(|b| b.is_ascii_digit()) => write!(f, "exit:\"{name}\""),
            Self::Exit(Whose::Named(name)) => write!(f, "exit:{}", Quoted(name)),
            Self::Crash(None) => f.write_str("crash"),
            Self::Crash(Some(name)) => write!(f, "crash:{}", Quoted(name)),
            Self::Line(Line::Text(text)) => write!(f, "line:{}", Quoted(text)),
            Self::Line(Line::Pattern(pattern)) => write!(f, "line:/{pattern}/"),
            Self::Signal(name) => write!(f, "signal:{name}"),
        }
    }
}

impl Display for TriggerTerm {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.source.fmt(f)?;
        match self.scope {
            Scope::All => {}
            Scope::PerCpu => f.write_str(" per cpu")?,
            Scope::PerCgroup => f.write_str(" per cgroup")?,
        }
        if !self.held.is_zero() {
            write!(f, " for {}", Span(self.held))?;
        }
        Ok(())
    }
}

impl Display for Trigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        separated(f, &self.terms, " and ")?;
        match self.every {
            Every::Nth(number) if number.get() == 1 => {}
            Every::Nth(number) => write!(f, " every {number}")?,
            Every::Span(span) => write!(f, " every {}", Span(span))?,
        }
        match self.rounds {
            Rounds::Always => Ok(()),
            Rounds::Once => f.write_str(" once"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Snapshot => f.write_str("snapshot"),
            Self::Run(command) => write!(f, "run {command}"),
            Self::Mark(text) if text.is_empty() => f.write_str("mark"),
            Self::Mark(text) => write!(f, "mark {}", Quoted(text)),
            Self::Set { name, to } => match to {
                Switching::On => write!(f, "set {name} on"),
                Switching::Off => write!(f, "set {name} off"),
                Switching::OnFor(span) => write!(f, "set {name} on for {}", Span(*span)),
                Switching::OffFor(span) => write!(f, "set {name} off for {}", Span(*span)),
                Switching::WhileItHolds => write!(f, "set {name} on while it holds"),
            },
        }
    }
}

/// The actions of the rule alone.
pub(super) struct Actions<'a>(pub(super) &'a [Action]);

impl Display for Actions<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        separated(f, self.0, "; ")
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}: {}", self.trigger, Actions(&self.actions))
    }
}

impl Display for SetText {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let position = match self.at_first {
            Position::On => "on",
            Position::Off => "off",
        };
        write!(f, "{}={{{}}} {position}", self.name, self.events)
    }
}

fn separated(f: &mut Formatter<'_>, parts: &[impl Display], by: &str) -> Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(by)?;
        }
        part.fmt(f)?;
    }
    Ok(())
}
