//! The terminal: taken for a view, and given back as it was, however the view ends.
//!
//! What it is: [`Screen`] holds it; a panic of any thread gives it back before anything is printed. Read first: [`Screen::enter`].
//!
//! **Invariant:** every end (by a key, a signal, an error or a panic) leaves a terminal that shows what is typed.

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::{emulate_default_handler, raise};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::thread;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TerminalDevice {
    StandardOutput,
    /// The terminal that the process belongs to: standard output goes elsewhere.
    Controlling,
}

impl TerminalDevice {
    /// Where there is a terminal to draw on and to read keys from; `None` if nowhere.
    pub(crate) fn find() -> Option<Self> {
        let tty = || File::options().read(true).write(true).open("/dev/tty").is_ok();
        let has_keys = io::stdin().is_terminal() || tty();
        match io::stdout().is_terminal() {
            true if has_keys => Some(Self::StandardOutput),
            false if tty() => Some(Self::Controlling),
            _ => None,
        }
    }

    /// Where a view is shown by itself: on a terminal that can do more than print; `None` where text is wanted, or nothing else fits.
    pub(crate) fn unless_text(wants_text: bool) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb");
        if wants_text || is_dumb || !io::stdout().is_terminal() { None } else { Self::find() }
    }

    fn open(self) -> io::Result<Box<dyn Write>> {
        Ok(match self {
            Self::StandardOutput => Box::new(io::stdout()),
            Self::Controlling => Box::new(File::options().write(true).open("/dev/tty")?),
        })
    }

    fn take(self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(self.open()?, EnterAlternateScreen, EnableMouseCapture, cursor::Hide)
    }

    /// Gives it back. What fails here can't be reported.
    fn give_back(self) {
        if let Ok(mut out) = self.open() {
            let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
        }
        let _ = disable_raw_mode();
    }
}

/// The terminal, as long as it is ours.
pub(crate) struct Screen {
    device: TerminalDevice,
    terminal: Terminal<CrosstermBackend<Box<dyn Write>>>,
}

impl Screen {
    pub(crate) fn enter(device: TerminalDevice) -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(device.open()?))?;
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            device.give_back();
            hook(panic);
        }));
        let taken = device.take();
        let screen = Self { device, terminal };
        taken.map(|()| screen)
    }

    /// Draws all of it anew.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Stops the program, and goes on when another process continues it. A shell that can't do that is not left alone with a stopped
    /// program: the kernel ignores the signal then.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.device.give_back();
        raise(SIGTSTP)?;
        self.device.take()?;
        self.begin_again()
    }

    /// After the program was stopped by others: the shell has changed how the terminal behaves.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        enable_raw_mode()?;
        self.begin_again()
    }

    /// Draws all of it the next time. The terminal is not asked where its cursor is: the answer would be taken for keys.
    fn begin_again(&mut self) -> io::Result<()> {
        execute!(self.device.open()?, Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(self.device.open()?))?;
        Ok(())
    }

    /// Ends as the signal would have ended it.
    pub(crate) fn end_by(self, signal: i32) -> io::Result<()> {
        drop(self);
        emulate_default_handler(signal)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.device.give_back();
    }
}

pub(crate) fn columns_and_lines() -> (u16, u16) {
    size().unwrap_or((80, 24))
}

/// Tells of keys, the mouse and new sizes in a thread of its own; of `None` when the terminal is gone. It ends when `tell` says false.
pub(crate) fn spawn_input(tell: impl Fn(Option<Event>) -> bool + Send + 'static) -> io::Result<()> {
    let read = move || {
        loop {
            let happened = event::read().ok();
            let is_last = happened.is_none();
            if !tell(happened) || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read).map(|_| ())
}

/// Tells of signals that end a view, and of the one that continues it, in a thread of its own. It ends when `tell` says false.
pub(crate) fn spawn_signals(tell: impl Fn(i32) -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGCONT])?;
    let wait = move || signals.forever().all(tell);
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(|_| ())
}
