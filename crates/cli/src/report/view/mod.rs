//! The interactive view of `pmux report`.
//!
//! What it is: a thread reads the recording and makes tables ([`reader`]); this one holds what is looked at ([`state`]), turns keys
//! into actions ([`input`]) and draws ([`draw`]) on the [`terminal`]. What the two say to each other is in [`told`]. Read first: [`run`],
//! then `told`.
//!
//! **Invariant:** the screen never waits for the reader: keys are answered while it reads, and while it looks into debugging information.

mod draw;
mod input;
mod reader;
mod state;
mod terminal;
#[cfg(test)]
mod testing;
mod told;
mod words;

use crate::failure::{Failure, failed};
use crate::input::Opened;
use crate::options::reading::{Percent, ReportOptions};
use crate::say::visible;
use crate::style::{Destination, Grouping, Style};
use draw::Theme;
use pmux::profile::{Look, SortKey};
use ratatui::crossterm::event;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use state::{Action, Effect, Sort, State};
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use terminal::{Place, Screen, columns_and_lines};
use told::Told;

/// So long nothing is drawn: what can't be read at all is said without taking the terminal.
const GRACE: Duration = Duration::from_millis(100);

/// Where the view is shown; `None` if a table is printed instead.
///
/// # Errors
/// It was asked for, and there is no terminal.
pub(super) fn place(options: &ReportOptions) -> Result<Option<ViewPlace>, Failure> {
    if options.tui {
        let none = "the interactive view needs a terminal, and there is none: leave out --tui";
        return Place::find().map(|place| Some(ViewPlace(place))).ok_or_else(|| failed(none));
    }
    let wants_text = options.stdio || options.json || options.header_only;
    let is_dumb = std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb");
    if wants_text || is_dumb || !io::stdout().is_terminal() {
        return Ok(None);
    }
    Ok(Place::find().map(ViewPlace))
}

/// A terminal that can show the view.
pub(super) struct ViewPlace(Place);

/// What happens.
enum News {
    Terminal(event::Event),
    /// The terminal is gone.
    NoTerminal,
    Reader(Told),
    /// The reader has ended, which it doesn't while anybody asks.
    NoReader,
    Signal(i32),
}

/// Shows a recording until the user quits.
///
/// # Errors
/// It can't be read, or the terminal can't be used.
pub(super) fn run(
    ViewPlace(place): ViewPlace,
    opened: Opened,
    keys: &[SortKey],
    options: &ReportOptions,
) -> Result<(), Failure> {
    let no_color = std::env::var_os("NO_COLOR");
    let style = Style::resolve(options.color, Destination::Terminal(None), no_color.as_deref(), Grouping::None);
    let theme = Theme { colours: style.color };
    let sort = if options.no_children { Sort::Own } else { Sort::Total };
    let shown = visible(&opened.name);
    let mut state = State::new(shown, keys.to_vec(), sort, columns_and_lines());
    let (tell, news) = channel();
    let (ask, asks) = channel();
    let reading = reader::Reading {
        snapshots: opened.manifests.iter().map(|manifest| visible(&manifest.sentence())).collect(),
        wrong: opened.wrong,
        input: opened.input,
        name: opened.name,
        keys: keys.to_vec(),
        least_percent: options.percent_limit.map_or(0.0, |Percent(limit)| limit),
        wanted: options.part.wanted(),
        look: if options.no_inline { Look::Functions } else { Look::Lines },
    };
    let mut asked = state.ask();
    // Before the reader begins: when it has read all, it tells only what was asked by then.
    let _ = ask.send(asked.clone());
    spawn_reader(reading, asks, tell.clone())?;
    let mut first = news.recv_timeout(GRACE).ok();
    if let Some(News::Reader(Told::Failed(text))) = first {
        return Err(failed(text));
    }
    let no_terminal = |error: io::Error| failed(format!("the terminal can't be used: {error}; --stdio prints a table"));
    spawn_signals(tell.clone()).map_err(no_terminal)?;
    let mut screen = Screen::enter(place).map_err(no_terminal)?;
    spawn_input(tell).map_err(no_terminal)?;
    loop {
        screen.draw(&state, theme).map_err(no_terminal)?;
        let mut next = match first.take() {
            Some(first) => Some(first),
            None => news.recv().ok(),
        };
        // All that has happened is taken before anything is drawn.
        while let Some(one) = next {
            match step(&mut state, &one) {
                Effect::Quit => return Ok(()),
                Effect::Suspend => screen.suspend().map_err(no_terminal)?,
                Effect::Nothing => {}
            }
            match one {
                News::Signal(SIGCONT) => screen.resume().map_err(no_terminal)?,
                News::Signal(signal) => return screen.end_by(signal).map_err(no_terminal),
                News::Reader(told) => state.take(told),
                News::NoReader if state.failure.is_none() => {
                    state.failure = Some("the recording can't be read any further: reading has failed".to_owned());
                }
                _ => {}
            }
            if let Some(text) = state.failure {
                return Err(failed(text));
            }
            next = news.try_recv().ok();
        }
        let wanted = state.ask();
        if wanted != asked {
            asked = wanted.clone();
            let _ = ask.send(wanted);
        }
    }
}

/// What a key comes to.
fn step(state: &mut State, news: &News) -> Effect {
    match news {
        News::Terminal(event) => input::action(event, state.typing).map_or(Effect::Nothing, |action| state.act(action)),
        News::NoTerminal => state.act(Action::Quit),
        _ => Effect::Nothing,
    }
}

/// Tells when the thread ends, however it does.
struct Farewell(Sender<News>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let _ = self.0.send(News::NoReader);
    }
}

fn spawn_reader(reading: reader::Reading, asks: Receiver<told::Ask>, tell: Sender<News>) -> Result<(), Failure> {
    let farewell = Farewell(tell.clone());
    let read = move || {
        let _farewell = farewell;
        reader::run(reading, asks, Box::new(move |told| tell.send(News::Reader(told)).is_ok()));
    };
    let spawned = thread::Builder::new().name("reader".to_owned()).spawn(read);
    spawned.map(|_| ()).map_err(|error| failed(format!("no thread can be started: {error}")))
}

fn spawn_input(tell: Sender<News>) -> io::Result<()> {
    let read = move || {
        loop {
            let news = event::read().map_or(News::NoTerminal, News::Terminal);
            let is_last = matches!(news, News::NoTerminal);
            if tell.send(news).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).map(|_| ())
}

fn spawn_signals(tell: Sender<News>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT])?;
    let wait = move || {
        for signal in signals.forever() {
            if tell.send(News::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}
