//! `--control`: another program, or the command itself, says when events count.
//!
//! What it is: [`Channel`] reads lines from a FIFO or a pipe and answers each command that was carried out, as perf does. Read first:
//! [`Channel::take`].
//!
//! **Invariant:** nothing here waits: what is read was announced, and an answer that finds no room is left out.

use crate::descriptor::{self, OpenFailure};
use crate::failure::{Failure, failed};
use crate::options::control::{ControlEnd, ControlPlace};
use crate::stderr::{visible, write_stderr};
use pmux::wait::{Token, Waiter};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlCommand {
    Enable,
    Disable,
    /// Go on in another file.
    Snapshot,
    Stop,
    Ping,
}

/// What follows a command that was carried out: the line and a zero byte, as with perf.
const ANSWER: &[u8] = b"ack\n\0";
/// A longer line is no command.
const LINE_MOST: usize = 80;
/// As a number of Linux.
const O_NONBLOCK: i32 = 0o4000;

#[derive(Debug)]
pub(crate) struct Channel {
    commands: File,
    answers: Option<File>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// Whether an answer was left out, which is said once.
    was_full: bool,
}

impl Channel {
    /// Opens what an option names, if there is one.
    pub(crate) fn open(place: Option<&ControlPlace>) -> Result<Option<Self>, Failure> {
        let Some(place) = place else { return Ok(None) };
        let commands = open(&place.commands)?;
        let answers = place.answers.as_ref().map(open).transpose()?;
        let file = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
        if answers.as_ref().is_some_and(|answers| file(answers) == file(&commands)) {
            return Err(failed("--control: commands and answers need a FIFO each"));
        }
        Ok(Some(Self { commands, answers, line: Vec::new(), was_full: false }))
    }

    /// Wakes the waiter with this token when there is something to read.
    pub(crate) fn watch(&self, waiter: &mut Waiter, token: Token) {
        waiter.watch(&self.commands, token);
    }

    /// The commands that have come whole, in their order. Each is to be answered when it is carried out.
    pub(crate) fn take(&mut self) -> Vec<ControlCommand> {
        let mut bytes = [0; 4096];
        let count = match self.commands.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Vec::new(),
            Err(error) => {
                write_stderr(&format!("pmux: --control: {error}"));
                return Vec::new();
            }
        };
        let mut commands = Vec::new();
        for &byte in bytes.iter().take(count) {
            match byte {
                b'\n' | 0 => commands.extend(command(&std::mem::take(&mut self.line))),
                _ if self.line.len() > LINE_MOST => {}
                byte => self.line.push(byte),
            }
        }
        commands
    }

    /// A command was carried out.
    pub(crate) fn answer(&mut self) {
        // To a pipe it is written whole, or not at all.
        if let Some(Err(error)) = self.answers.as_mut().map(|answers| answers.write(ANSWER))
            && !std::mem::replace(&mut self.was_full, true)
        {
            let why = match error.kind() {
                ErrorKind::WouldBlock => "there are too many that were not read".to_owned(),
                _ => error.to_string(),
            };
            write_stderr(&format!("pmux: --control: answers are left out: {why}"));
        }
    }
}

/// What a line says; nothing, which is told, where that is no command.
fn command(line: &[u8]) -> Option<ControlCommand> {
    let text = String::from_utf8_lossy(line);
    Some(match text.trim() {
        "" => return None,
        "enable" => ControlCommand::Enable,
        "disable" => ControlCommand::Disable,
        "snapshot" => ControlCommand::Snapshot,
        "stop" => ControlCommand::Stop,
        "ping" => ControlCommand::Ping,
        text => {
            let known = "enable, disable, ping, snapshot, stop; all events are switched together";
            write_stderr(&format!("pmux: --control: `{}` is no command: {known}", visible(text)));
            return None;
        }
    })
}

/// Opens one end for reading and writing: nothing waits for the other end then, and it may come and go.
fn open(end: &ControlEnd) -> Result<File, Failure> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).custom_flags(O_NONBLOCK);
    let opened = match end {
        ControlEnd::Fifo(path) => descriptor::open_path(path, &how),
        ControlEnd::Descriptor(number) => descriptor::open(*number, &how),
    };
    let file = opened.map_err(|failure| match (end, failure) {
        (ControlEnd::Fifo(path), OpenFailure::Missing) => {
            failed(format!("{end}: there is no such FIFO: mkfifo {}", path.display()))
        }
        (ControlEnd::Descriptor(_), OpenFailure::Missing) => failed(format!("{end}: it is not open")),
        (_, OpenFailure::Socket) => failed(format!("{end}: it is a socket: give a pipe or a FIFO")),
        (_, OpenFailure::Other(error)) => failed(format!("{end}: {error}")),
    })?;
    let is_fifo = file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    if !is_fifo && !file.is_terminal() {
        return Err(failed(format!("{end}: it is neither a pipe nor a FIFO")));
    }
    Ok(file)
}
