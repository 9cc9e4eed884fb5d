//! What goes on in a terminal while something is measured: signals, and one line that says how far it is.
//!
//! **Invariant:** the command is told of a signal once, by the terminal or by us.

use crate::failure::{Failure, failed};
use crate::stderr::visible;
use pmux::Running;
use pmux::wait::Waiter;
pub(crate) use signal_hook::consts::SIGTERM;
use signal_hook::consts::{SIGINT, SIGQUIT};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::Write as _;

/// Lets SIGINT and SIGTERM end a program that has nothing to finish. A job in the background of a script was started to ignore
/// SIGINT, and is to end by it all the same.
pub(crate) fn end_by_signals() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let end = move || signals.forever().for_each(|signal| drop(emulate_default_handler(signal)));
    std::thread::Builder::new().spawn(end).map(drop)
}

/// What waits for all that a command measures, and for the signals that end it. Those that come between two waits are not lost.
pub(crate) fn waiter() -> Result<Waiter, Failure> {
    Waiter::with_signals().map_err(|errno| failed(format!("can't receive signals: {errno}")))
}

/// A signal asks for the end: the command is told, unless the terminal has told it already.
pub(crate) fn pass_on(signal: i32, child: Option<&mut Running>) {
    let Some(child) = child else { return };
    // A key of the terminal sends its signal to this process, and so to the command, which is in the same group.
    let stat = || std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let from_keys = matches!(signal, SIGINT | SIGQUIT) && is_foreground(&stat());
    if !from_keys {
        // If it has ended just now, the next look finds it.
        let _ = child.kill(signal);
    }
}

/// The line on the standard error that is written over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatusLine {
    /// There is a terminal, and the line is wanted.
    Shown,
    /// There is no terminal, or the line is not wanted.
    Hidden,
}

impl StatusLine {
    /// It is shown if all of it is wanted.
    pub(crate) const fn when(shown: bool) -> Self {
        if shown { Self::Shown } else { Self::Hidden }
    }

    /// Writes it; an empty text takes it away.
    pub(crate) fn show(self, text: &str) {
        if self == Self::Hidden {
            return;
        }
        let columns = terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        // A line that is too long would stay.
        let line: String = visible(text).chars().take(columns.saturating_sub(1)).collect();
        // When it fails, no user is left to see it.
        let _ = write!(std::io::stderr(), "\r\u{1b}[K{line}");
    }
}

/// Of `/proc/PID/stat`: whether the process group is the one in front of its terminal. Source: `proc_pid_stat(5)`.
fn is_foreground(stat: &str) -> bool {
    // The name may hold anything; behind it come state, parent, group, session, terminal and the group in front of it.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let (group, front) = (fields.nth(2), fields.nth(2));
    group.is_some() && group == front
}

#[cfg(test)]
mod tests {
    use super::is_foreground;

    #[test]
    fn keys_reach_the_group_in_front() {
        assert!(is_foreground("77 (pm ux) S) S 70 77 70 34816 77 4194304 1 2 3"));
        assert!(!is_foreground("77 (pmux) S 70 77 70 34816 70 4194304 1 2 3"), "in the background");
        assert!(!is_foreground("77 (pmux) S 70 77 70 0 -1 4194304 1 2 3"), "without a terminal");
        assert!(!is_foreground(""));
    }
}
