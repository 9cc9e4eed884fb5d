//! `pmux view`: a recording in the Firefox Profiler.
//!
//! What it is: the profile (`convert::firefox`) is served on this machine only, and the profiler, a page that runs in the browser,
//! fetches it from here; it goes nowhere else. Read first: [`view`], then [`server`].
//!
//! **Invariant:** it listens on 127.0.0.1 only, and answers those only who know the secret in the link.

mod server;

use crate::convert::firefox;
use crate::failure::{Failure, failed};
use crate::foreground;
use crate::input;
use crate::loopback;
use crate::options::convert::ViewOptions;
use crate::picture;
use crate::stderr::report_error;
use flate2::Compression;
use flate2::write::GzEncoder;
use pmux::profile::LookupDetail;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

/// The page that shows profiles.
pub(super) const PROFILER: &str = "https://profiler.firefox.com";

/// Runs `pmux view` and returns the exit status. It ends by a signal.
pub(crate) fn view(options: &ViewOptions) -> u8 {
    match run(options) {
        Ok(never) => match never {},
        Err((text, status)) => report_error(&text, status),
    }
}

fn run(options: &ViewOptions) -> Result<std::convert::Infallible, Failure> {
    foreground::end_by_signals().map_err(|error| failed(format!("signals can't be received: {error}")))?;
    let look = if options.no_inline { LookupDetail::Functions } else { LookupDetail::Lines };
    let drawn = picture::whole(&input::spec(&options.input)?, &options.part.wanted(), look)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let made = serde_json::to_writer(&mut packed, &firefox::make(&drawn)).map_err(std::io::Error::from);
    let body =
        made.and_then(|()| packed.finish()).map_err(|error| failed(format!("the profile can't be made: {error}")))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
        .map_err(|error| failed(format!("can't listen on port {} of 127.0.0.1: {error}", options.port)))?;
    let port = listener.local_addr().map_err(|error| failed(format!("can't listen: {error}")))?.port();
    let secret = loopback::secret().map_err(|error| failed(format!("/dev/urandom: {error}")))?;
    let path = format!("/{secret}/profile.json");
    let own = format!("http://127.0.0.1:{port}{path}");
    let link = format!("{PROFILER}/from-url/{}/\n", percent(&own));
    let shown = std::io::stdout().write_all(link.as_bytes()).and_then(|()| std::io::stdout().flush());
    shown.map_err(|error| failed(format!("can't write to standard output: {error}")))?;
    crate::stderr::write_stderr("pmux view: open this link in a browser on this machine; Ctrl-C ends it");
    server::serve(&listener, server::ServedProfile { path, port, body: body.into() })
}

fn percent(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_stand_in_a_link() {
        assert_eq!(percent("http://127.0.0.1:80/a b"), "http%3A%2F%2F127.0.0.1%3A80%2Fa%20b");
    }
}
