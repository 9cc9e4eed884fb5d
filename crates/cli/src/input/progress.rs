//! How far reading is, as a line on a terminal.
//!
//! **Invariant:** standard error only, nothing within the first tenth of a second, and nothing is left behind.

use pmux::profile::{Input, Progress};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// A line is drawn as often as this.
const EVERY: Duration = Duration::from_millis(100);

struct ProgressLine {
    last: Instant,
    is_drawn: bool,
}

impl ProgressLine {
    fn draw(&mut self, progress: Progress) {
        if self.last.elapsed() < EVERY {
            return;
        }
        (self.last, self.is_drawn) = (Instant::now(), true);
        let mib = progress.bytes >> 20;
        let text = match progress.of_bytes {
            Some(all) if all > 0 => format!("reading: {} %, {mib} MiB", 100 * progress.bytes / all),
            _ => format!("reading: {mib} MiB"),
        };
        let _ = write!(io::stderr(), "\r\u{1b}[K{text}");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_drawn {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// Tells how far reading is, if standard error is a terminal.
pub(crate) fn on_stderr(input: Input) -> Input {
    if !io::stderr().is_terminal() {
        return input;
    }
    let mut line = ProgressLine { last: Instant::now(), is_drawn: false };
    input.on_progress(move |progress| line.draw(progress))
}

/// The same where lines are printed meanwhile: not into these.
pub(crate) fn on_stderr_beside_output(input: Input) -> Input {
    if io::stdout().is_terminal() { input } else { on_stderr(input) }
}
