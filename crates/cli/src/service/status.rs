//! `pmux status`: what the service is doing, for people.
//!
//! **Invariant:** it shows what the service says. What came over the socket reaches the terminal without control characters.

use super::page::{holds, page, screen, survey};
use crate::foreground::end_by_signals;
use crate::inspect::print;
use crate::options::exit_status;
use crate::options::serve::StatusOptions;
use crate::stderr::{report_error, write_stderr};
use crate::style::Style;
use pmux::server_api::shared::client::{AskError, Service, SocketPath};
use pmux::server_api::shared::wire::Detail;
use pmux_ui::text::in_locale;
use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

/// How long the first words with the service may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// And where it is asked only for what would be good to know.
const SHORT_PATIENCE: Duration = Duration::from_millis(200);

/// Runs `pmux status` and returns the exit status: 1 where there is no service.
pub(crate) fn status(options: &StatusOptions) -> u8 {
    show(options).unwrap_or_else(|text| report_error(&text, exit_status::NO_SERVICE))
}

/// Who holds debug registers through the service, a line each, as far as this user may know; nothing without a service.
pub(crate) fn breakpoint_holders() -> Vec<String> {
    let service = Service::connect(SocketPath::of_environment(), SHORT_PATIENCE).ok();
    let status = service.and_then(|service| ask(&service).ok()).unwrap_or_default();
    status["breakpoint_holders"].as_array().into_iter().flatten().map(holds).collect()
}

fn show(options: &StatusOptions) -> Result<u8, String> {
    let place = options.socket.as_ref().map_or_else(SocketPath::of_environment, |path| SocketPath::Named(path.clone()));
    let service = match Service::connect(place, PATIENCE) {
        Ok(service) => Some(service),
        // What others hold is there all the same.
        Err(error) if options.others => {
            write_stderr(&format!("pmux: {error}"));
            None
        }
        Err(error) => return Err(error.to_string()),
    };
    if let Some(at) = options.page
        && let Some(service) = service
    {
        end_by_signals().map_err(|error| format!("signals can't be received: {error}"))?;
        return super::web::serve(service, at);
    }
    let look = || -> Result<Value, String> {
        let mut status = service.as_ref().map_or_else(|| Ok(json!({})), ask)?;
        if options.others {
            status["others"] = survey(status["service"]["process"].as_i64());
        }
        Ok(status)
    };
    let style = Style::of_stdout(options.color);
    let Some(interval) = options.watch else { return Ok(print(&text(options, &look()?, style))) };
    end_by_signals().map_err(|error| format!("signals can't be received: {error}"))?;
    let mut next = Instant::now();
    loop {
        // It may have another size by now.
        let lines = terminal_size::terminal_size_of(io::stdout()).map(|(_, lines)| usize::from(lines.0));
        let out = match (lines.filter(|_| !options.json), look()) {
            (Some(lines), Ok(status)) => {
                in_locale(&screen(&status, Style::of_stdout(options.color), lines)).into_owned()
            }
            // A user who watches the screen sees it come back; a program is told at once.
            (Some(_), Err(text)) => format!("\u{1b}[H\u{1b}[Jpmux: {text}; trying again\n"),
            (None, Ok(status)) if options.json => text(options, &status, style),
            (None, status) => text(options, &status?, style) + "\n",
        };
        if let Err(error) = io::stdout().write_all(out.as_bytes()).and_then(|()| io::stdout().flush()) {
            // A reader that has enough is no error.
            return if error.kind() == io::ErrorKind::BrokenPipe {
                Ok(exit_status::SUCCESS)
            } else {
                Err(error.to_string())
            };
        }
        next += interval;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn text(options: &StatusOptions, status: &Value, style: Style) -> String {
    if options.json { format!("{status}\n") } else { in_locale(&page(status, style)).into_owned() }
}

pub(super) fn ask(service: &Service) -> Result<Value, String> {
    let text = service.status(Detail::Full).map_err(|error| match error {
        AskError::Refused(refusal) => refusal.text,
        AskError::Away => match service.why_away() {
            Some(away) => format!("the service is away: {away}"),
            None => "the service is away".to_owned(),
        },
    })?;
    serde_json::from_str(&text).map_err(|error| format!("what the service says can't be read: {error}"))
}
