//! The explanations of `pmux run`, a line for each call.
//!
//! **Invariant:** a line is whole: what names a process or an event is made harmless first.

use crate::options::run::RunOptions;
use crate::stderr::visible;
use pmux::supervisor::{OpenAnswer, OpenAttempt, OpenTarget, Sampling};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};

/// Of so many refusals it is said what helps.
const MOST_HELPED: usize = 100;

/// Where explanations go, and how many there were.
pub(super) struct Explained {
    out: Box<dyn Write + Send>,
    /// What stands before a line among those of others.
    prefix: String,
    json: bool,
    /// The refusals whose remedies were printed.
    helped: BTreeSet<String>,
    /// The first failure to write.
    failed: Option<io::Error>,
    own: u64,
    granted: u64,
    shared: u64,
    /// The most events of the kernel that sharing has saved at a time.
    saved: usize,
    refused: u64,
    untold: u64,
}

impl Explained {
    /// With the name of the container for which it is, if that is it.
    pub(super) fn open(options: &RunOptions, container: Option<&str>) -> Result<Self, String> {
        let name = container.map(|name| format!("container {}: ", visible(name))).unwrap_or_default();
        let (out, prefix): (Box<dyn Write + Send>, _) = match &options.output {
            None => (Box::new(io::stderr()), if options.json { String::new() } else { format!("pmux: {name}") }),
            Some(path) => {
                let file = File::create(path).map_err(|error| format!("can't write {}: {error}", path.display()))?;
                (Box::new(file), String::new())
            }
        };
        let (json, helped, failed) = (options.json, BTreeSet::new(), None);
        let (own, granted, shared, saved, refused, untold) = Default::default();
        Ok(Self { out, prefix, json, helped, failed, own, granted, shared, saved, refused, untold })
    }

    /// So many events of the kernel there would be more now without sharing.
    pub(super) fn note_saved(&mut self, saved: usize) {
        self.saved = self.saved.max(saved);
    }

    pub(super) fn write(&mut self, attempt: &OpenAttempt) {
        *match attempt.answer {
            OpenAnswer::Own => &mut self.own,
            OpenAnswer::Granted(_) => &mut self.granted,
            OpenAnswer::Virtual => &mut self.shared,
            OpenAnswer::Refused(_) => &mut self.refused,
            OpenAnswer::Untold(_) => &mut self.untold,
        } += 1;
        let text = if self.json { format!("{}\n", as_json(attempt)) } else { self.as_text(attempt) };
        self.put(&text);
    }

    /// Says how many there were; `status` is that of the command.
    ///
    /// # Errors
    /// The first one of all that was written.
    pub(super) fn finish(&mut self, status: u8) -> io::Result<()> {
        let Self { own, granted, shared, saved, refused, untold, .. } = *self;
        let opens = own + granted + shared + refused + untold;
        let text = if self.json {
            let calls = json!({ "opens": opens, "own": own, "granted": granted, "virtual": shared, "saved": saved, "refused": refused, "untold": untold });
            format!("{}\n", json!({ "summary": calls, "status": status }))
        } else {
            let calls = if opens == 1 { "call" } else { "calls" };
            let mut text = format!("{}{opens} {calls} of perf_event_open: {own} own", self.prefix);
            if granted > 0 {
                text.push_str(&format!(", {granted} granted"));
            }
            if shared > 0 {
                text.push_str(&format!(", {shared} virtual (at most {saved} events of the kernel saved at a time)"));
            }
            text.push_str(&format!(", {refused} refused"));
            if untold > 0 {
                text.push_str(&format!(", {untold} left to the kernel"));
            }
            text + "\n"
        };
        self.put(&text);
        self.failed.take().map_or(Ok(()), Err)
    }

    /// A line; below it what would help, where that was not said before.
    fn as_text(&mut self, attempt: &OpenAttempt) -> String {
        let prefix = &self.prefix;
        let OpenAttempt { thread, command, event, target, .. } = attempt;
        let event = if event.is_empty() { "an event that pmux doesn't know" } else { event };
        let mut text = format!("{prefix}{}[{thread}]: {} of {target}", visible(command), visible(event));
        match attempt.sampling {
            Sampling::None => {}
            Sampling::Period(period) => text.push_str(&format!(", sampled every {period}")),
            Sampling::Frequency(hertz) => text.push_str(&format!(", sampled at {hertz} Hz")),
        }
        if attempt.is_member {
            text.push_str(", in a group");
        }
        match &attempt.answer {
            OpenAnswer::Own => text.push_str(": own"),
            OpenAnswer::Granted(None) => text.push_str(": granted"),
            OpenAnswer::Granted(Some(errno)) => {
                text.push_str(&format!(": granted, and fails ({})", pmux::supervisor::errno_name(*errno)));
            }
            OpenAnswer::Virtual => text.push_str(": virtual"),
            OpenAnswer::Refused(refusal) => {
                let number = refusal.errno.map(|errno| format!(" ({})", pmux::supervisor::errno_name(errno)));
                text.push_str(&format!(": refused: {}{}", visible(&refusal.summary), number.unwrap_or_default()));
                // A caller can choose what many of them say.
                let helps = self.helped.len() < MOST_HELPED && self.helped.insert(refusal.summary.clone());
                for help in refusal.help.iter().filter(|_| helps) {
                    text.push_str(&format!("\n{prefix}  {}", visible(help)));
                }
            }
            OpenAnswer::Untold(why) => text.push_str(&format!(": left to the kernel: {}", visible(why))),
        }
        text + "\n"
    }

    fn put(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).err();
        }
    }
}

fn as_json(attempt: &OpenAttempt) -> Value {
    let (task, cpu, cgroup) = match attempt.target {
        OpenTarget::Caller { cpu } => (Some(attempt.thread), cpu, false),
        OpenTarget::Task { task, cpu } => (Some(task), cpu, false),
        OpenTarget::Cpu(cpu) => (None, cpu, false),
        OpenTarget::Cgroup { cpu } => (None, cpu, true),
    };
    let (period, frequency) = match attempt.sampling {
        Sampling::None => (None, None),
        Sampling::Period(period) => (Some(period), None),
        Sampling::Frequency(hertz) => (None, Some(hertz)),
    };
    let (answer, refusal, why) = match &attempt.answer {
        OpenAnswer::Own => ("own", None, None),
        OpenAnswer::Granted(_) => ("granted", None, None),
        OpenAnswer::Virtual => ("virtual", None, None),
        OpenAnswer::Refused(refusal) => ("refused", Some(refusal), Some(&refusal.summary)),
        OpenAnswer::Untold(why) => ("untold", None, Some(why)),
    };
    let failed = if let OpenAnswer::Granted(errno) = attempt.answer { errno } else { None };
    json!({
        "pid": attempt.process,
        "tid": attempt.thread,
        "command": attempt.command,
        "event": attempt.event,
        "task": task,
        "cpu": cpu,
        "cgroup": cgroup,
        "in_group": attempt.is_member,
        "period": period,
        "frequency": frequency,
        "answer": answer,
        "errno": failed.or(refusal.and_then(|refusal| refusal.errno)),
        "reason": why,
        "what_helps": refusal.map(|refusal| refusal.help.clone()).unwrap_or_default(),
    })
}
