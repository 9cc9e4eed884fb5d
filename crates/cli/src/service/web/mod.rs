//! `pmux status --page`: the state of the service in a browser.
//!
//! What it is: a server for one page and what it asks for every second. It is a client of the service like any other, so that it shows what its
//! own user may see. Timelines of snapshots are made by `pmux timeline`, one at a time.
//! Read first: [`WebPage::answer`].
//!
//! **Invariant:** only who knows the token in the address is told anything; all others of this machine reach the port, too, and can make the
//! page slow (see [`loopback`]), and the service never.

use super::status::ask;
use crate::loopback::{self, Limits};
use crate::options::exit_status;
use pmux::server_api::Proc;
use pmux::server_api::shared::client::Service;
use pmux_daemon::http::{self, Access, Get, ParsedRequest, Status};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

const PAGE: &str = include_str!("page.html");
const LIMITS: Limits = Limits { bytes: http::MOST_BYTES, write: Duration::from_secs(5) };
/// Snapshots of a recorder that are listed: the newest.
const MOST_FILES: usize = 20;
/// Nothing is loaded from elsewhere, and no other page shows this one.
const POLICY: &str = "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\nReferrer-Policy: no-referrer\r\n";

struct WebPage {
    service: Service,
    token: String,
    /// One timeline is made at a time.
    timeline: Mutex<()>,
}

/// Serves the page until a signal ends this process; says where it is. Returns the exit status where that can't be printed.
///
/// # Errors
/// A sentence: it can't listen there.
pub(super) fn serve(service: Service, at: SocketAddr) -> Result<u8, String> {
    if !at.ip().is_loopback() {
        return Err(format!(
            "{at} can be reached from outside: `ssh -L 9465:127.0.0.1:9465 HOST pmux status --page` brings the page elsewhere"
        ));
    }
    let failed = |error: std::io::Error| {
        format!("the page can't be served at {at}: {error}; `--page 127.0.0.1:0` takes any port")
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    let place = listener.local_addr().map_err(failed)?;
    let token = loopback::secret().map_err(|error| format!("there is no secret for the page: {error}"))?;
    let printed = crate::inspect::print(&format!("http://{place}/{token}/\n"));
    if printed != exit_status::SUCCESS {
        // Where it is not known, it is of no use.
        return Ok(printed);
    }
    let page = WebPage { service, token, timeline: Mutex::new(()) };
    loopback::serve(&listener, LIMITS, move |request| Some((page.respond(request)?, Arc::default())))
}

impl WebPage {
    /// The answer to a request; `None` as long as that has not come whole.
    fn respond(&self, request: &[u8]) -> Option<Vec<u8>> {
        match http::understand(request, &Access::Everyone) {
            ParsedRequest::Get(get) => Some(self.answer(&get)),
            ParsedRequest::Invalid(status) => Some(http::refusal(status, http::Body::Sent)),
            ParsedRequest::Incomplete => None,
        }
    }

    fn answer(&self, get: &Get) -> Vec<u8> {
        let sent = |kind, text: &[u8]| http::answer(Status::Good, kind, POLICY, text, get.body);
        let says =
            |status, text: &str| http::answer(status, "text/plain; charset=utf-8", POLICY, text.as_bytes(), get.body);
        let nothing = || says(Status::NotFound, "there is no such page\n");
        let path = get.path.strip_prefix('/').unwrap_or_default();
        let (said, path) = path.split_once('/').map_or((path, None), |(said, path)| (said, Some(path)));
        if !http::is_same(said, &self.token) {
            return nothing();
        }
        // What the page asks for is told beside it.
        let Some(path) = path else {
            let more = format!("Location: {}/\r\n{POLICY}", get.path);
            return http::answer(Status::Moved, "text/plain; charset=utf-8", &more, b"", get.body);
        };
        match path {
            "" => sent("text/html; charset=utf-8", PAGE.as_bytes()),
            "status.json" => match self.status() {
                Ok(status) => sent("application/json", status.to_string().as_bytes()),
                Err(text) => says(Status::Busy, &text),
            },
            path => match path
                .strip_prefix("timeline/")
                .and_then(|path| path.split_once('/'))
                .map(|(recorder, file)| self.timeline(recorder, file))
            {
                Some(Ok(Some(page))) => sent("text/html; charset=utf-8", &page),
                Some(Err(text)) => says(Status::Busy, &text),
                Some(Ok(None)) | None => nothing(),
            },
        }
    }

    /// What the service says, and what is known here: the snapshots of recorders, and how long the service has run on CPUs.
    fn status(&self) -> Result<Value, String> {
        let mut status = ask(&self.service)?;
        status["host"] = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into();
        status["page_process"] = std::process::id().into();
        status["cpu_ms"] = status["service"]["process"].as_i64().and_then(cpu_ms).into();
        if let Some(recorders) = status["recorders"].as_array_mut() {
            for recorder in recorders {
                let files = recorder["directory"].as_str().and_then(|directory| snapshots(Path::new(directory)));
                let file = |(name, bytes)| json!({ "name": name, "bytes": bytes });
                recorder["files"] = files.map(|files| files.into_iter().map(file).collect::<Vec<_>>()).into();
            }
        }
        Ok(status)
    }

    /// The timeline of a snapshot; `None` where the recorder has none of that name.
    fn timeline(&self, recorder: &str, file: &str) -> Result<Option<Vec<u8>>, String> {
        let (recorder, file) = (decoded(recorder), decoded(file));
        let status = self.status()?;
        let recorders = status["recorders"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has = |each: &&Value| {
            each["name"].as_str() == Some(&recorder)
                && each["files"]
                    .as_array()
                    .is_some_and(|files| files.iter().any(|known| known["name"].as_str() == Some(&file)))
        };
        let Some(directory) = recorders.iter().find(has).and_then(|each| each["directory"].as_str()) else {
            return Ok(None);
        };
        let _alone = match self.timeline.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err("another timeline is being made: load this again in a moment\n".to_owned());
            }
        };
        made(&PathBuf::from(directory).join(file)).map(Some)
    }
}

/// Runs `pmux timeline`, and reads what it has made.
fn made(recording: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("there is no timeline: {error}\n");
    let ran = Command::new("/proc/self/exe")
        .args(["timeline", "-o", "/dev/stdout", "-i"])
        .arg(recording)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(failed)?;
    if ran.status.success() { Ok(ran.stdout) } else { Err(String::from_utf8_lossy(&ran.stderr).into_owned()) }
}

/// The newest files of a folder that are snapshots, with their sizes, the newest first: their names have the time. `None` where it can't be
/// read; one that is not there yet has none.
fn snapshots(directory: &Path) -> Option<Vec<(String, u64)>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries.flatten(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(Vec::new()),
        Err(_) => return None,
    };
    let is_snapshot = |name: &String| name.ends_with(".data") && !name.starts_with('.');
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(is_snapshot)?;
            // Not what a link leads to.
            let seen = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((name, seen.len()))
        })
        .collect();
    files.sort_by(|(one, _), (other, _)| other.cmp(one));
    files.truncate(MOST_FILES);
    Some(files)
}

/// What a part of a path stands for (`%20`).
fn decoded(part: &str) -> String {
    let bytes = part.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = part.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|code| u8::from_str_radix(code, 16).ok());
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// How long a process has run on CPUs, in milliseconds.
fn cpu_ms(process: i64) -> Option<u64> {
    let proc = Proc::system();
    let stat = proc.stat(i32::try_from(process).ok()?).ok()?;
    Some((stat.user_ticks + stat.system_ticks) * 1000 / proc.ticks_per_second())
}
