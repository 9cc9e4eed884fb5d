//! Where reports and hits go: standard error, standard output, or a file; and the line that shows that something is going on.
//!
//! **Invariant:** what could not be written where it should go ends in an exit status other than 0. The progress line is on a
//! terminal only, and gone before anything else is written.

use crate::options::watch::WatchOptions;
use crate::stderr::report_error;
use crate::style::{Destination, Grouping, Ink, Style};
use pmux_ui::text::in_locale;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

enum WatchSink {
    Stderr,
    Stdout,
    File(File, String),
}

/// Whether a progress line is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Never: no user looks at it, or the terminal belongs to the command.
    Off,
    /// It may be shown, and is not there now.
    Hidden,
    /// It is there.
    Shown,
}

pub(super) struct WatchOutput {
    sink: WatchSink,
    /// How text may look there.
    pub(super) style: Style,
    progress: Progress,
    json: bool,
    /// Whether something could not be written.
    pub(super) is_lost: bool,
}

impl WatchOutput {
    /// Opens the place that the options name.
    pub(super) fn open(options: &WatchOptions) -> Result<Self, String> {
        let sink = match &options.output {
            None => WatchSink::Stderr,
            Some(path) if path.as_path() == Path::new("-") => WatchSink::Stdout,
            Some(path) => {
                let name = path.display().to_string();
                let file = File::create(path).map_err(|error| format!("can't write to {name}: {error}"))?;
                WatchSink::File(file, name)
            }
        };
        let of_stderr = || terminal_size::terminal_size_of(io::stderr());
        let (is_terminal, size) = match &sink {
            WatchSink::Stderr => (io::stderr().is_terminal(), of_stderr()),
            WatchSink::Stdout => (io::stdout().is_terminal(), terminal_size::terminal_size_of(io::stdout())),
            WatchSink::File(file, _) => (file.is_terminal(), of_stderr()),
        };
        let columns = size.map(|(width, _)| usize::from(width.0));
        let destination = if is_terminal { Destination::Terminal(columns) } else { Destination::Other };
        let no_color = std::env::var_os("NO_COLOR");
        let style = Style::resolve(options.color, destination, no_color.as_deref(), Grouping::Thousands);
        let shows = io::stderr().is_terminal() && !options.trace && options.command.is_empty();
        let progress = if shows { Progress::Hidden } else { Progress::Off };
        Ok(Self { sink, style, progress, json: options.json, is_lost: false })
    }

    /// Writes in one call, so that lines of several programs don't mix.
    pub(super) fn put(&mut self, text: &str) {
        self.hide();
        if self.is_lost || text.is_empty() {
            return;
        }
        let text = if self.json { Cow::Borrowed(text) } else { in_locale(text) };
        let written = match &mut self.sink {
            WatchSink::Stderr => io::stderr().write_all(text.as_bytes()),
            WatchSink::Stdout => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
            WatchSink::File(file, _) => file.write_all(text.as_bytes()),
        };
        if let Err(error) = written {
            self.is_lost = true;
            let name = match &self.sink {
                WatchSink::File(_, name) => name.as_str(),
                // A reader that has enough (`| head`) is no error to talk about.
                WatchSink::Stdout if error.kind() != io::ErrorKind::BrokenPipe => "standard output",
                WatchSink::Stderr | WatchSink::Stdout => return,
            };
            report_error(&format!("can't write to {name}: {error}"), 0);
        }
    }

    /// Shows, in place of the line before, how far it is.
    pub(super) fn progress(&mut self, text: &str) {
        if self.progress == Progress::Off {
            return;
        }
        let mut line = String::from("\r\u{1b}[K");
        let width = self.style.width.unwrap_or(80).saturating_sub(1);
        let cut: String = text.chars().take(width).collect();
        self.style.paint(&mut line, Ink::Faint, &cut);
        // When it fails, no user looks at it.
        let _ = io::stderr().write_all(line.as_bytes());
        self.progress = Progress::Shown;
    }

    /// Takes the progress line away.
    pub(super) fn hide(&mut self) {
        if self.progress == Progress::Shown {
            let _ = io::stderr().write_all(b"\r\x1b[K");
            self.progress = Progress::Hidden;
        }
    }
}
