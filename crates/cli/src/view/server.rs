//! The smallest server that a browser fetches one file from.
//!
//! What it is: [`answer`] decides by the head of a request, and is pure; [`respond`] writes what is said to it.
//!
//! **Invariant:** who does not know the secret is told nothing.

use super::PROFILER;
use crate::loopback::{self, Limits};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

const LIMITS: Limits = Limits { bytes: 16 << 10, write: Duration::from_secs(60) };

pub(super) struct ServedProfile {
    /// With the secret.
    pub(super) path: String,
    pub(super) port: u16,
    /// Compressed JSON.
    pub(super) body: Arc<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Profile,
    /// The profile without its body, or leave to ask for it.
    Head,
    Refused(&'static str),
}

/// Serves for ever.
pub(super) fn serve(listener: &TcpListener, page: ServedProfile) -> ! {
    loopback::serve(listener, LIMITS, move |head| {
        head.windows(4).any(|four| four == b"\r\n\r\n").then(|| respond(head, &page))
    })
}

fn respond(head: &[u8], page: &ServedProfile) -> loopback::Answer {
    let answer = answer(&String::from_utf8_lossy(head), &page.path, page.port);
    let (status, length) = match answer {
        Answer::Profile | Answer::Head => ("200 OK", page.body.len()),
        Answer::Refused(status) => (status, 0),
    };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
         Access-Control-Allow-Origin: {PROFILER}\r\nAccess-Control-Allow-Methods: GET, HEAD\r\n\
         Access-Control-Allow-Private-Network: true\r\nVary: Origin\r\nX-Content-Type-Options: nosniff\r\n"
    );
    if length > 0 {
        text.push_str("Content-Type: application/json\r\nContent-Encoding: gzip\r\n");
    }
    text.push_str("\r\n");
    (text.into_bytes(), if answer == Answer::Profile { Arc::clone(&page.body) } else { Arc::default() })
}

fn answer(head: &str, path: &str, port: u16) -> Answer {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, asked) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let header = |name: &str| {
        lines.clone().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    // A page elsewhere may give this address a name of its own; then the browser says that name here.
    let host = header("host");
    if ![format!("127.0.0.1:{port}"), format!("localhost:{port}")].iter().any(|own| host.as_ref() == Some(own)) {
        return Answer::Refused("421 Misdirected Request");
    }
    if asked != path {
        return Answer::Refused("404 Not Found");
    }
    match method {
        "GET" => Answer::Profile,
        "HEAD" | "OPTIONS" => Answer::Head,
        _ => Answer::Refused("405 Method Not Allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_the_secret_are_answered() {
        let ask = |line: &str, host: &str| answer(&format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"), "/secret/p", 80);
        assert_eq!(ask("GET /secret/p", "127.0.0.1:80"), Answer::Profile);
        assert_eq!(ask("OPTIONS /secret/p", "localhost:80"), Answer::Head);
        assert_eq!(ask("GET /", "127.0.0.1:80"), Answer::Refused("404 Not Found"));
        assert_eq!(ask("GET /secret/p", "evil.example"), Answer::Refused("421 Misdirected Request"));
        assert_eq!(ask("POST /secret/p", "127.0.0.1:80"), Answer::Refused("405 Method Not Allowed"));
        assert_eq!(answer("", "/secret/p", 80), Answer::Refused("421 Misdirected Request"));
        assert_eq!(answer("\r\n\r\n", "/secret/p", 80), Answer::Refused("421 Misdirected Request"));
    }
}
