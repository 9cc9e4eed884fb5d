//! `pmux top`: what runs now.
//!
//! What it is: [`feed`] lets samples come in, [`live`] makes an [`interval`] of them, [`screen`] shows it on a terminal and [`text`]
//! elsewhere. Read first: [`top`], then `live`.
//!
//! **Invariant:** keys are answered at once, whatever the reader of samples does.

mod facts;
mod feed;
mod interval;
mod kept;
mod live;
mod screen;
mod text;
mod waits;

use crate::failure::{Failure, failed};
use crate::foreground;
use crate::options::top::TopOptions;
use crate::stderr::write_stderr;
use crate::style::ColorChoice;
use crate::terminal::{Screen, TerminalDevice, spawn_input, spawn_signals};
use crate::theme::Theme;
use facts::{Facts, OwnCost};
use feed::Feed;
use interval::Choice;
use kept::Keeping;
use ratatui::crossterm::event::Event;
use screen::{Asked, View, draw};
use signal_hook::consts::SIGCONT;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

/// The first interval is no longer than this: something is to be seen soon.
const FIRST: Duration = Duration::from_secs(1);
/// How often it is looked for the end of the watched processes.
const LOOK: Duration = Duration::from_millis(250);
/// How often it is looked whether all has come of an interval that is over.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Intervals that keys may ask for.
const LENGTHS: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(64);
/// So many rows are shown without a terminal.
const USUAL_ENTRIES: usize = 20;

pub(crate) fn top(options: &TopOptions) -> Result<(), Failure> {
    let device = TerminalDevice::unless_text(options.stdio || options.json);
    let keeping = if device.is_some() { Keeping::Seconds } else { Keeping::Nothing };
    let (feed, facts) = Feed::begin(options, keeping)?;
    let facts = Facts { target: target(options), ..facts };
    let mut watch = Watch { feed, facts, own: OwnCost::begin(), is_asked: false };
    let choice = Choice {
        key: options.sort,
        hides_kernel: options.hide_kernel_symbols,
        hides_user: options.hide_user_symbols,
        // Of few threads, those that do nothing are of interest.
        shows_idle: options.idle || watch.facts.cpus.is_none(),
        ..Choice::default()
    };
    match device {
        Some(device) => show(device, options, &mut watch, choice),
        None => print(options, &mut watch, &choice),
    }
}

/// What is watched, in words.
fn target(options: &TopOptions) -> String {
    let several = |one: &str, many: &str, ids: &[i32]| {
        let list = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        format!("{} {list}", if ids.len() == 1 { one } else { many })
    };
    match options {
        _ if !options.cgroups.is_empty() => options.cgroups.join(", "),
        _ if !options.pid.is_empty() => several("process", "processes", &options.pid),
        _ if !options.tid.is_empty() => several("thread", "threads", &options.tid),
        TopOptions { cpu: Some(list), .. } => format!("CPUs {list}"),
        _ => "all CPUs".to_owned(),
    }
}

/// What both ways to show it have in common.
struct Watch {
    feed: Feed,
    facts: Facts,
    own: OwnCost,
    /// Whether it is waited for what tells of the waits of the interval.
    is_asked: bool,
}

impl Watch {
    /// Whether all has come that tells of the interval, once its time is over: it has to be looked for waits that go on. None is much
    /// shorter than it is to be.
    fn is_whole(&mut self, delay: Duration) -> bool {
        if !self.feed.live().is_long(delay.min(FIRST) * 9 / 10) {
            return false;
        }
        if self.facts.has_waits {
            if !std::mem::replace(&mut self.is_asked, true) {
                self.feed.ask();
            }
            self.is_asked = !self.feed.live().is_whole();
        }
        !self.is_asked
    }

    /// Ends an interval.
    fn turn(&mut self) -> interval::Interval {
        let mut live = self.feed.live();
        (self.facts.lost, self.facts.unseen, self.facts.gap) = (live.lost, live.unseen, live.gap);
        self.facts.note = live.notes.last().cloned();
        let interval = live.turn();
        drop(live);
        self.facts.own_cpus = self.own.cpus();
        interval
    }

    /// Whether there is no more to come.
    fn has_ended(&self) -> Result<bool, Failure> {
        match &self.feed.live().ended {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(text)) => Err(failed(text.clone())),
        }
    }
}

/// When the next interval ends: as long after this one was to end, unless that was long ago.
fn next_turn(at: Instant, delay: Duration) -> Instant {
    let now = Instant::now();
    if now > at + delay / 10 { now + delay } else { at + delay }
}

/// Writes one table, or one line, after the other.
fn print(options: &TopOptions, watch: &mut Watch, choice: &Choice) -> Result<(), Failure> {
    foreground::end_by_signals().map_err(|error| failed(format!("signals can't be received: {error}")))?;
    let delay = options.delay;
    let most = match options.entries {
        Some(0) => usize::MAX,
        Some(entries) => entries,
        None if options.json => usize::MAX,
        None => USUAL_ENTRIES,
    };
    let mut printed = 0;
    let mut at = Instant::now() + delay;
    for shown in 0.. {
        if options.iterations == Some(shown) {
            return Ok(());
        }
        let mut ended = false;
        while !ended && (Instant::now() < at || !watch.is_whole(delay)) {
            let left = at.saturating_duration_since(Instant::now());
            std::thread::sleep(if left.is_zero() { LOOK_AGAIN } else { left.min(LOOK) });
            ended = watch.has_ended()?;
        }
        // Who was stopped meanwhile, or had no reader, makes up for nothing.
        at = next_turn(at, delay);
        let mut interval = watch.turn();
        interval.prepare(choice);
        let notes = watch.feed.live().notes.clone();
        notes.iter().skip(printed).for_each(|note| write_stderr(&format!("pmux top: {note}")));
        printed = notes.len();
        let text = if options.json {
            text::json_line(&watch.facts, &interval, choice, most)
        } else {
            pmux_ui::text::in_locale(&text::table(&watch.facts, &interval, choice, most)).into_owned()
        };
        let mut out = io::stdout();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Who read has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(failed(format!("can't write to standard output: {error}"))),
            Ok(()) if ended => return Ok(()),
            Ok(()) => {}
        }
    }
    Ok(())
}

enum Happened {
    /// `None`: it is gone.
    Terminal(Option<Event>),
    Signal(i32),
}

/// Shows it on a terminal until a key ends it.
fn show(device: TerminalDevice, options: &TopOptions, watch: &mut Watch, choice: Choice) -> Result<(), Failure> {
    let theme = Theme::on_terminal(ColorChoice::Auto);
    let no_terminal = |error: io::Error| failed(format!("the terminal can't be used: {error}; --stdio prints tables"));
    let (sender, events) = channel();
    let signals = sender.clone();
    spawn_signals(move |signal| signals.send(Happened::Signal(signal)).is_ok()).map_err(no_terminal)?;
    let mut screen = Screen::enter(device).map_err(no_terminal)?;
    spawn_input(move |event| sender.send(Happened::Terminal(event)).is_ok()).map_err(no_terminal)?;
    let mut delay = options.delay;
    let mut view = View::new(choice);
    let mut turn_at = Instant::now() + delay.min(FIRST);
    let mut shown = 0;
    // The last interval that had samples, where the one that is shown has none.
    let mut last = None;
    loop {
        screen.draw(|frame| draw(frame, &mut view, &watch.facts, theme)).map_err(no_terminal)?;
        let happened = loop {
            let left = turn_at.saturating_duration_since(Instant::now());
            match events.recv_timeout(if left.is_zero() { LOOK_AGAIN } else { left.min(LOOK) }) {
                Ok(happened) => break Some(happened),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= turn_at && watch.is_whole(delay) => break None,
                Err(RecvTimeoutError::Timeout) => {
                    if watch.has_ended()? && watch.facts.note.as_deref() != Some(ENDED) {
                        break None;
                    }
                }
            }
        };
        match happened {
            None => {
                let interval = watch.turn();
                turn_at = next_turn(turn_at, delay);
                if watch.has_ended()? {
                    watch.facts.note = Some(ENDED.to_owned());
                    // What there was last stays to be looked at.
                    let newest = if interval.samples.is_empty() { last.take() } else { Some(interval) };
                    newest.filter(|_| !view.is_frozen).into_iter().for_each(|interval| drop(view.show(interval)));
                } else if !view.is_frozen {
                    let is_empty = interval.samples.is_empty();
                    let before = view.show(interval);
                    match (is_empty, before.samples.is_empty()) {
                        (true, false) => last = Some(before),
                        (true, true) => {}
                        (false, _) => last = None,
                    }
                    shown += 1;
                    if options.iterations.is_some_and(|most| shown >= most) {
                        return Ok(());
                    }
                }
            }
            Some(Happened::Terminal(Some(event))) => match press(&mut view, &event, watch) {
                Asked::Quit => return Ok(()),
                Asked::Suspend => screen.suspend().map_err(no_terminal)?,
                Asked::Save => view.say(save(watch).map_or_else(|error| error, |saved| saved.1)),
                Asked::Report => match save(watch) {
                    Ok((path, _)) => {
                        drop(screen);
                        return Err(report(&path, view.shows_waits()));
                    }
                    Err(error) => view.say(error),
                },
                Asked::Longer => delay = delay.max((delay * 2).min(*LENGTHS.end())),
                Asked::Shorter => {
                    delay = delay.min((delay / 2).max(*LENGTHS.start()));
                    turn_at = turn_at.min(Instant::now() + delay);
                }
                Asked::Nothing => {}
            },
            Some(Happened::Signal(SIGCONT)) => screen.resume().map_err(no_terminal)?,
            Some(Happened::Signal(signal)) => return screen.end_by(signal).map_err(no_terminal),
            Some(Happened::Terminal(None)) => return Ok(()),
        }
    }
}

/// Does what a key means. What is kept for saving stays while the view is frozen.
fn press(view: &mut View, event: &Event, watch: &Watch) -> Asked {
    let asked = view.press(event, &watch.facts);
    watch.feed.kept().hold(view.is_frozen);
    asked
}

/// Saves the last seconds into this folder, and answers where, and what to say of it.
fn save(watch: &Watch) -> Result<(PathBuf, String), String> {
    let recording = watch.feed.kept().recording();
    let recording = recording.ok_or("nothing is saved: there is no sample")?;
    let path = recording.save(Path::new("."), SystemTime::now());
    let path = path.map_err(|error| format!("nothing is saved here: {error}"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let samples = if recording.samples == 1 { "1 sample".to_owned() } else { format!("{} samples", recording.samples) };
    let text = format!("{name} has the last {:.0} s, {samples}", recording.span.as_secs_f64());
    Ok((path, text))
}

/// Becomes `pmux report` of a file, with its waits or without; answers why it can't.
fn report(path: &Path, waits: bool) -> Failure {
    // Also where another one was installed meanwhile.
    let error = Command::new("/proc/self/exe")
        .arg0("pmux")
        .arg("report")
        .args(waits.then_some("--wall"))
        .arg("-i")
        .arg(path)
        .exec();
    failed(format!("pmux report can't be started: {error}"))
}

/// What is said when the watched processes are gone.
const ENDED: &str = "what was watched has ended: this is the last of it";
