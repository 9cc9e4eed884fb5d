//! Lines for the operator of the service.
//!
//! What it is: [`Log`], which hands lines to a thread that writes them to standard error. With the journal at the other end,
//! each line begins with its level as `sd-daemon(3)` wants it.
//!
//! **Invariant:** saying something never waits for the reader of the log: lines for which there is no room are counted, and the
//! count is said when there is room again. The end waits for a moment only: a full pipe keeps the last lines, not the process.

use crate::config::Level;
use std::fmt;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const WAITING: usize = 4096;
/// How long the end waits until the last lines are written.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Where lines go. Clones go to the same place.
#[derive(Clone)]
pub struct Log {
    inner: Arc<Inner>,
}

struct Inner {
    /// The least that is written. Relaxed: a thread that sees a change late writes a line more or less.
    least: AtomicU8,
    /// Lines that were left out. Relaxed: a number for people.
    left_out: Arc<AtomicU64>,
    /// `None` when the last clone is being dropped.
    lines: Option<SyncSender<String>>,
    /// Disconnected when the thread has written everything.
    written: Mutex<Receiver<()>>,
    style: Style,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// With the number of its level, for the journal.
    Journal,
    /// With the name of the program.
    Plain,
}

/// The variable names the device and the number of the journal's stream. A process that is started from a terminal that a service
/// runs has it as well. Source: `systemd.exec(5)`.
fn style_of(journal_stream: Option<&str>, stderr: Option<(u64, u64)>) -> Style {
    let journal = journal_stream.and_then(|journal| journal.split_once(':'));
    let journal = journal.and_then(|(device, number)| Some((device.parse().ok()?, number.parse().ok()?)));
    if journal.is_some() && journal == stderr { Style::Journal } else { Style::Plain }
}

impl Log {
    /// Lines to standard error, from this level up.
    #[must_use]
    pub fn to_stderr(least: Level) -> Self {
        let journal = std::env::var("JOURNAL_STREAM").ok();
        let stderr = std::fs::metadata("/proc/self/fd/2").ok().map(|file| (file.dev(), file.ino()));
        Self::to(std::io::stderr(), least, style_of(journal.as_deref(), stderr))
    }

    fn to(mut sink: impl Write + Send + 'static, least: Level, style: Style) -> Self {
        let (lines, waiting) = sync_channel::<String>(WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let missing = Arc::clone(&left_out);
        let (writes, written) = channel::<()>();
        let write = move || {
            let mut begin = "";
            while let Ok(line) = waiting.recv() {
                // What can't be written now (the disk is full) is told of when something can.
                // It may have got half way.
                let written = sink.write_all(begin.as_bytes()).and_then(|()| sink.write_all(line.as_bytes()));
                begin = if written.is_ok() { "" } else { "\n" };
                if written.is_err() {
                    missing.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let missed = missing.swap(0, Ordering::Relaxed);
                if missed > 0 {
                    let text =
                        format!("{missed} lines were left out: they could not be written, or not as fast as they came");
                    if sink.write_all(line_of(style, Level::Warning, &text).as_bytes()).is_err() {
                        missing.fetch_add(missed, Ordering::Relaxed);
                    }
                }
            }
            let _ = sink.flush();
            drop(writes);
        };
        // Without a thread nothing is said, and the service goes on.
        let _ = std::thread::Builder::new().name("pmux-log".to_owned()).spawn(write);
        let (least, written) = (AtomicU8::new(least as u8), Mutex::new(written));
        let inner = Inner { least, left_out, lines: Some(lines), written, style };
        Self { inner: Arc::new(inner) }
    }

    /// From now on lines from this level up are written.
    pub fn set_level(&self, least: Level) {
        self.inner.least.store(least as u8, Ordering::Relaxed);
    }

    /// Whether a line of this level would be written.
    #[must_use]
    pub fn wants(&self, level: Level) -> bool {
        level as u8 <= self.inner.least.load(Ordering::Relaxed)
    }

    /// Says something.
    pub fn write(&self, level: Level, text: impl fmt::Display) {
        if !self.wants(level) {
            return;
        }
        let line = line_of(self.inner.style, level, &text.to_string());
        if let Some(lines) = &self.inner.lines
            && let Err(TrySendError::Full(_)) = lines.try_send(line)
        {
            self.inner.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.lines = None;
        let written = self.written.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(LAST_LINES);
    }
}

/// One line, whatever is in the text: names come from clients.
fn line_of(style: Style, level: Level, text: &str) -> String {
    let mut line = match (style, level) {
        (Style::Plain, Level::Error) => String::from("pmux serve: error: "),
        (Style::Plain, Level::Warning) => String::from("pmux serve: warning: "),
        (Style::Plain, Level::Info | Level::Debug) => String::from("pmux serve: "),
        (Style::Journal, Level::Error) => String::from("<3>"),
        (Style::Journal, Level::Warning) => String::from("<4>"),
        (Style::Journal, Level::Info) => String::from("<6>"),
        (Style::Journal, Level::Debug) => String::from("<7>"),
    };
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does with what is written as a closure says.
    struct Sink<F: FnMut(&[u8]) -> std::io::Result<()>>(F);

    impl<F: FnMut(&[u8]) -> std::io::Result<()>> Write for Sink<F> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            (self.0)(bytes).map(|()| bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// All that was written, when nothing more is.
    fn text(page: &Receiver<Vec<u8>>) -> String {
        String::from_utf8(page.iter().flatten().collect()).unwrap()
    }

    #[test]
    fn only_the_journal_gets_levels() {
        assert_eq!(style_of(Some("8:77"), Some((8, 77))), Style::Journal);
        for (journal, stderr) in [(Some("8:77"), Some((8, 78))), (None, Some((8, 77))), (Some("x"), None), (None, None)]
        {
            assert_eq!(style_of(journal, stderr), Style::Plain, "{journal:?}");
        }
    }

    #[test]
    fn lines_have_a_level_and_no_control_characters() {
        let (out, page) = channel();
        let sink = Sink(move |bytes| {
            out.send(bytes.to_vec()).unwrap();
            Ok(())
        });
        let log = Log::to(sink, Level::Info, Style::Journal);
        log.write(Level::Info, "client `a\nb\u{1b}[31m` is here");
        log.write(Level::Debug, "not this");
        log.set_level(Level::Debug);
        log.write(Level::Debug, "this");
        log.write(Level::Error, "bad");
        drop(log);
        assert_eq!(text(&page), "<6>client `a\\nb\\u{1b}[31m` is here\n<7>this\n<3>bad\n");
    }

    /// On a disk that is full until space is freed.
    #[test]
    fn lines_lost_to_a_full_disk_are_reported_later() {
        let ((out, page), (rooms, room)) = (channel(), channel());
        let disk = Sink(move |bytes| match room.recv() {
            Ok(false) => Err(std::io::ErrorKind::StorageFull.into()),
            Ok(true) | Err(_) => {
                out.send(bytes.to_vec()).unwrap();
                Ok(())
            }
        });
        let log = Log::to(disk, Level::Info, Style::Plain);
        for there_is_room in [true, false, false] {
            rooms.send(there_is_room).unwrap();
        }
        ["one", "two", "three", "four"].iter().for_each(|text| log.write(Level::Info, text));
        drop(rooms);
        drop(log);
        let text = text(&page);
        assert!(
            text.starts_with("pmux serve: one\n\npmux serve: four\npmux serve: warning: 2 lines were left out"),
            "{text}"
        );
    }

    /// Lines to a terminal that has been stopped; what lets it go on, and the sizes of what it has taken.
    fn log_to_stopped_terminal() -> (Log, std::sync::mpsc::Sender<()>, Receiver<usize>) {
        let ((go, gate), (written, sizes)) = (channel::<()>(), channel());
        let terminal = Sink(move |bytes| {
            let _ = gate.recv();
            let _ = written.send(bytes.len());
            Ok(())
        });
        (Log::to(terminal, Level::Info, Style::Plain), go, sizes)
    }

    #[test]
    fn a_blocked_log_reader_blocks_no_caller() {
        let (log, go, sizes) = log_to_stopped_terminal();
        for number in 0..WAITING + 100 {
            log.write(Level::Info, number);
        }
        assert!(log.inner.left_out.load(Ordering::Relaxed) >= 99);
        drop(go);
        drop(log);
        // All that found room, and the line about those that did not.
        assert!(sizes.iter().count() > WAITING);
    }

    #[test]
    fn a_reader_that_takes_nothing_does_not_hold_up_the_end() {
        let (log, go, _sizes) = log_to_stopped_terminal();
        log.write(Level::Info, "the last line");
        // Without an end of the wait this would not come back.
        drop(log);
        drop(go);
    }
}
