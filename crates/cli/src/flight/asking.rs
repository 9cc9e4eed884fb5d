//! `pmux flight dump`, `list` and `status`: asking recorders that run.
//!
//! Read first: [`find`], which says who is meant.
//!
//! **Invariant:** what a recorder says reaches the terminal without control characters. The recorders of other users are not asked,
//! but it is said that they are there.

use super::messages;
use crate::failure::{Failure, failed};
use crate::inspect::print;
use crate::options::exit_status;
use crate::options::flight::{DumpOptions, DumpTo, FlightAsk, ListOptions};
use crate::session;
use crate::stderr::{visible, write_stderr};
use pmux_daemon::flight::{AskError, ControlCommand, RecorderId, SocketDir, ask, snapshot_line};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a recorder may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a snapshot may take, where no option says it.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(60);

struct FoundRecorder {
    id: RecorderId,
    socket: PathBuf,
    /// Whether it is this user's or root's.
    is_trusted: bool,
    /// How it is, or why that is not known.
    status: Result<Value, AskError>,
}

pub(super) fn carry_out(ask: &FlightAsk) -> Result<u8, Failure> {
    match ask {
        FlightAsk::Dump(options) => dump(options),
        FlightAsk::List(options) => list(options),
        FlightAsk::Status(options) => status(options),
    }
}

fn dump(options: &DumpOptions) -> Result<u8, Failure> {
    let chosen = find(&options.to)?;
    let several = chosen.len() > 1;
    let patience = options.timeout.unwrap_or(SNAPSHOT_PATIENCE);
    // All at once: what one of them writes is no reason for another one to be late.
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked = chosen.iter().map(|of| scope.spawn(move || ask(&of.socket, ControlCommand::Dump, patience)));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or(Err(AskError::BadAnswer))).collect()
    });
    let (mut out, mut code) = (String::new(), exit_status::SUCCESS);
    for (recorder, answer) in chosen.iter().zip(answers) {
        match answer {
            Ok(answer) if options.to.json => out.push_str(&format!("{answer}\n")),
            Ok(answer) => {
                let path = answer["snapshot"].as_str().unwrap_or_default();
                out.push_str(&format!("{}\n", visible(path)));
                let of = if several { format!("{}: ", recorder.id) } else { String::new() };
                write_stderr(&format!("pmux flight: {of}{}", snapshot_line(&answer)));
            }
            Err(error) => {
                let too_late = if error == AskError::TimedOut { "; --timeout waits longer" } else { "" };
                write_stderr(&format!("pmux: recorder {}: {error}{too_late}", recorder.id));
                code = exit_status::FAILED;
            }
        }
    }
    Ok(print(&out).max(code))
}

fn list(options: &ListOptions) -> Result<u8, Failure> {
    let all = recorders(&folders(options.socket.as_deref())?);
    if options.json {
        let lines: Vec<String> = all.iter().filter_map(|of| of.status.as_ref().ok()).map(ToString::to_string).collect();
        return Ok(print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>()));
    }
    if all.is_empty() {
        write_stderr("pmux flight: no recorder runs");
        return Ok(exit_status::SUCCESS);
    }
    let lines = all.iter().map(|of| match &of.status {
        Ok(status) => format!("{:<12} {}", of.id.to_string(), messages::in_a_line(status)),
        Err(error) => format!("{:<12} {error}", of.id.to_string()),
    });
    Ok(print(&lines.map(|line| visible(&line) + "\n").collect::<String>()))
}

fn status(options: &DumpTo) -> Result<u8, Failure> {
    let all = match (&options.to, &options.recorder) {
        (None, None) => find(&DumpTo { to: Some("all".to_owned()), ..options.clone() })?,
        _ => find(options)?,
    };
    let mut out = String::new();
    for (index, recorder) in all.iter().enumerate() {
        let status = recorder.status.as_ref().map_err(|error| failed(format!("recorder {}: {error}", recorder.id)))?;
        if options.json {
            out.push_str(&format!("{status}\n"));
        } else {
            let gap = if index > 0 { "\n" } else { "" };
            let page = messages::page(&recorder.id.to_string(), status);
            out.push_str(&format!("{gap}{}", page.iter().map(|line| visible(line) + "\n").collect::<String>()));
        }
    }
    Ok(print(&out))
}

/// All that have a socket in these folders and may have a process; those of others too.
fn recorders(folders: &[SocketDir]) -> Vec<FoundRecorder> {
    let found = folders.iter().flat_map(SocketDir::recorders);
    let asked = found.map(|(id, socket)| {
        let status = ask(&socket, ControlCommand::Status, PATIENCE);
        let owner = |path: &Path| std::fs::metadata(path).ok().map(|seen| seen.uid());
        let is_trusted = owner(&socket).is_some_and(|user| user == 0 || Some(user) == owner(Path::new("/proc/self")));
        FoundRecorder { id, socket, is_trusted, status }
    });
    // What a recorder that was killed has left is none; the next one that starts takes it away.
    asked.filter(|of| !matches!(of.status, Err(AskError::NotListening | AskError::NoSocket))).collect()
}

/// The recorders that are meant.
fn find(to: &DumpTo) -> Result<Vec<FoundRecorder>, Failure> {
    let all = recorders(&folders(to.socket.as_deref())?);
    if let Some(name) = &to.recorder {
        let none = || format!("there is no recorder `{name}` of a service; what helps: pmux flight list, pmux status");
        return one(all, |of| of.id == RecorderId::Name(name.clone()), none);
    }
    let Some(text) = to.to.as_deref().filter(|text| *text != "all") else {
        return yours(all, if to.to.is_some() { Meant::All } else { Meant::One });
    };
    let known = match &names(&all)[..] {
        [] => "no recorder runs".to_owned(),
        names => format!("these run: {}", names.join(", ")),
    };
    match RecorderId::parse(text) {
        id @ RecorderId::Process(pid) => {
            let is_its = |status: &Value| status["process"] == pid;
            let fits = |of: &FoundRecorder| of.id == id || of.status.as_ref().is_ok_and(is_its);
            one(all, fits, || format!("process {pid} is not a recorder of yours; {known}"))
        }
        RecorderId::Name(_) => {
            let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let wanted = real(Path::new(text));
            let fits = |of: &FoundRecorder| directory(of).is_some_and(|directory| real(&directory) == wanted);
            one(all, fits, || format!("no recorder writes into {}; {known}", wanted.display()))
        }
    }
}

/// How many are meant where none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meant {
    One,
    All,
}

/// Those that this user may ask.
fn yours(all: Vec<FoundRecorder>, meant: Meant) -> Result<Vec<FoundRecorder>, Failure> {
    // Where root names no recorder, what root is told must not come from a recorder of just any user.
    let trusts = |of: &FoundRecorder| meant == Meant::All || of.is_trusted;
    let is_not =
        |of: &FoundRecorder| matches!(of.status, Err(AskError::NotPermitted | AskError::Refused(_))) || !trusts(of);
    let (others, yours): (Vec<_>, Vec<_>) = all.into_iter().partition(is_not);
    match (yours.len(), others.is_empty()) {
        (0, true) => Err(failed("no recorder runs: start one with pmux flight")),
        (0, false) => {
            let others = names(&others).join(", ");
            Err(failed(format!("none of the recorders that run is yours: {others}")))
        }
        (1, _) => Ok(yours),
        _ if meant == Meant::All => Ok(yours),
        _ => {
            let names = names(&yours).join(", ");
            Err(failed(format!(
                "several recorders run: say which one with --to PID, --to DIR or --to all\n  these run: {names}"
            )))
        }
    }
}

/// The one that fits, which may be asked.
fn one(
    all: Vec<FoundRecorder>,
    fits: impl Fn(&FoundRecorder) -> bool,
    none: impl FnOnce() -> String,
) -> Result<Vec<FoundRecorder>, Failure> {
    let chosen: Vec<FoundRecorder> = all.into_iter().filter(fits).collect();
    match chosen.first() {
        None => Err(failed(none())),
        Some(FoundRecorder { id, status: Err(error @ (AskError::NotPermitted | AskError::Refused(_))), .. }) => {
            Err(failed(format!("recorder {id}: {error}")))
        }
        Some(_) => Ok(chosen),
    }
}

fn folders(socket: Option<&Path>) -> Result<Vec<SocketDir>, Failure> {
    if let Some(path) = socket.filter(|path| !session::is_socket(path)) {
        return Err(failed(format!(
            "--socket {}: there is no socket that can be looked at: `pmux serve --socket PATH` makes one",
            path.display()
        )));
    }
    let mut folders = SocketDir::all();
    // The service that is meant may be elsewhere.
    let elsewhere =
        socket.map(Path::to_owned).or_else(session::socket_of_environment).map(|path| SocketDir::beside(&path));
    folders.extend(elsewhere.filter(|folder| !folders.contains(folder)));
    Ok(folders)
}

fn names(all: &[FoundRecorder]) -> Vec<String> {
    all.iter().map(|of| of.id.to_string()).collect()
}

fn directory(of: &FoundRecorder) -> Option<PathBuf> {
    of.status.as_ref().ok()?["directory"].as_str().map(PathBuf::from)
}
