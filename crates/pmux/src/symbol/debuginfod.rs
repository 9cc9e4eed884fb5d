//! Files by their build id, from servers that keep those of whole distributions.
//!
//! What it is: [`fetch`] asks one server after the other, and keeps what comes. Read first: [`fetch`].
//!
//! **Invariant:** no server is asked unless the user has said so. What comes is used only if it has the build id that was asked for, and
//! a file appears under its name only when it is whole.
//!
//! Source: `debuginfod(8)`, section WEBAPI.

use super::sources::{Sources, hex, is_same, unpadded};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// No file is larger.
const LARGEST_BYTES: u64 = 4 << 30;
/// How long a server may take to answer, and to send all of a file.
const ANSWER_SECONDS: &str = "15";
const WHOLE_SECONDS: &str = "600";
/// Who has not had a file is asked again after so long.
const FORGET_SECONDS: u64 = 600;

/// What servers call the program or library itself, and its debugging information.
pub(crate) const EXECUTABLE: &str = "executable";
pub(crate) const DEBUGINFO: &str = "debuginfo";

/// A file, from where it is kept or from the first server that has it. `None` where no server is to be asked, or none has it.
///
/// # Errors
/// Why it can't be had, as a sentence.
pub(crate) fn fetch(sources: &Sources, build_id: &[u8], what: &str) -> Result<Option<PathBuf>, String> {
    let id = hex(unpadded(build_id));
    let (false, Some(cache)) = (sources.debuginfod.is_empty() || id.len() < 8, &sources.cache) else { return Ok(None) };
    let folder = cache.join("debuginfod").join(&id);
    let (file, none) = (folder.join(what), folder.join(format!("{what}.none")));
    if file.is_file() {
        return Ok(Some(file));
    }
    let age = fs::metadata(&none).and_then(|about| about.modified()).ok().and_then(|then| then.elapsed().ok());
    if age.is_some_and(|age| age.as_secs() < FORGET_SECONDS) {
        return Ok(None);
    }
    let failed = |error: std::io::Error| format!("debuginfod: {}: {error}", folder.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    let new = folder.join(format!(".{what}.{}.{:?}", std::process::id(), std::thread::current().id()));
    let mut wrong = None;
    for server in &sources.debuginfod {
        let url = format!("{}/buildid/{id}/{what}", server.trim_end_matches('/'));
        match get(&url, &new) {
            Ok(true) => {
                let found = File::open(&new).ok().and_then(|file| pmux_linux::build_id::of_file(&file));
                if found.is_some_and(|found| is_same(build_id, &found)) {
                    fs::rename(&new, &file).map_err(failed)?;
                    return Ok(Some(file));
                }
                wrong = Some(format!("debuginfod: {url} is a file of another build"));
            }
            Ok(false) => {}
            Err(why) => wrong = Some(format!("debuginfod: {url}: {why}")),
        }
        let _ = fs::remove_file(&new);
    }
    if let Some(why) = wrong {
        return Err(why);
    }
    let _ = File::create(&none);
    Ok(None)
}

/// Gets a file by `curl`, which knows the proxies and the certificates of this machine; `false` where the server has none.
fn get(url: &str, into: &Path) -> Result<bool, String> {
    const CURL_HTTP_ERROR: i32 = 22;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("a server's address begins with http:// or https://".to_owned());
    }
    // What began in secret does not go on in the open.
    let protocols = if url.starts_with("https:") { "=https" } else { "=http,https" };
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--location", "--proto", protocols, "--connect-timeout"]);
    curl.args([ANSWER_SECONDS, "--speed-limit", "1", "--speed-time", ANSWER_SECONDS, "--max-time", WHOLE_SECONDS]);
    curl.arg("--max-filesize").arg(LARGEST_BYTES.to_string()).arg("--output").arg(into).arg("--").arg(url);
    let done = curl.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "this needs the program curl, which is not installed".to_owned(),
        _ => error.to_string(),
    })?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    match done.status.code() {
        Some(0) => Ok(true),
        Some(CURL_HTTP_ERROR) if said.contains("404") => Ok(false),
        _ => Err(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// A server that has one file; it notes what it is asked for, and ends after so many questions.
    fn server(has: &str, bytes: Vec<u8>, questions: usize) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, has) = (Arc::new(Mutex::new(Vec::new())), has.to_owned());
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().take(questions) {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let path = first.split(' ').nth(1).unwrap().to_owned();
                let (status, body) = match &path {
                    path if *path == has => ("200 OK", &bytes[..]),
                    path if path.contains("dddddddd") => ("500 Oh", &b""[..]),
                    _ => ("404 Not Found", &b""[..]),
                };
                let length = body.len();
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").unwrap();
                stream.write_all(body).unwrap();
                notes.lock().unwrap().push(path);
            }
        });
        (url, asked)
    }

    #[test]
    fn a_file_is_asked_for_once_and_kept() {
        pmux_testkit::skip_unless!(pmux_testkit::program("curl"));
        let Some((me, id)) = crate::symbol::sources::tests::own_build() else { return };
        let me = fs::read(me).unwrap();
        let path = format!("/buildid/{}/executable", hex(&id));
        let (url, asked) = server(&path, me.clone(), 8);
        let cache = tempfile::tempdir().unwrap();
        // The first server can't be reached.
        let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let sources = Sources {
            debuginfod: vec![format!("http://{closed_port}"), url.clone()],
            cache: Some(cache.path().to_owned()),
            ..Sources::default()
        };
        for _ in 0..2 {
            let found = fetch(&sources, &id, EXECUTABLE).unwrap().unwrap();
            assert_eq!(fs::read(found).unwrap(), me);
        }
        assert_eq!(*asked.lock().unwrap(), std::slice::from_ref(&path));
        let only = Sources { debuginfod: vec![url], ..sources.clone() };
        for _ in 0..2 {
            assert_eq!(fetch(&only, &id, DEBUGINFO), Ok(None));
        }
        assert_eq!(asked.lock().unwrap().len(), 2, "who has not had it is not asked again at once");
        let wrong = fetch(&only, &[0xdd; 20], EXECUTABLE).unwrap_err();
        assert!(wrong.contains("error: 500"), "{wrong}");
        assert!(fetch(&sources, &[0xdd; 20], EXECUTABLE).is_err());
        // Without servers, nothing is asked.
        let silent = Sources { debuginfod: Vec::new(), ..sources };
        assert_eq!(fetch(&silent, &[1; 20], EXECUTABLE), Ok(None));
        let odd = Sources { debuginfod: vec!["ftp://x".to_owned()], ..only };
        assert!(fetch(&odd, &[2; 20], EXECUTABLE).unwrap_err().contains("http://"));
    }

    #[test]
    fn a_file_of_another_build_is_not_taken() {
        pmux_testkit::skip_unless!(pmux_testkit::program("curl"));
        let me = fs::read(std::env::current_exe().unwrap()).unwrap();
        let (url, _) = server(&format!("/buildid/{}/executable", hex(&[7; 20])), me, 1);
        let cache = tempfile::tempdir().unwrap();
        let sources = Sources { debuginfod: vec![url], cache: Some(cache.path().to_owned()), ..Sources::default() };
        let wrong = fetch(&sources, &[7; 20], EXECUTABLE).unwrap_err();
        assert!(wrong.contains("another build"), "{wrong}");
        assert!(!cache.path().join("debuginfod").join(hex(&[7; 20])).join("executable").exists());
    }
}
