//! The little of HTTP that is needed: `GET` of a path, for metrics and for the page of `pmux status`.
//!
//! **Invariant:** pure. What is not understood is answered with 400 and a sentence; nothing is guessed. Every answer is the last one
//! on its connection.

use std::fmt::Write as _;

/// A request is no longer.
pub const MOST_BYTES: usize = 8192;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Get {
    /// The path, without what stands behind a question mark, as it was sent.
    pub path: String,
    /// Whether it is to be sent.
    pub body: Body,
    /// Whether OpenMetrics is accepted.
    pub openmetrics: bool,
}

/// What some bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParsedRequest {
    /// The beginning of a request.
    Incomplete,
    /// What is at a path.
    Get(Get),
    /// Something else.
    Invalid(Status),
}

/// What follows the head of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// What was asked for.
    Sent,
    /// Nothing: only the head was asked for.
    LeftOut,
}

/// How a request ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// 200.
    Good,
    /// 301.
    Moved,
    /// 400.
    BadRequest,
    /// 401.
    Unauthorized,
    /// 404.
    NotFound,
    /// 405.
    WrongMethod,
    /// 421: for a host that is none of ours.
    Misdirected,
    /// 503.
    Busy,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Good => "200 OK",
            Self::Moved => "301 Moved Permanently",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::WrongMethod => "405 Method Not Allowed",
            Self::Busy => "503 Service Unavailable",
            Self::Misdirected => "421 Misdirected Request",
            Self::Unauthorized => "401 Unauthorized",
        }
    }

    /// A sentence for the client that asked.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Good | Self::Moved => "",
            Self::BadRequest => "this is no request that can be understood: ask as in `GET /metrics HTTP/1.1`\n",
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
pub enum Access {
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
                let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
                return is_port && address.parse::<std::net::Ipv6Addr>().is_ok();
            }
            None => value.split_once(':').map_or(Some(value), |(host, port)| is_number(port).then_some(host)),
        };
        let Some(host) = host else { return false };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host.parse::<std::net::Ipv4Addr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || names.iter().any(|name| name.eq_ignore_ascii_case(&host))
    }
}

/// Whether a value of `Authorization` is this token.
fn is_bearer(value: &str, token: &str) -> bool {
    let Some((scheme, said)) = value.split_once(' ') else { return false };
    scheme.eq_ignore_ascii_case("bearer") && is_same(said.trim_start(), token)
}

/// Whether what was said is the token. How long that takes says nothing of where they differ.
#[must_use]
pub fn is_same(said: &str, token: &str) -> bool {
    let differ = said.bytes().zip(token.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    said.len() == token.len() && differ == 0
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|digit| digit.is_ascii_digit())
}

const BAD: ParsedRequest = ParsedRequest::Invalid(Status::BadRequest);

/// What has come of a request, and whether it may be answered.
#[must_use]
pub fn understand(bytes: &[u8], access: &Access) -> ParsedRequest {
    let Some(end) = end_of_head(bytes) else {
        let is_none = bytes.len() >= MOST_BYTES || !looks_like_one(bytes);
        return if is_none { BAD } else { ParsedRequest::Incomplete };
    };
    let Some(head) = bytes.get(..end).and_then(|head| std::str::from_utf8(head).ok()) else { return BAD };
    let mut lines = head.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return BAD };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !is_token(method) || !target.starts_with('/') {
        return BAD;
    }
    let (mut openmetrics, mut host, mut authorization) = (false, None, None);
    for line in lines {
        let Some((name, value)) = line.split_once(':').filter(|(name, _)| is_token(name)) else { return BAD };
        let is = |header: &str| name.eq_ignore_ascii_case(header);
        // The server takes no body.
        let has_body = is("transfer-encoding") || (is("content-length") && value.trim() != "0");
        let is_repeated = (is("host") && host.replace(value.trim()).is_some())
            || (is("authorization") && authorization.replace(value.trim()).is_some());
        if has_body || is_repeated {
            return BAD;
        }
        openmetrics |= is("accept") && value.contains("application/openmetrics-text");
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
    let path = target.split('?').next().unwrap_or_default().to_owned();
    ParsedRequest::Get(Get { path, body, openmetrics })
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

/// A whole answer; `more` are lines of its head, each with its end.
#[must_use]
pub fn answer(status: Status, content_type: &str, more: &str, text: &[u8], body: Body) -> Vec<u8> {
    let length = text.len();
    let mut head =
        format!("HTTP/1.1 {}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}", status.line());
    head.push_str(match status {
        Status::WrongMethod => "Allow: GET, HEAD\r\n",
        Status::Unauthorized => "WWW-Authenticate: Bearer\r\n",
        _ => "",
    });
    // Writing into a string can't fail.
    let _ = write!(head, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n");
    let mut bytes = head.into_bytes();
    if body == Body::Sent {
        bytes.extend_from_slice(text);
    }
    bytes
}

/// An answer that says no, and why.
#[must_use]
pub fn refusal(status: Status, body: Body) -> Vec<u8> {
    answer(status, "text/plain; charset=utf-8", "", status.sentence().as_bytes(), body)
}
