//! What the file tells beside its records, gathered.
//!
//! **Invariant:** what is known from the start is written at the start.

use super::Absence;
use super::drain::Packing;
use super::existing::{Existing, empty_id, is_alive};
use super::mend::Mend;
use super::past::{Past, TaskRecords};
use super::rings::Rings;
use super::{Keep, Recorder};
use crate::error::Error;
use crate::perf_data::feature::{self, Feature};
use crate::perf_data::{FeatureBytes, Writer, file::FileWriter, finished_init, pack, pipe::PipeWriter, tracing};
use crate::ring_owner::CLOCK_MONOTONIC;
use pmux_abi::attr::{EventType, SampleFormat};
use pmux_abi::record::{RecordHeader, Records, SampleId, SampleLayout};
use pmux_linux::cpus::Cpus;
use pmux_linux::machine::Machine;
use std::fs::File;

/// What the recording program says of the recording.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecorderInfo {
    /// The words of the command line; the program first.
    pub words: Vec<Vec<u8>>,
    /// Whether records are compressed.
    pub compress: Keep,
    /// How the file is written.
    pub form: Form,
    /// Whether what is told of tasks is kept, for files that are begun later; otherwise they are looked at anew then.
    pub past: Keep,
}

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// From start to end: what is no regular file can only be written so.
    Stream,
    /// With what is known at the end in the header.
    #[default]
    File,
}

/// How many ids more than are there have room in a file, for each CPU.
const COMES_BACK: usize = 4;

impl Recorder {
    /// Begins a file, or whatever else can be written: first what is told of events and machine, then of what was there before.
    ///
    /// # Errors
    /// [`Error::Output`]; [`Error::Catalog`] where the formats of tracepoints can't be read.
    pub fn begin(&mut self, file: File, about: &RecorderInfo) -> Result<Writer, Error> {
        let early = self.early_features(about)?;
        let is_file = about.form == Form::File && file.metadata().is_ok_and(|meta| meta.is_file());
        let cpus = self.rings.bytes().1.max(if self.shared.is_some() { self.session.online().len() } else { 0 });
        let mut writer = if is_file {
            Writer::File(FileWriter::create(file, &self.descs, cpus * COMES_BACK, &early).map_err(Error::Output)?)
        } else {
            Writer::Pipe(PipeWriter::create(file, &self.descs, &early).map_err(Error::Output)?)
        };
        self.packing = (about.compress == Keep::Record).then(Packing::default);
        // These came before all ids were known.
        let mut early = Vec::new();
        Mend::new(&self.descs).put(&std::mem::take(&mut self.early), &mut early);
        if let Some(past) = &mut self.past {
            past.forget(u64::MAX, pmux_linux::now_ns(), is_alive);
            let TaskRecords { state, records, .. } = past.snapshot();
            self.put(&mut writer, &state)?;
            self.put(&mut writer, &records)?;
        } else {
            let existing = self.existing_while(|_| {});
            if about.past == Keep::Record && self.shared.is_none() {
                self.past = self.remember(&existing, &early);
            }
            self.put(&mut writer, &existing)?;
        }
        self.put(&mut writer, &early)?;
        writer.put(&finished_init()).map_err(Error::Output)?;
        writer.seal().map_err(Error::Output)?;
        Ok(writer)
    }

    /// Begins to keep what is told of tasks.
    fn remember(&self, existing: &[u8], early: &[u8]) -> Option<Past> {
        let (first, tracking) = (self.descs.first()?, self.descs.last()?);
        let first = SampleLayout::new(&first.attr);
        let mut past = Past::new(&tracking.attr, first, empty_id(&first), pmux_linux::now_ns());
        past.begin(existing, &first);
        Records::new(early).flatten().for_each(|record| past.take(record));
        Some(past)
    }

    /// What is told of events and machine, for a file that is no longer ours to write.
    pub(crate) fn features_of(&mut self, words: &[Vec<u8>]) -> Result<Vec<FeatureBytes>, Error> {
        for (event, id) in self.fresh.drain(..) {
            self.descs[event].ids.push(id);
        }
        self.early_features(&RecorderInfo { words: words.to_vec(), ..RecorderInfo::default() })
    }

    /// What was there before, as records of the first event. `meanwhile` is called again and again with the rings.
    pub(crate) fn existing_while(&mut self, mut meanwhile: impl FnMut(&mut Rings)) -> Vec<u8> {
        let Some(first) = self.descs.first() else { return Vec::new() };
        let layout = SampleLayout::new(&first.attr);
        let tids: Vec<i32> = self.tids.iter().copied().collect();
        let (existing, rings) = self.existing_as(layout, empty_id(&layout), false);
        existing.records(&tids, || meanwhile(rings))
    }

    /// How tasks stand now, as records of the tracking event, if events were opened on a CPU that came since this was asked last; nothing
    /// otherwise. `meanwhile` is called again and again with the rings.
    pub(crate) fn existing_again_while(&mut self, mut meanwhile: impl FnMut(&mut Rings)) -> Vec<u8> {
        let Some(came_ns) = self.cpu_came_ns.take() else { return Vec::new() };
        let tracking = self.descs.last().and_then(|desc| Some((SampleLayout::new(&desc.attr), *desc.ids.first()?)));
        let Some((layout, id)) = tracking else { return Vec::new() };
        let empty = empty_id(&layout);
        let id = SampleId { time: empty.time.map(|_| came_ns), identifier: empty.identifier.map(|_| id), ..empty };
        // What a service passes on comes later than what it tells of: its records are not to be younger.
        let is_now = self.shared.is_none();
        let tids: Vec<i32> = self.threads_now().into_iter().collect();
        let (existing, rings) = self.existing_as(layout, id, is_now);
        existing.records_of_tasks(&tids, || meanwhile(rings))
    }

    fn existing_as(&mut self, layout: SampleLayout, id: SampleId, is_now: bool) -> (Existing<'_>, &mut Rings) {
        let data = self.options.maps_data();
        let scratch = vec![0; RecordHeader::MAX_RECORD].into_boxed_slice();
        let of_cgroups = self.descs.first().is_some_and(|first| first.attr.sample.contains(SampleFormat::CGROUP));
        let (with_cgroups, build_ids) = (Keep::when(of_cgroups), &mut self.build_ids);
        (Existing { layout, id, is_now, build_ids, with_cgroups, data, out: Vec::new(), scratch }, &mut self.rings)
    }

    /// Writes how tasks stand where events were opened on a CPU that came.
    pub(super) fn put_existing_again(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let again = self.existing_again_while(|_| {});
        if let Some(past) = &mut self.past {
            Records::new(&again).flatten().for_each(|record| past.take(record));
        }
        if again.is_empty() { Ok(()) } else { self.put(writer, &again) }
    }

    fn early_features(&mut self, about: &RecorderInfo) -> Result<Vec<FeatureBytes>, Error> {
        let online = self.session.online().len() as u32;
        let mut features = match &self.of_machine {
            Some((known, features)) if *known == online => features.clone(),
            _ => {
                let features = self.features_of_machine(online)?;
                self.of_machine.insert((online, features)).1.clone()
            }
        };
        features.push(feature::command_line(&about.words));
        features.push(feature::events(&self.descs));
        if !self.groups.is_empty() {
            features.push(feature::groups(&self.groups));
        }
        let clock_ns = pmux_linux::now_ns();
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let since_1970_ns = crate::units::nanos(since_1970);
        features.extend(feature::clock(CLOCK_MONOTONIC.unsigned_abs(), since_1970_ns, clock_ns));
        if about.compress == Keep::Record {
            features.push(feature::compressed(1, pack::ROOM_BYTES));
        }
        Ok(features)
    }

    /// What takes a look into many files, and stays as it is.
    fn features_of_machine(&self, online: u32) -> Result<Vec<FeatureBytes>, Error> {
        let present = Cpus::system().present().ok().and_then(|list| list.last()).map_or(1, |last| last + 1);
        let mut features = feature::of_machine(&Machine::this(), present, online);
        let catalog = self.session.catalog();
        let pmus = catalog.pmu_names().unwrap_or_default().iter();
        let pmus: Vec<_> = pmus.filter_map(|name| Some((catalog.pmu(name).ok()?.kind(), name.clone()))).collect();
        features.push(feature::pmus(&pmus));
        let tracepoints = self.descs.iter().filter(|desc| desc.attr.kind == EventType::TRACEPOINT);
        let names: Vec<_> = tracepoints.filter_map(|desc| system_and_name(&desc.name)).collect();
        if !names.is_empty() {
            let files = catalog.formats_of(&names).map_err(Error::Catalog)?;
            features.push(tracing::tracing_data(&files, pmux_linux::page_bytes()));
        }
        Ok(features)
    }

    pub(super) fn late_features(&self) -> Vec<FeatureBytes> {
        let mut features = vec![(Feature::BuildId, self.build_ids.records())];
        if let Some((first_ns, last_ns)) = self.progress.sampled_ns() {
            features.push(feature::sample_time(first_ns, last_ns));
        }
        if let Some(packing) = &self.packing {
            features.push(feature::compressed(packing.packer.ratio(), pack::ROOM_BYTES));
        }
        if !self.absences().is_empty() {
            features.push(feature::absences(self.absences().iter().map(Absence::fields)));
        }
        features
    }
}

/// `SYSTEM:NAME`, with or without modifiers.
fn system_and_name(name: &str) -> Option<(&str, &str)> {
    let mut parts = name.split(':');
    Some((parts.next()?, parts.next()?))
}
