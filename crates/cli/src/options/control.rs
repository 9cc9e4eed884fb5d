//! `-D` and `--control`: when events count, where that is not from the beginning to the end.
//!
//! **Invariant:** events that nothing would ever switch on are refused.

use super::refuse_first;
use pmux::units::milliseconds;
use std::path::PathBuf;

/// Where commands come from, and where answers go: `fifo:COMMANDS[,ANSWERS]` or `fd:COMMANDS[,ANSWERS]`, as with perf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ControlPlace {
    pub(crate) commands: ControlEnd,
    pub(crate) answers: Option<ControlEnd>,
}

/// A FIFO, or a descriptor that was inherited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ControlEnd {
    Fifo(PathBuf),
    Descriptor(u32),
}

impl std::fmt::Display for ControlEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fifo(path) => write!(f, "--control: {}", path.display()),
            Self::Descriptor(number) => write!(f, "--control: descriptor {number}"),
        }
    }
}

pub(super) fn control_place(text: &str) -> Result<ControlPlace, String> {
    let wrong = || "expected fifo:COMMANDS[,ANSWERS] or fd:COMMANDS[,ANSWERS]".to_owned();
    let (kind, names) = text.split_once(':').ok_or_else(wrong)?;
    let end = |name: &str| match kind {
        _ if name.is_empty() => Err(wrong()),
        "fifo" => Ok(ControlEnd::Fifo(name.into())),
        "fd" => name.parse().map(ControlEnd::Descriptor).map_err(|_| format!("`{name}` is no descriptor")),
        _ => Err(wrong()),
    };
    let (commands, answers) = names.split_once(',').map_or((names, None), |(first, second)| (first, Some(second)));
    Ok(ControlPlace { commands: end(commands)?, answers: answers.map(end).transpose()? })
}

/// From when on events count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delay {
    /// So many milliseconds after the command.
    Ms(u64),
    /// From the first `enable` of `--control` on: -1.
    UntilEnabled,
}

impl Delay {
    /// After how long events begin by themselves.
    pub(crate) fn time(self) -> Option<std::time::Duration> {
        match self {
            Self::Ms(ms) => Some(std::time::Duration::from_millis(ms)),
            Self::UntilEnabled => None,
        }
    }
}

pub(super) fn delay(text: &str) -> Result<Delay, String> {
    match text {
        "-1" => Ok(Delay::UntilEnabled),
        _ if text.starts_with('-') => Err("it must be -1, or a time such as 100ms, 2s or 1m".to_owned()),
        _ => milliseconds(text).map(Delay::Ms),
    }
}

/// A sentence for the user where events would never count.
pub(super) fn check_delay(delay: Option<Delay>, control: Option<&ControlPlace>) -> Result<(), String> {
    let text = "-D -1 starts with the events off: give --control fifo:PATH or fd:NUMBER as well, through which they are switched on";
    refuse_first(&[(delay == Some(Delay::UntilEnabled) && control.is_none(), text)])
}
