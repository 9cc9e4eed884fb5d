//! Where reports go: standard error, a file, or a descriptor.
//!
//! **Invariant:** a report that could not be written where it should go is written to standard error, is complained
//! about, and ends in an exit status other than 0. A command that is being measured never suffers from it.

use super::format::{self, Layout, Look};
use super::report::{About, StatReport};
use crate::descriptor::{self, OpenFailure};
use crate::options::stat::StatOptions;
use crate::stderr::{report_error, write_stderr};
use crate::style::{Destination, Grouping, Style};
use pmux_ui::text::in_locale;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where reports go.
pub(crate) struct StatOutput {
    /// The file; without one it is standard error.
    file: Option<File>,
    name: String,
    look: Look,
    /// Whether notes are written although their place is read by a program (`-v`).
    always_notes: bool,
    /// How writing went so far.
    pub(super) state: State,
    announcement: Option<String>,
}

/// How writing went so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// All is written where it should be.
    Good,
    /// What could not be written there stands on standard error.
    Diverted,
    /// Not even that is possible: nothing is told any more.
    Lost,
}

impl StatOutput {
    /// Opens the place that the options name.
    pub(crate) fn open(options: &StatOptions) -> Result<Self, String> {
        let (file, name) = match (&options.output, options.log_fd) {
            (Some(path), _) => {
                let mut how = OpenOptions::new();
                how.create(true).write(true).append(options.append).truncate(!options.append);
                let name = path.display().to_string();
                let mut file = how.open(path).map_err(|error| cannot_write(&name, &error))?;
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
                // Before anything is measured: a place that can't be written to is known in time.
                file.write_all(format::started_on(now).as_bytes()).map_err(|error| cannot_write(&name, &error))?;
                (Some(file), name)
            }
            (None, Some(fd)) => (Some(open_descriptor(fd)?), format!("descriptor {fd}")),
            (None, None) => (None, "standard error".to_owned()),
        };
        let terminal = file.as_ref().map_or_else(|| io::stderr().is_terminal(), File::is_terminal);
        let destination = if terminal {
            Destination::Terminal(terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0)))
        } else {
            Destination::Other
        };
        let (layout, columns) = options.format();
        let grouping = if options.no_big_num { Grouping::None } else { Grouping::Thousands };
        let no_color = std::env::var_os("NO_COLOR");
        let look = Look {
            layout,
            columns,
            tree: if options.verbose > 0 { format::TreeDetail::Complete } else { format::TreeDetail::Folded },
            style: Style::resolve(options.color, destination, no_color.as_deref(), grouping),
        };
        Ok(Self { file, name, look, always_notes: options.verbose > 0, state: State::Good, announcement: None })
    }

    /// Writes one report. Notes that the layout has no place for go to standard error where that is another place, or
    /// where all are asked for (`-v`).
    pub(crate) fn write(&mut self, report: &StatReport) {
        let text = format::compose(report, &self.look);
        let elsewhere = self.file.is_some();
        self.put(&text);
        if self.look.layout == Layout::Table {
            return;
        }
        if elsewhere || self.always_notes {
            let lines = format::notes_text(report, self.look.style);
            if !lines.is_empty() {
                write_stderr(lines.trim_end_matches('\n'));
            }
        } else {
            report.notes.iter().filter(|note| note.about == About::Loss).for_each(|note| self.remark(&note.text));
        }
    }

    /// Writes a line between those for programs.
    fn remark(&mut self, text: &str) {
        match self.look.layout {
            Layout::Table => self.put(&format!(" {text}\n")),
            Layout::Csv(_) => self.put(&format!("# {text}\n")),
            Layout::Json => self.put(&format!("{{\"note\" : {}}}\n", serde_json::Value::from(text))),
        }
    }

    /// Keeps one line about the whole measurement for [`StatOutput::begin`].
    pub(crate) fn announce(&mut self, text: String) {
        self.announcement = Some(text);
    }

    /// Says what is to be said before anything else, once: a measurement begins. A file for programs is left to the
    /// reports.
    pub(crate) fn begin(&mut self) {
        let Some(text) = self.announcement.take() else { return };
        match (&self.look.layout, &self.file) {
            (Layout::Csv(_) | Layout::Json, Some(_)) => write_stderr(&format!("pmux: {text}")),
            _ => self.remark(&text),
        }
    }

    /// Writes in one call, so that reports of two programs in one file do not mix within a line.
    fn put(&mut self, text: &str) {
        let text = if self.look.layout == Layout::Table { in_locale(text) } else { Cow::Borrowed(text) };
        let Some(file) = &mut self.file else {
            if io::stderr().write_all(text.as_bytes()).is_err() {
                self.state = State::Lost;
            }
            return;
        };
        if let Err(error) = file.write_all(text.as_bytes()) {
            report_error(&format!("{}; it follows here", cannot_write(&self.name, &error)), 0);
            self.state = State::Diverted;
            self.file = None;
            self.put(&text);
        }
    }
}

fn open_descriptor(fd: u32) -> Result<File, String> {
    let wrong = |what: &str| Err(format!("--log-fd {fd}: {what}"));
    descriptor::open(fd, OpenOptions::new().append(true)).or_else(|failure| match failure {
        OpenFailure::Missing => wrong("no such descriptor is open"),
        OpenFailure::Socket => wrong("it is neither a file nor a pipe nor a terminal"),
        OpenFailure::Other(error) => wrong(&format!("can't be written to: {error}")),
    })
}

fn cannot_write(name: &str, error: &io::Error) -> String {
    format!("can't write to {name}: {error}")
}
