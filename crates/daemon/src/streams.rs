//! The records of this machine, as the service passes them on.
//!
//! What it is: [`Streams`] of the session behind the trait of [`crate::service`].
//!
//! **Invariant:** what concerns rights is decided in [`crate::rights`]; here are the facts only.

use crate::counters::{Counters, NO_TASK};
use crate::rights::{self, Denied, Wanted};
use crate::service::{Failed, Flow, Streaming, Subscription};
use pmux::serving::abi::Attr;
use pmux::serving::shared::wire::{EventNumber, Scope};
use pmux::serving::{Asker, Breadth, Left, StreamId, StreamQuestion, StreamScope, Streams, Subject};
use std::os::fd::OwnedFd;

/// For so long at most one subscription is given what waits for it, before it is switched off.
const END_NS: u64 = 100_000_000;

impl Counters {
    /// The streams of all clients.
    #[must_use]
    pub const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// From now on the kernel's ring of each new event has so many bytes.
    pub const fn set_kernel_ring_bytes(&mut self, bytes: u64) {
        self.streams.set_source_bytes(bytes);
    }

    /// Passes on all that waits in the kernel's rings.
    pub fn pass_on(&mut self) {
        self.streams.pass();
    }

    /// Passes on what waits in the kernel's rings, as long as `go_on` says so; whether another turn is due.
    pub fn pass_on_while(&mut self, go_on: impl FnMut() -> bool) -> Left {
        self.streams.pass_while(go_on)
    }

    /// CPUs have come or gone, and the session has followed them.
    pub fn cpus_changed(&mut self) {
        self.streams.cpus_changed();
    }
}

fn id(tid: u32) -> i32 {
    i32::try_from(tid).unwrap_or(-1)
}

impl Streaming for Counters {
    type Stream = StreamId;
    type File = OwnedFd;

    fn decide_records(&mut self, asker: &Asker, attr: &Attr, scope: &Scope) -> Result<Result<(), Denied>, Failed> {
        let breadth = match scope {
            Scope::Cpus(_) => Breadth::WholeCpu,
            Scope::Tasks(_) => Breadth::Task,
        };
        if let Err(denied) = self.module_allows(asker, attr, breadth) {
            return Ok(Err(denied));
        }
        let (machine, pmu) = (self.machine(), self.pmu(attr.kind));
        let decide = |wanted| rights::decide_records(asker, attr, pmu, wanted, machine);
        match scope {
            Scope::Cpus(_) => Ok(decide(Wanted::Cpu)),
            Scope::Tasks(_) if rights::is_privileged(asker) => Ok(decide(Wanted::AnyTask)),
            Scope::Tasks(tasks) => {
                for &tid in tasks {
                    let subject = Subject::gather(self.proc(), id(tid));
                    let gone =
                        |error: pmux::serving::ProcError| Failed { index: 0, errno: NO_TASK, text: error.to_string() };
                    let subject = subject.map_err(gone)?;
                    let decided = rights::decide_records(asker, attr, pmu, Wanted::Task(&subject), machine);
                    if decided.is_err() {
                        return Ok(decided);
                    }
                }
                Ok(Ok(()))
            }
        }
    }

    fn places(&self, scope: &Scope) -> u32 {
        let online = self.session().online().len();
        let places = match scope {
            Scope::Cpus(cpus) if cpus.is_empty() => online,
            Scope::Cpus(cpus) => cpus.len(),
            Scope::Tasks(tasks) => tasks.len().saturating_mul(online),
        };
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    fn kernel_bytes(&self) -> u64 {
        self.streams.kernel_bytes()
    }

    fn subscribe(&mut self, wanted: &Subscription) -> Result<(StreamId, Vec<OwnedFd>), Failed> {
        let scope = match &wanted.scope {
            Scope::Cpus(cpus) if cpus.is_empty() => StreamScope::AllCpus,
            Scope::Cpus(cpus) => StreamScope::Cpus(cpus.iter().copied().collect()),
            Scope::Tasks(tasks) => StreamScope::Tasks(tasks.iter().map(|&tid| id(tid)).collect()),
        };
        let Subscription { attrs, ring_bytes, wake_bytes, .. } = wanted;
        let question = StreamQuestion { scope, attrs: attrs.clone(), ring_bytes: *ring_bytes, wake_bytes: *wake_bytes };
        match self.streams.open(&question) {
            Ok((stream, files)) => Ok((stream, files.into())),
            Err(error) => {
                // Whatever is open on its number is over.
                if let (NO_TASK, Scope::Tasks(tasks)) = (error.errno, &wanted.scope) {
                    tasks.iter().for_each(|&tid| self.session().served_task_exited(id(tid)));
                }
                Err(Self::failed(error))
            }
        }
    }

    fn switch(&mut self, stream: &StreamId, flow: Flow) -> Result<(), Failed> {
        match flow {
            Flow::On => self.streams.enable(*stream).map_err(Self::failed),
            Flow::Off => {
                let until = pmux::serving::now_ns() + END_NS;
                self.streams.disable_while(*stream, || pmux::serving::now_ns() < until);
                Ok(())
            }
        }
    }

    fn numbers(&self, stream: &StreamId) -> Vec<EventNumber> {
        self.streams.numbers(*stream)
    }

    fn unsubscribe(&mut self, stream: StreamId) {
        self.streams.close(stream);
    }
}
