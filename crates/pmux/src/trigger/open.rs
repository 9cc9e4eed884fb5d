//! From what a rule names to what wakes.
//!
//! **Invariant:** what can't be had is a sentence that says why, and what helps.

use super::engine::TermId;
use super::language::{ExitOf, LineFilter, Pressure, Rule, SignalName, TermSource};
use super::sources::Live;
use super::sources::files::{Ending, LineInput, Signalled, Stalls};
use super::sources::hits::{Threads, Tracepoint, WatchedAddress};
use super::triggers::TriggerError;
use crate::error::Error;
use crate::event::Event;
use crate::session::Session;
use crate::symbol::{AddressForm, AddressSpec, ProcessImage, SearchScope};
use crate::target::Target;
use pmux_linux::Errno;
use pmux_linux::pressure::{self, Limit};
use pmux_linux::wait::{CRASHES, ProcessEnd, Signals, signal_number};
use std::os::fd::{AsFd as _, OwnedFd};

/// The kernel knows commands by so many bytes of their name. Source: `TASK_COMM_LEN`.
const NAME_BYTES: usize = 15;

pub(super) fn why(rules: &[Rule], term_id: TermId, why: String) -> TriggerError {
    let term = rules.get(term_id.rule).and_then(|rule| rule.trigger.terms.get(term_id.term));
    TriggerError { rule: term_id.rule, term: term.map(ToString::to_string).unwrap_or_default(), why }
}

/// Sources as they are opened, each with what it is: who waits for the same gets the same.
pub(super) struct SourceOpener<'a> {
    session: &'a Session,
    target: &'a Target<'a>,
    input: Option<OwnedFd>,
    lines: Option<LineInput>,
    tracepoints: Vec<(String, Option<String>, Tracepoint)>,
    stalls: Vec<Stalls>,
    endings: Vec<Ending>,
    signalled: Vec<Signalled>,
    addresses: Vec<WatchedAddress>,
}

impl<'a> SourceOpener<'a> {
    pub(super) fn new(session: &'a Session, target: &'a Target<'a>, input: Option<OwnedFd>) -> Self {
        let (stalls, endings, signalled) = (Vec::new(), Vec::new(), Vec::new());
        let (tracepoints, addresses) = (Vec::new(), Vec::new());
        Self { session, target, input, lines: None, tracepoints, stalls, endings, signalled, addresses }
    }

    pub(super) fn finish(self) -> Vec<Box<dyn Live>> {
        fn all<T: Live + 'static>(sources: impl IntoIterator<Item = T>) -> impl Iterator<Item = Box<dyn Live>> {
            sources.into_iter().map(|source| Box::new(source) as Box<dyn Live>)
        }
        let hits = all(self.tracepoints.into_iter().map(|(_, _, source)| source));
        let hits = hits.chain(all(self.addresses)).chain(all(self.stalls));
        hits.chain(all(self.endings)).chain(all(self.signalled)).chain(all(self.lines)).collect()
    }

    /// Has a term listen to a source.
    pub(super) fn listen(&mut self, source: &TermSource, term_id: TermId) -> Result<(), String> {
        match source {
            // Read now and then, all together.
            TermSource::Level(_) => Ok(()),
            TermSource::Pressure(limit) => self.pressure(limit, term_id),
            TermSource::Tracepoint { event, filter } => {
                self.tracepoint(event, filter.clone(), event, Threads::All, term_id).map_err(|error| error.to_string())
            }
            TermSource::Watch(wanted) => self.address(wanted, term_id),
            TermSource::Exit(ExitOf::Process(pid)) => self.ending(*pid, term_id),
            TermSource::Exit(ExitOf::Named(name)) => self.exit_of(name, term_id),
            TermSource::Crash(name) => self.crash(name.as_deref(), term_id),
            TermSource::Line(line) => self.line(line, term_id),
            TermSource::Signal(SignalName(name)) => self.signal(name, term_id),
        }
    }

    fn pressure(&mut self, limit: &Pressure, term_id: TermId) -> Result<(), String> {
        if let Some(known) = self.stalls.iter_mut().find(|known| known.limit == *limit) {
            known.term_ids.push(term_id);
            return Ok(());
        }
        let (resource, tasks) = (limit.resource.to_string(), limit.tasks.to_string());
        let Pressure { stalled, window, .. } = *limit;
        let asked = Limit { resource: &resource, tasks: &tasks, stalled, window };
        let file = pressure::Pressure::watch(asked, limit.cgroup.as_deref()).map_err(|error| error.to_string())?;
        self.stalls.push(Stalls { file, limit: limit.clone(), term_ids: vec![term_id] });
        Ok(())
    }

    /// Hits on all CPUs. `what` is what they are called.
    fn tracepoint(
        &mut self,
        name: &str,
        filter: Option<String>,
        what: &str,
        threads: Threads,
        term_id: TermId,
    ) -> Result<(), Error> {
        let same = |(event, with, source): &&mut (String, Option<String>, Tracepoint)| {
            event == name && *with == filter && source.threads == threads && source.what == what
        };
        if let Some((_, _, source)) = self.tracepoints.iter_mut().find(same) {
            source.term_ids.push(term_id);
            return Ok(());
        }
        let mut event = Event::parse_with(name, self.session.catalog())?;
        if let Some(filter) = &filter {
            self.session.filter(&mut event, filter)?;
        }
        let source = Tracepoint::open(self.session, &event, (what, threads, term_id))?;
        self.tracepoints.push((name.to_owned(), filter, source));
        Ok(())
    }

    fn exit_of(&mut self, name: &str, term_id: TermId) -> Result<(), String> {
        const EVENT: &str = "sched:sched_process_exit";
        let (name, what) = (known_as(name), format!("exit of {name}"));
        // Kernels that say which thread was the last one (6.16) are asked for that; of others it is the first one that counts.
        let last = format!("comm == \"{name}\" && group_dead != 0");
        let opened = match self.tracepoint(EVENT, Some(last), &what, Threads::All, term_id) {
            Err(Error::Filter { errno: Errno::EINVAL, .. }) => {
                self.tracepoint(EVENT, Some(format!("comm == \"{name}\"")), &what, Threads::First, term_id)
            }
            opened => opened,
        };
        opened.map_err(|error| error.to_string())
    }

    fn crash(&mut self, name: Option<&str>, term_id: TermId) -> Result<(), String> {
        let signals: Vec<String> = CRASHES.iter().map(|signal| format!("sig == {signal}")).collect();
        let mut filter = format!("sa_handler == 0 && ({})", signals.join(" || "));
        if let Some(name) = name {
            filter = format!("comm == \"{}\" && {filter}", known_as(name));
        }
        let what = name.map_or_else(|| "crash".to_owned(), |name| format!("crash of {name}"));
        let opened = self.tracepoint("signal:signal_deliver", Some(filter), &what, Threads::All, term_id);
        opened.map_err(|error| error.to_string())
    }

    fn ending(&mut self, pid: i32, term_id: TermId) -> Result<(), String> {
        if let Some(known) = self.endings.iter_mut().find(|known| known.pid == pid) {
            known.term_ids.push(term_id);
            return Ok(());
        }
        let end = ProcessEnd::of(pid).map_err(|errno| match errno {
            Errno::ESRCH => format!("there is no process {pid}"),
            Errno::EINVAL => format!("{pid} is a thread of a process: name the process"),
            Errno::ENOSYS => "the end of a process by its number needs Linux 5.3; exit:NAME works here too".to_owned(),
            errno => format!("process {pid} can't be waited for: {errno}"),
        })?;
        self.endings.push(Ending { end, pid, term_ids: vec![term_id] });
        Ok(())
    }

    fn signal(&mut self, name: &'static str, term_id: TermId) -> Result<(), String> {
        if let Some(known) = self.signalled.iter_mut().find(|known| known.name == name) {
            known.term_ids.push(term_id);
            return Ok(());
        }
        let number = signal_number(name).ok_or_else(|| format!("this machine has no signal {name}"))?;
        let signals = Signals::receive(&[number]);
        let signals = signals.map_err(|errno| format!("signal {name} can't be received: {errno}"))?;
        self.signalled.push(Signalled { signals, number, name, term_ids: vec![term_id] });
        Ok(())
    }

    fn line(&mut self, line: &LineFilter, term_id: TermId) -> Result<(), String> {
        if self.lines.is_none() {
            let input = self.input.take().map_or_else(|| std::io::stdin().as_fd().try_clone_to_owned(), Ok);
            let input = input.map_err(|error| format!("the standard input can't be read: {error}"))?;
            self.lines = Some(LineInput::new(input));
        }
        self.lines.as_mut().map_or(Ok(()), |lines| lines.add(term_id, line))
    }

    fn address(&mut self, wanted: &AddressSpec, term_id: TermId) -> Result<(), String> {
        if let Some(known) = self.addresses.iter_mut().find(|known| known.wanted == *wanted) {
            known.term_ids.push(term_id);
            return Ok(());
        }
        let mut address = WatchedAddress::new(wanted.clone(), term_id);
        let pid = match self.target {
            Target::CurrentThread => Some(std::process::id().cast_signed()),
            Target::Threads(ids) | Target::Processes(ids) => match ids[..] {
                [pid] => Some(pid),
                // Each has its own addresses.
                _ => return Err("an address is another place in each process: name one process with -p".to_owned()),
            },
            Target::Command(command) if matches!(wanted.what, AddressForm::Address(_)) => Some(command.pid()),
            // Its symbols are known when its program is mapped: it is looked at then.
            Target::Command(_) => {
                self.addresses.push(address);
                return Ok(());
            }
            Target::Cgroups { .. } => {
                return Err(
                    "a cgroup has no debug registers: watch a process with -p, or the kernel with -a".to_owned()
                );
            }
            Target::Cpus(_) => None,
        };
        let image = pid.map(ProcessImage::read).transpose().map_err(|error| error.to_string())?;
        let scope = image.as_ref().map_or(SearchScope::Kernel, SearchScope::Process);
        if let Some(why) = address.look(self.session, scope, self.target)? {
            return Err(why.to_string());
        }
        self.addresses.push(address);
        Ok(())
    }
}

fn known_as(name: &str) -> &str {
    let cut = (0..=NAME_BYTES.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    name.get(..cut).unwrap_or_default()
}
