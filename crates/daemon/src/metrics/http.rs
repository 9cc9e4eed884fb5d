//! The little of HTTP that is needed: `GET /metrics`.
//!
//! **Invariant:** pure. What is not understood is answered with 400 and a sentence; nothing is guessed. Every answer is the last one
//! on its connection.

use super::text::Format;
use std::fmt::Write as _;

pub(super) const MOST_BYTES: usize = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParsedRequest {
    Incomplete,
    /// The numbers, or for `HEAD` only what would be sent in front of them.
    Metrics(Format, Body),
    /// Something else.
    Invalid(Status),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Sent,
    LeftOut,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Good,
    BadRequest,
    NotFound,
    WrongMethod,
    Busy,
    Misdirected,
    Unauthorized,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Good => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::WrongMethod => "405 Method Not Allowed",
            Self::Busy => "503 Service Unavailable",
            Self::Misdirected => "421 Misdirected Request",
            Self::Unauthorized => "401 Unauthorized",
        }
    }

    /// A sentence for the client that asked.
    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::Good => "",
            Self::BadRequest => "this is no request that can be understood: ask `GET /metrics HTTP/1.1`\n",
            Self::NotFound => "the numbers are at /metrics\n",
            Self::WrongMethod => "only GET and HEAD are understood\n",
            Self::Busy => "too many are asking already\n",
            Self::Unauthorized => "say the token of `metrics.token_file`: `Authorization: Bearer TOKEN`\n",
            Self::Misdirected => {
                "this service does not answer to that host name: ask by an address or localhost, or add the name to `metrics.hosts`\n"
            }
        }
    }
}

/// Which requests are answered.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// All: no browser reaches the listener.
    Everyone,
    /// Those for addresses, `localhost` and names below it, and these names. A page of the web whose name is made to lead here (DNS
    /// rebinding) asks by that name.
    Hosts(Vec<String>),
    /// Those with this token, which a page of the web does not know.
    Bearer(String),
}

impl Access {
    /// Whether a request may be for this value of `Host`; a port behind it changes nothing.
    fn includes(&self, value: &str) -> bool {
        let Self::Hosts(names) = self else { return true };
        let host = match value.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) => {
                return is_port(port) && address.parse::<std::net::Ipv6Addr>().is_ok();
            }
            None => value
                .split_once(':')
                .map_or(Some(value), |(host, port)| (port.bytes().all(|digit| digit.is_ascii_digit())).then_some(host)),
        };
        let Some(host) = host else { return false };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host.parse::<std::net::Ipv4Addr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.iter().any(|name| name.eq_ignore_ascii_case(&host))
    }
}

/// Whether a value of `Authorization` is this token. How long that takes says nothing of where they differ.
fn is_bearer(value: &str, token: &str) -> bool {
    let Some((scheme, said)) = value.split_once(' ') else { return false };
    let said = said.trim_start();
    let differ = said.bytes().zip(token.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    scheme.eq_ignore_ascii_case("bearer") && said.len() == token.len() && differ == 0
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

pub(super) fn understand(bytes: &[u8], access: &Access) -> ParsedRequest {
    let Some(end) = end_of_head(bytes) else {
        return if bytes.len() >= MOST_BYTES || !looks_like_one(bytes) {
            ParsedRequest::Invalid(Status::BadRequest)
        } else {
            ParsedRequest::Incomplete
        };
    };
    let Some(head) = bytes.get(..end).and_then(|head| std::str::from_utf8(head).ok()) else {
        return ParsedRequest::Invalid(Status::BadRequest);
    };
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return ParsedRequest::Invalid(Status::BadRequest) };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !is_token(method) || !target.starts_with('/') {
        return ParsedRequest::Invalid(Status::BadRequest);
    }
    let (mut format, mut host, mut authorization) = (Format::Prometheus, None, None);
    for line in lines {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| is_token(name)) else {
            return ParsedRequest::Invalid(Status::BadRequest);
        };
        let length_is_none = || value.trim() == "0";
        if name.eq_ignore_ascii_case("transfer-encoding")
            || (name.eq_ignore_ascii_case("content-length") && !length_is_none())
        {
            // The server takes no body.
            return ParsedRequest::Invalid(Status::BadRequest);
        }
        if name.eq_ignore_ascii_case("host") && host.replace(value.trim()).is_some() {
            return ParsedRequest::Invalid(Status::BadRequest);
        }
        if name.eq_ignore_ascii_case("authorization") && authorization.replace(value.trim()).is_some() {
            return ParsedRequest::Invalid(Status::BadRequest);
        }
        if name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text") {
            format = Format::OpenMetrics;
        }
    }
    // A browser always says it.
    if host.is_some_and(|host| !access.includes(host)) {
        return ParsedRequest::Invalid(Status::Misdirected);
    }
    if let Access::Bearer(token) = access
        && !authorization.is_some_and(|said| is_bearer(said, token))
    {
        return ParsedRequest::Invalid(Status::Unauthorized);
    }
    let body = match method {
        "GET" => Body::Sent,
        "HEAD" => Body::LeftOut,
        _ => return ParsedRequest::Invalid(Status::WrongMethod),
    };
    match target.split('?').next() {
        Some("/metrics") => ParsedRequest::Metrics(format, body),
        _ => ParsedRequest::Invalid(Status::NotFound),
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let at = |end: &[u8]| bytes.windows(end.len()).position(|window| window == end);
    match (at(b"\r\n\r\n"), at(b"\n\n")) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Whether it may become a request: other protocols are sent away at their first bytes.
fn looks_like_one(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    method.len() <= 16
        && method.iter().all(u8::is_ascii_uppercase)
        && line.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\r')
}

fn is_token(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_letter)
}

pub(super) fn answer(status: Status, content_type: &str, text: &str, body: Body) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n", status.line(), text.len());
    if status == Status::WrongMethod {
        head.push_str("Allow: GET, HEAD\r\n");
    }
    if status == Status::Unauthorized {
        head.push_str("WWW-Authenticate: Bearer\r\n");
    }
    // Writing into a string can't fail.
    let _ = write!(head, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
    let mut bytes = head.into_bytes();
    if body == Body::Sent {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

pub(super) fn refusal(status: Status) -> Vec<u8> {
    answer(status, "text/plain; charset=utf-8", status.sentence(), Body::Sent)
}
