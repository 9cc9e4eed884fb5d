//! The words and signs of the scenario language that stand for one thing each.
//!
//! **Invariant:** what is printed is what is read: both look here.

use std::fmt;

use pmux_engine::EventState;
use pmux_engine::event_set::Position;
use pmux_engine::pmu::OverflowBy;
use pmux_engine::share::Sharing;

use super::ast::{AccessKind, Attribute, ControlOp, Flag, Operator, Relation, StateRelation, Watch, Window};
use crate::machine::Reach;

/// What is said by one word.
pub(super) trait Word: Copy + PartialEq + 'static {
    /// Each word with what it stands for.
    const WORDS: &'static [(&'static str, Self)];

    /// How it is said.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| *word)
    }

    /// What a word stands for.
    fn of_word(word: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }
}

macro_rules! words {
    ($($kind:ident: $($word:literal $value:ident $(($inner:expr))?),+;)+) => {$(
        impl Word for $kind {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value $(($inner))?)),+];
        }
    )+};
}

words! {
    AccessKind: "read" Read, "write" Write, "execute" Execute;
    Attribute: "count" Count, "enabled" Enabled, "running" Running, "share" Share, "estimate" Estimate, "gap" Gap,
        "gaps" Gaps, "lost" Lost, "truth" Truth(Window::Running);
    ControlOp: "enable" Enable, "disable" Disable, "reset" Reset, "close" Close;
    EventState: "off" Off, "inactive" Inactive, "active" Active, "error" Error, "dead" Dead;
    Flag: "inherit" Inherit, "pinned" Pinned, "exclusive" Exclusive, "disabled" Disabled,
        "enable-on-exec" EnableOnExec;
    Operator: "+" Add, "-" Subtract, "*" Multiply, "/" Divide;
    OverflowBy: "interrupt" Interrupt, "nmi" Nmi, "poll" Poll;
    Position: "on" On, "off" Off;
    Reach: "everywhere" Everywhere, "own-cpu" OwnCpu;
    Relation: "==" Equal, "!=" NotEqual, "<=" AtMost, ">=" AtLeast, "<" Below, ">" Above;
    Sharing: "on" On, "off" Off;
    StateRelation: "==" OneOf, "!=" NoneOf;
    Watch: "r" Read, "w" Write, "rw" ReadWrite, "x" Execute;
    Window: "enabled" Enabled, "running" Running;
}

macro_rules! printed_as_words {
    ($($kind:ident)+) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    )+};
}

printed_as_words! { ControlOp Flag Operator Watch }
