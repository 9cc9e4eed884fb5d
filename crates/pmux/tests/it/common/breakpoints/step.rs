//! The steps of a sequence, and how they are written down.
//!
//! What it is: [`Step`], with a line of text for each, to print and to read back.
//!
//! **Invariant:** a step names breakpoints by number and threads by place, so that a sequence makes sense without some of
//! its steps: what is not open is not closed.

use pmux::event::Access;
use pmux_engine::CpuId;
use pmux_sim::oracle::breakpoint::Kind;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a breakpoint waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    pub access: Access,
    /// In bytes. No machine watches [`Watch::NEVER`] at once.
    pub len: u64,
    /// Which of a few addresses.
    pub at: usize,
}

impl Watch {
    /// A length that every kernel finds invalid.
    pub const NEVER: u64 = 9;

    pub const SIMPLEST: Self = Self { access: Access::WRITE, len: 8, at: 0 };

    pub fn execute(at: usize) -> Self {
        Self { access: Access::EXECUTE, len: Access::EXECUTE.default_len(), at }
    }

    pub fn kind(self) -> Kind {
        if self.access == Access::EXECUTE { Kind::Execute } else { Kind::Data }
    }

    pub fn is_valid(self) -> bool {
        self.len != Self::NEVER
    }
}

/// Whose breakpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of a thread, wherever it is.
    Thread(usize),
    /// Of a thread, while it is on these CPUs.
    ThreadOn(usize, BTreeSet<CpuId>),
    /// Of these CPUs.
    Cpus(BTreeSet<CpuId>),
}

impl Whose {
    pub fn thread(&self) -> Option<usize> {
        match self {
            Self::Thread(thread) | Self::ThreadOn(thread, _) => Some(*thread),
            Self::Cpus(_) => None,
        }
    }

    pub fn cpus(&self) -> Option<&BTreeSet<CpuId>> {
        match self {
            Self::Thread(_) => None,
            Self::ThreadOn(_, cpus) | Self::Cpus(cpus) => Some(cpus),
        }
    }
}

/// Whether a breakpoint counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counting {
    On,
    Off,
}

/// Whether children inherit a breakpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heirs {
    Nobody,
    Children,
}

/// A thread or a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kin {
    /// It may have children.
    Thread,
    Process,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A fresh thread takes the place of another, which ends. The old one's breakpoints stay until they are closed.
    Replace(usize),
    /// The task at a place ends, and a child of another one, a thread, takes its place.
    Fork {
        parent: usize,
        child: usize,
        kin: Kin,
    },
    Open {
        number: u32,
        whose: Whose,
        watch: Watch,
        counting: Counting,
        heirs: Heirs,
    },
    Modify {
        number: u32,
        watch: Watch,
    },
    Switch {
        number: u32,
        counting: Counting,
    },
    Close(u32),
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::On { "on" } else { "off" })
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.access, self.len, self.at)
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cpus: &BTreeSet<CpuId>| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Thread(thread) => write!(f, "thread {thread}"),
            Self::ThreadOn(thread, cpus) => write!(f, "thread {thread} cpus {}", list(cpus)),
            Self::Cpus(cpus) => write!(f, "cpus {}", list(cpus)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replace(thread) => write!(f, "replace thread {thread}"),
            Self::Fork { parent, child, kin } => {
                let kin = if *kin == Kin::Thread { "thread" } else { "process" };
                write!(f, "fork {parent} as {child} {kin}")
            }
            Self::Open { number, whose, watch, counting, heirs } => {
                let heirs = if *heirs == Heirs::Children { "inherit " } else { "" };
                write!(f, "open {number} {watch} {counting} {heirs}{whose}")
            }
            Self::Modify { number, watch } => write!(f, "modify {number} {watch}"),
            Self::Switch { number, counting } => write!(f, "switch {number} {counting}"),
            Self::Close(number) => write!(f, "close {number}"),
        }
    }
}

impl FromStr for Watch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is nothing to watch; write it as w/8@0 (access, bytes, which address)");
        let (access, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (len, at) = rest.split_once('@').ok_or_else(wrong)?;
        let access = Access::parse(access).ok_or_else(wrong)?;
        Ok(Self { access, len: len.parse().map_err(|_| wrong())?, at: at.parse().map_err(|_| wrong())? })
    }
}

impl FromStr for Counting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(format!("`{text}` is neither on nor off")),
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn whose(words: &[&str]) -> Result<Whose, String> {
    let cpus = |list: &str| list.split(',').map(|cpu| number(cpu).map(CpuId)).collect::<Result<BTreeSet<_>, _>>();
    match words {
        ["thread", thread] => Ok(Whose::Thread(number(thread)?)),
        ["thread", thread, "cpus", list] => Ok(Whose::ThreadOn(number(thread)?, cpus(list)?)),
        ["cpus", list] => Ok(Whose::Cpus(cpus(list)?)),
        _ => Err(format!("`{}` says nobody; write `thread 0`, `thread 0 cpus 0,1` or `cpus 0,1`", words.join(" "))),
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["replace", "thread", thread] => Ok(Self::Replace(number(thread)?)),
            ["fork", parent, "as", child, kin @ ("thread" | "process")] => {
                let kin = if kin == "thread" { Kin::Thread } else { Kin::Process };
                Ok(Self::Fork { parent: number(parent)?, child: number(child)?, kin })
            }
            ["open", name, watch, counting, ref rest @ ..] => {
                let (heirs, rest) = match rest {
                    ["inherit", rest @ ..] => (Heirs::Children, rest),
                    rest => (Heirs::Nobody, rest),
                };
                Ok(Self::Open {
                    number: number(name)?,
                    whose: whose(rest)?,
                    watch: watch.parse()?,
                    counting: counting.parse()?,
                    heirs,
                })
            }
            ["modify", name, watch] => Ok(Self::Modify { number: number(name)?, watch: watch.parse()? }),
            ["switch", name, counting] => Ok(Self::Switch { number: number(name)?, counting: counting.parse()? }),
            ["close", name] => Ok(Self::Close(number(name)?)),
            _ => Err(format!("`{line}` is no step; there are replace, fork, open, modify, switch and close")),
        }
    }
}

/// Reads a sequence, a step a line; empty lines and those that begin with # say nothing.
pub fn parse(text: &str) -> Result<Vec<Step>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let steps = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    steps.map(|(number, line)| line.parse().map_err(|error| format!("line {number}: {error}"))).collect()
}
