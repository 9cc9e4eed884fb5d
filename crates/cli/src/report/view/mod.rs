//! The interactive view of `pmux report`.
//!
//! What it is: a thread reads the recording and makes tables ([`reader`]); this one holds what is looked at ([`state`]), turns keys
//! into actions ([`input`]) and draws ([`draw`]) on the [`terminal`](crate::terminal). What the two say to each other is in [`messages`]. Read first:
//! [`run`], then `messages`.
//!
//! **Invariant:** the screen never waits for the reader: keys are answered while it reads, and while it looks into debugging information.

mod draw;
mod input;
mod messages;
mod reader;
mod state;
#[cfg(test)]
mod testing;
mod text_screens;

use crate::failure::{Failure, failed};
use crate::input::OpenedInput;
use crate::options::reading::ReportOptions;
use crate::stderr::visible;
use crate::terminal::{Screen, TerminalDevice, columns_and_lines, spawn_input, spawn_signals};
use crate::theme::Theme;
use messages::ReaderMessage;
use pmux::profile::{Input, LookupDetail, SortKey};
use ratatui::crossterm::event;
use signal_hook::consts::SIGCONT;
use state::{Action, Effect, Sort, State};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// So long nothing is drawn: what can't be read at all is said without taking the terminal.
const GRACE: Duration = Duration::from_millis(100);

/// Where the view is shown; `None` if a table is printed instead.
///
/// # Errors
/// It was asked for, and there is no terminal.
pub(super) fn place(options: &ReportOptions) -> Result<Option<TerminalDevice>, Failure> {
    if options.tui {
        let none = "the interactive view needs a terminal, and there is none: leave out --tui";
        return TerminalDevice::find().map(Some).ok_or_else(|| failed(none));
    }
    let wants_text = options.stdio || options.json || options.header_only || options.latency;
    Ok(TerminalDevice::unless_text(wants_text))
}

/// What happens.
enum ViewEvent {
    /// `None`: it is gone.
    Terminal(Option<event::Event>),
    Reader(ReaderMessage),
    /// The reader has ended, which it doesn't while requests come.
    NoReader,
    Signal(i32),
}

/// Shows a recording until the user quits.
///
/// # Errors
/// It can't be read, or the terminal can't be used.
pub(super) fn run(
    place: TerminalDevice,
    opened: OpenedInput,
    keys: &[SortKey],
    options: &ReportOptions,
) -> Result<(), Failure> {
    let theme = Theme::on_terminal(options.color);
    let sort = if options.no_children { Sort::Own } else { Sort::Total };
    let shown = visible(&opened.name);
    let mut state = State::new(shown, keys.to_vec(), sort, columns_and_lines());
    let (sender, events) = channel();
    let (request, requests) = channel();
    let reading = reader::ReadPlan {
        snapshots: opened.manifests.iter().map(|manifest| visible(&manifest.sentence())).collect(),
        wrong: opened.wrong,
        name: opened.name,
        keys: keys.to_vec(),
        least_percent: options.percent_limit.unwrap_or_default(),
        wanted: options.part.wanted(),
        is_wall: options.wall,
        look: if options.no_inline { LookupDetail::Functions } else { LookupDetail::Lines },
    };
    let mut requested = state.request();
    // Before the reader begins: when it has read all, it tells only what was asked by then.
    let _ = request.send(requested.clone());
    spawn_reader(opened.input, reading, requests, sender.clone())?;
    let mut first = events.recv_timeout(GRACE).ok();
    if let Some(ViewEvent::Reader(ReaderMessage::Failed(text))) = first {
        return Err(failed(text));
    }
    let no_terminal = |error: io::Error| failed(format!("the terminal can't be used: {error}; --stdio prints a table"));
    let signals = sender.clone();
    spawn_signals(move |signal| signals.send(ViewEvent::Signal(signal)).is_ok()).map_err(no_terminal)?;
    let mut screen = Screen::enter(place).map_err(no_terminal)?;
    // The first poll asks to be told of a new size: what the size was before that may not be true any more.
    let _ = event::poll(Duration::ZERO);
    let (columns, lines) = columns_and_lines();
    state.act(Action::Resize(columns, lines));
    spawn_input(move |event| sender.send(ViewEvent::Terminal(event)).is_ok()).map_err(no_terminal)?;
    loop {
        screen.draw(|frame| draw::draw(frame, &state, theme)).map_err(no_terminal)?;
        let mut next = first.take().or_else(|| events.recv().ok());
        // All that has happened is taken before anything is drawn.
        while let Some(one) = next {
            match one {
                ViewEvent::Terminal(event) => {
                    let action = event.map_or(Some(Action::Quit), |event| input::action(&event, state.typing));
                    match action.map_or(Effect::Nothing, |action| state.act(action)) {
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => screen.suspend().map_err(no_terminal)?,
                        Effect::Nothing => {}
                    }
                }
                ViewEvent::Signal(SIGCONT) => screen.resume().map_err(no_terminal)?,
                ViewEvent::Signal(signal) => return screen.end_by(signal).map_err(no_terminal),
                ViewEvent::Reader(message) => state.take(message),
                ViewEvent::NoReader => {
                    return Err(failed("the recording can't be read any further: reading has failed"));
                }
            }
            if let Some(text) = state.failure {
                return Err(failed(text));
            }
            next = events.try_recv().ok();
        }
        let wanted = state.request();
        if wanted != requested {
            requested = wanted.clone();
            let _ = request.send(wanted);
        }
    }
}

/// Tells when the thread ends, however it does.
struct ExitNotice(Sender<ViewEvent>);

impl Drop for ExitNotice {
    fn drop(&mut self) {
        let _ = self.0.send(ViewEvent::NoReader);
    }
}

fn spawn_reader(
    input: Input,
    reading: reader::ReadPlan,
    requests: Receiver<messages::ViewRequest>,
    sender: Sender<ViewEvent>,
) -> Result<(), Failure> {
    let exit_notice = ExitNotice(sender.clone());
    let read = move || {
        let _exit_notice = exit_notice;
        reader::run(input, reading, requests, Box::new(move |message| sender.send(ViewEvent::Reader(message)).is_ok()));
    };
    let spawned = thread::Builder::new().name("reader".to_owned()).spawn(read);
    spawned.map(|_| ()).map_err(|error| failed(format!("no thread can be started: {error}")))
}
