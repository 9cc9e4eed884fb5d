//! Recording: samples and what explains them, from the kernel's rings into `perf.data`.
//!
//! What it is: [`Recorder`] opens sampling events through the engine (`open`), each of a CPU into the one ring of that CPU
//! (`rings`), or asks a service for them (`shared`); `attrs` says what each event is asked; `existing` tells of what was there before,
//! and `past` of what has come since, where another file is begun; `drain` moves what the rings
//! hold to a [`crate::perf_data::Writer`]. Read first: [`Recorder`].
//!
//! Beside the events that are asked for there is one more, *tracking*, which counts nothing: its records tell of names, mappings,
//! forks and exits. It is switched on before what was there already is told, and before anything samples.
//!
//! **Invariant:** every event goes through the engine; what the kernel says that it lost is in a number.

mod absence;
mod attrs;
mod build_ids;
mod drain;
mod existing;
mod features;
mod lead;
mod mend;
mod off_cpu;
mod open;
mod ours;
mod past;
mod plan;
mod regions;
mod rings;
mod shared;
mod state;
mod switch_match;
mod switches;
mod wait_cut;
mod wait_samples;

pub use absence::Absence;
pub use attrs::{CallChain, Keep, Rate};
pub(crate) use build_ids::MappedBuildIds;
pub use drain::{Progress, WaitsUntil};
pub(crate) use existing::{empty_id, is_alive};
pub use features::{Form, RecorderInfo};
pub(crate) use mend::Mend;
pub(crate) use open::RecordMode;
pub(crate) use ours::Taken;
pub(crate) use past::{Past, TaskRecords};
pub use wait_cut::WaitCut;
pub use wait_samples::{WaitSample, WaitSamples};

use crate::command::{Command, Running};
use crate::error::Error;
use crate::owned_group::Owned;
use crate::perf_data::{EventDesc, FeatureBytes};
use crate::session::Session;
use crate::symbol::Followed;
use crate::target::{Inherit, Start};
use open::RecordedEvents;
use pmux_engine::engine::Exec;
use pmux_engine::{CgroupId, EventId, EventSetId};
use pmux_linux::host::LinuxHost;
use pmux_linux::regions::RegionTable;
use rings::Rings;
use std::collections::{HashMap, HashSet};

/// How to record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordOptions {
    /// How often a sample is taken, where the event itself doesn't say.
    pub rate: Rate,
    /// How call chains are found.
    pub call_chain: CallChain,
    /// Addresses of data with each sample, and mappings of data.
    pub addresses: Keep,
    /// The CPU of each sample, also where tasks are recorded.
    pub cpus: Keep,
    /// Each exiting task's own counts.
    pub exit_counts: Keep,
    /// Context switches.
    pub switches: Keep,
    /// Whether children are recorded.
    pub inherit: Inherit,
    /// When recording begins.
    pub start: Start,
    /// Each wait of so many ns or more, with its length and its stack; shorter ones are added up by thread. Programs in the kernel see
    /// them, or where these can't be loaded events of context switches, which [`Recorder::notes`] says; their stacks are found by frame
    /// pointers. Goes with threads, commands, all CPUs, and, by programs only, one control group of version 2.
    pub off_cpu: Option<u64>,
    /// Regions of a command, from the table that it inherits ([`Recorder::take_regions_from`]).
    pub regions: Keep,
    /// Bytes of each CPU's ring; `None` for as much as is good and allowed.
    pub ring_bytes: Option<u64>,
}

impl RecordOptions {
    /// Whether mappings without code are told: addresses lie in them, and perf reads there how functions are left.
    fn maps_data(&self) -> Keep {
        Keep::when(self.addresses == Keep::Record || matches!(self.call_chain, CallChain::Dwarf { .. }))
    }
}

/// Records.
pub struct Recorder {
    session: Session,
    options: RecordOptions,
    /// The events as they were opened, the tracking one last.
    descs: Vec<EventDesc>,
    held: Vec<RecordedEvents>,
    cgroups: Vec<Owned<CgroupId>>,
    pub(crate) rings: Rings,
    /// Which event of `descs` an open event is, and its id.
    known: HashMap<EventId, (usize, u64)>,
    /// Ids that came after the file was begun, each with its event.
    fresh: Vec<(usize, u64)>,
    /// The groups that have more than one event: name, first event, how many.
    groups: Vec<(String, u32, u32)>,
    /// How many events each group has, in their order.
    group_sizes: Vec<usize>,
    /// What is switched together.
    parts: Vec<plan::PlanPart>,
    pub(crate) absences: absence::Absences,
    /// Whether what is recorded is on: what is opened later for it is, too.
    sampling: open::Switch,
    /// Those who switch the other parts, in their order.
    event_sets: Vec<EventSetId>,
    tracking_index: usize,
    notes: Vec<String>,
    build_ids: MappedBuildIds,
    progress: Progress,
    /// Records that came out of rings before there was a file.
    early: Vec<u8>,
    /// Threads that record; empty where CPUs do.
    tids: HashSet<i32>,
    packing: Option<drain::Packing>,
    /// What explains the samples of files that are begun later.
    past: Option<Past>,
    /// When events began on a CPU that came: of what happened there before, nothing is told yet.
    cpu_came_ns: Option<u64>,
    /// What is told of the machine in each file, and how many CPUs were online then.
    of_machine: Option<(u32, Vec<FeatureBytes>)>,
    /// Where waits are recorded.
    pub(crate) off_cpu: Option<Box<dyn off_cpu::SeesWaits>>,
    /// Where regions are recorded.
    regions: Option<regions::MarkedRegions>,
    /// Where a service opens the events, and nothing is held here.
    shared: Option<shared::Shared>,
}

impl Recorder {
    /// What differs from what was asked, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The events, as they were opened: the tracking one last.
    #[must_use]
    pub fn events(&self) -> &[EventDesc] {
        &self.descs
    }

    /// The session in which the events are open.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What was recorded so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Bytes of each ring, and how many there are: one, where a service writes it.
    #[must_use]
    pub fn ring_bytes(&self) -> (u64, usize) {
        self.shared_ring().map_or_else(|| self.rings.bytes(), |(_, bytes)| (bytes, 1))
    }

    /// Records what a command marks in this table ([`RegionTable::for_marks`]), which it was held with: to be called before it is let go.
    ///
    /// # Errors
    /// [`Error::Options`] without [`RecordOptions::regions`], and for a table of counts.
    pub fn take_regions_from(&mut self, table: RegionTable) -> Result<(), Error> {
        let desc = self.descs.iter().find(|desc| desc.ids == [regions::ID]);
        let desc = desc.ok_or(Error::Options("regions were not asked for when the events were opened"))?;
        let mut regions = regions::MarkedRegions::new(table, desc)?;
        regions.switch(self.sampling == open::Switch::On);
        self.regions = Some(regions);
        Ok(())
    }

    /// Lets the command go for which this was opened, or another one that runs meanwhile.
    ///
    /// # Errors
    /// [`Error::Spawn`].
    pub fn release(&mut self, command: Command) -> Result<Running, Error> {
        self.let_go(command, |command| command.release(&[]))
    }

    /// As [`Recorder::release`], but the command is followed.
    pub(crate) fn follow(&mut self, command: Command) -> Result<Followed, Error> {
        self.let_go(command, Command::follow)
    }

    fn let_go<R>(&mut self, command: Command, how: impl FnOnce(Command) -> Result<R, Error>) -> Result<R, Error> {
        if self.options.start == Start::OnExec {
            self.sampling = open::Switch::On;
            self.off_cpu.iter_mut().try_for_each(|off_cpu| off_cpu.enable_on_exec(command.pid()))?;
            self.regions.iter_mut().for_each(|regions| regions.switch(true));
        }
        let task = LinuxHost::task(command.pid());
        let gone = how(command)?;
        self.session.engine().task_exec(task, Exec::Plain);
        Ok(gone)
    }

    /// Lets events sample that were opened with [`Start::Later`], or stopped by [`Recorder::disable`].
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable(&mut self) -> Result<(), Error> {
        self.switch_shared(open::Switch::On);
        self.switch_sampling(open::Switch::On)
    }

    /// Stops sampling; [`Recorder::enable`] lets it go on. Names and mappings are still recorded. Through a service, the last samples may
    /// still be on their way: [`Recorder::finish`] waits for them.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable(&mut self) -> Result<(), Error> {
        self.switch_shared(open::Switch::Off);
        self.switch_sampling(open::Switch::Off)
    }
}

/// The most samples a second that the kernel takes of an event; `None` where it doesn't tell.
#[must_use]
pub fn most_samples_per_second() -> Option<u64> {
    pmux_linux::machine::Machine::this().most_samples_per_second()
}
