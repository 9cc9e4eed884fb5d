//! What stands before and behind the records: the events, and what is told of the machine.
//!
//! What it is: the description of a file ([`Head::read`]), or of a pipe, where it comes in records of its own
//! ([`Head::take_record`]). Read first: [`Head`].
//!
//! **Invariant:** the bytes may be anything. What is broken beside the events is left out and said; without events nothing can be
//! read, and that is an error.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt`.

use super::build_ids::BuildIds;
use super::error::ProfileError;
use super::formats::Formats;
use crate::bytes::{Fields, until_zero};
use crate::event::Generic;
use crate::perf_data::feature::Feature;
use crate::perf_data::kind;
use crate::record::Absence;
use pmux_abi::attr::{Attr, AttrError, BranchSample, EventType, SampleFormat};
use pmux_abi::record::{Misc, SampleLayout};
use pmux_engine::Nanos;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of the header of a file, and of a pipe.
const FILE_HEADER: usize = 104;
pub(super) const PIPE_HEADER: usize = 16;
/// What `perf` calls a group without a name.
const UNNAMED_GROUP: &str = "{anon_group}";
/// No feature is larger; no more attributes and ids are believed.
const LARGEST_FEATURE: u64 = 1 << 28;
const MOST_ATTR_BYTES: u64 = 1 << 26;
/// An entry of the list of events has an attribute and the place of its ids.
const IDS_SECTION: usize = 16;

/// An event of the recording.
#[derive(Clone, Debug)]
pub struct EventInfo {
    /// Its name, as it was asked for.
    pub name: String,
    /// What it was opened with.
    pub attr: Attr,
    /// The kernel's ids of it.
    pub ids: Vec<u64>,
    /// The group that it leads; the members are the events behind it.
    pub group: Option<EventGroup>,
    pub(super) layout: SampleLayout,
}

/// A group of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventGroup {
    /// Its name; empty where it was given none.
    pub name: String,
    /// How many events it has, with its leader.
    pub events: usize,
}

impl EventInfo {
    /// One that the recording gives no name.
    fn new(attr: Attr, ids: Vec<u64>) -> Self {
        let layout = SampleLayout::new(&attr);
        Self { name: name_of(&attr), attr, ids, group: None, layout }
    }

    /// Whether its samples have call chains.
    #[must_use]
    pub fn has_call_chains(&self) -> bool {
        self.attr.sample.contains(SampleFormat::CALLCHAIN)
    }

    /// Whether its samples have addresses of data.
    #[must_use]
    pub fn has_addresses(&self) -> bool {
        self.attr.sample.contains(SampleFormat::ADDR)
    }

    /// Whether its samples have the last branches that were taken, and not the calls that stand for their chains.
    #[must_use]
    pub fn has_branches(&self) -> bool {
        self.attr.sample.contains(SampleFormat::BRANCH_STACK)
            && !self.attr.branch_sample.contains(BranchSample::CALL_STACK)
    }

    /// Whether its samples have times.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.attr.sample.contains(SampleFormat::TIME)
    }

    /// Whether it is a tracepoint, whose number is the `config` of its attribute.
    #[must_use]
    pub fn is_tracepoint(&self) -> bool {
        self.attr.kind == EventType::TRACEPOINT
    }
}

/// What a recording tells of itself and its machine. What it doesn't tell is `None`.
#[derive(Clone, Default, Debug)]
#[allow(missing_docs)]
pub struct About {
    pub host: Option<String>,
    pub kernel: Option<String>,
    /// The tool that recorded, and its version.
    pub writer: Option<String>,
    pub architecture: Option<String>,
    pub processor: Option<String>,
    pub memory_kib: Option<u64>,
    pub cpus_online: Option<u32>,
    pub cpus_present: Option<u32>,
    /// The words of the command that recorded.
    pub command_line: Vec<String>,
    /// The first and the last sample, in ns of the clock.
    pub sampled_ns: Option<(u64, u64)>,
    /// The clock's number, as `clock_gettime(2)` has it.
    pub clock_id: Option<u32>,
    /// The time since 1970 and that of the clock at one moment, in ns.
    pub clock_moment_ns: Option<(u64, u64)>,
    /// When CPUs were away.
    pub absences: Vec<Absence>,
    /// A symbol of the kernel, and where it was.
    pub kernel_text: Option<(String, u64)>,
}

/// All that is known before the first sample.
#[derive(Default, Debug)]
pub(super) struct Head {
    pub(super) about: About,
    pub(super) events: Vec<EventInfo>,
    /// Which event an id is of.
    pub(super) by_id: HashMap<u64, u32>,
    pub(super) build_ids: BuildIds,
    pub(super) tracing: Vec<u8>,
    pub(super) notes: Vec<String>,
}

/// Whether the bytes begin a pipe or a file; both have the same first eight.
///
/// # Errors
/// What is wrong with them.
pub(super) fn is_pipe(first: &[u8]) -> Result<bool, ProfileError> {
    let Some(magic) = first.first_chunk::<8>() else {
        return Err(if first.is_empty() { ProfileError::Empty } else { ProfileError::NoRecording });
    };
    match magic {
        b"PERFILE2" => {}
        b"2ELIFREP" => return Err(ProfileError::OtherByteOrder),
        b"PERFFILE" | b"ELIFFREP" => return Err(ProfileError::FirstVersion),
        _ => return Err(ProfileError::NoRecording),
    }
    let size = Fields(first.get(8..).unwrap_or_default()).u64().ok_or(ProfileError::CutOff { what: "header" })?;
    Ok(size == PIPE_HEADER as u64)
}

/// Bytes of a file; fewer where it ends.
fn bytes_at(file: &File, offset: u64, bytes: u64, what: &'static str) -> Result<Vec<u8>, ProfileError> {
    let length = file.metadata()?.len();
    if offset.checked_add(bytes).is_none_or(|end| end > length) {
        return Err(ProfileError::CutOff { what });
    }
    let mut out = vec![0; bytes as usize];
    file.read_exact_at(&mut out, offset)?;
    Ok(out)
}

/// An attribute; bits that a newer tool knows and this one doesn't are left out where they don't say what samples hold.
fn attribute(bytes: &[u8]) -> Result<Attr, AttrError> {
    let mut bytes = bytes.to_vec();
    // Fields behind the last known one can't be understood.
    bytes.truncate(Attr::MAX_SIZE);
    let length = bytes.len();
    if let Some(size) = bytes.get_mut(4..8)
        && Fields(size).u32().is_some_and(|size| size as usize > length)
    {
        size.copy_from_slice(&(length as u32).to_ne_bytes());
    }
    let clear = |bytes: &mut [u8], at: usize, bits: u64| {
        if let Some(word) = bytes.get_mut(at..at + 8) {
            let value = Fields(word).u64().unwrap_or(0) & !bits;
            word.copy_from_slice(&value.to_ne_bytes());
        }
    };
    let mut tries = 4;
    loop {
        tries -= 1;
        match Attr::decode(&bytes) {
            Err(AttrError::ReservedFlags { bits }) if tries > 0 => clear(&mut bytes, 40, bits),
            Err(AttrError::BranchSampleType { bits }) if tries > 0 => clear(&mut bytes, 72, bits),
            Err(AttrError::Reserved2 { .. }) if tries > 0 => bytes[110..112].fill(0),
            Err(AttrError::Reserved3 { .. }) if tries > 0 => bytes[116..120].fill(0),
            other => return other,
        }
    }
}

impl Head {
    /// Reads the description of a file; of a pipe's records, which tell of the events on the way, there is nothing to know yet.
    pub(super) fn of_any(file: &File) -> Result<Self, ProfileError> {
        let length = file.metadata()?.len().min(PIPE_HEADER as u64);
        let first = bytes_at(file, 0, length, "header")?;
        if is_pipe(&first)? { Ok(Self::default()) } else { Ok(Self::read(file)?.0) }
    }

    /// Reads the description of a file, and where its records stand.
    pub(super) fn read(file: &File) -> Result<(Self, Range<u64>), ProfileError> {
        let length = file.metadata()?.len();
        let header = bytes_at(file, 0, FILE_HEADER as u64, "header")?;
        let mut fields = Fields(header.get(16..).unwrap_or_default());
        let mut word = || fields.u64().ok_or(ProfileError::CutOff { what: "header" });
        let (entry_bytes, attrs_at, attrs_bytes) = (word()?, word()?, word()?);
        let (data_at, data_bytes) = (word()?, word()?);
        let (_event_types_at, _event_types_bytes) = (word()?, word()?);
        let bits = [word()?, word()?, word()?, word()?];
        if !(64 + IDS_SECTION as u64..4096).contains(&entry_bytes) {
            return Err(ProfileError::Broken { what: "size of an event's description", value: entry_bytes });
        }
        if attrs_bytes > MOST_ATTR_BYTES {
            return Err(ProfileError::Broken { what: "size of the list of events", value: attrs_bytes });
        }
        let (mut head, mut all_ids_bytes) = (Self::default(), 0);
        let attrs = bytes_at(file, attrs_at, attrs_bytes, "list of events")?;
        for entry in attrs.chunks_exact(entry_bytes as usize) {
            let (attr, mut ids) = (entry.get(..entry.len() - IDS_SECTION).unwrap_or_default(), Fields(entry));
            ids.take(entry.len() - IDS_SECTION);
            let (Some(ids_at), Some(ids_bytes)) = (ids.u64(), ids.u64()) else { continue };
            // Each event has its own, so all of them fit into the file.
            all_ids_bytes += ids_bytes.min(MOST_ATTR_BYTES);
            if ids_bytes > MOST_ATTR_BYTES || all_ids_bytes > length {
                return Err(ProfileError::Broken { what: "size of an event's ids", value: ids_bytes });
            }
            let ids = bytes_at(file, ids_at, ids_bytes, "list of an event's ids")?;
            head.add_event(attr, &ids)?;
        }
        if head.events.is_empty() {
            return Err(ProfileError::NoEvents);
        }
        if data_at > length {
            return Err(ProfileError::CutOff { what: "description" });
        }
        let wanted_end = data_at.saturating_add(data_bytes);
        if data_bytes == 0 {
            // As the tool left it that was killed: whatever is there are records.
            if length > data_at {
                head.notes.push("the recorder did not end as it should: everything up to the end is read".to_owned());
            }
            return Ok((head, data_at..length));
        }
        if wanted_end > length {
            head.notes.push(format!(
                "the recording is cut off: {} of {data_bytes} bytes of records are there, and nothing of what follows them",
                length - data_at
            ));
            return Ok((head, data_at..length));
        }
        head.read_features(file, wanted_end, bits);
        Ok((head, data_at..wanted_end))
    }

    fn read_features(&mut self, file: &File, table_at: u64, bits: [u64; 4]) {
        let numbers = (0..256_u32).filter(|bit| bits[*bit as usize / 64] >> (bit % 64) & 1 == 1);
        for (place, number) in numbers.enumerate() {
            let Ok(section) = bytes_at(file, table_at + 16 * place as u64, 16, "table of features") else {
                self.notes.push("the recording is cut off: not all that it tells of its machine is there".to_owned());
                return;
            };
            let mut section = Fields(&section);
            let (Some(at), Some(bytes)) = (section.u64(), section.u64()) else { return };
            // What is broken in it is left out.
            let found = bytes_at(file, at, bytes.min(LARGEST_FEATURE), "features").ok();
            let taken = found.and_then(|found| self.take_feature(number, &found));
            if taken.is_none() || bytes > LARGEST_FEATURE {
                self.notes.push(format!(
                    "what the recording tells of {} is cut off or broken: a part of it is left out",
                    about_feature(number)
                ));
            }
        }
    }

    /// Takes in the events of another recording of the same machine: they are those that are known, as far as they were opened with the
    /// same. Returns the place of its first one.
    pub(super) fn join(&mut self, others: Vec<EventInfo>) -> Option<usize> {
        let mut first = None;
        for event in others {
            let same = self.events.iter().position(|known| known.name == event.name && known.attr == event.attr);
            let place = same.unwrap_or(self.events.len());
            first.get_or_insert(place);
            self.by_id.extend(event.ids.iter().map(|id| (*id, place as u32)));
            match self.events.get_mut(place) {
                Some(known) => {
                    let fresh: Vec<u64> = event.ids.into_iter().filter(|id| !known.ids.contains(id)).collect();
                    known.ids.extend(fresh);
                }
                None => self.events.push(event),
            }
        }
        first
    }

    fn add_event(&mut self, attr: &[u8], ids: &[u8]) -> Result<(), ProfileError> {
        let index = self.events.len();
        let attr = attribute(attr).map_err(|error| ProfileError::Event { index, error })?;
        let ids: Vec<u64> = ids.as_chunks::<8>().0.iter().map(|id| u64::from_ne_bytes(*id)).collect();
        for &id in &ids {
            self.by_id.entry(id).or_insert(index as u32);
        }
        self.events.push(EventInfo::new(attr, ids));
        Ok(())
    }

    /// Gives tracepoints that have no name the one that the descriptions of their fields have.
    pub(super) fn name_tracepoints(&mut self, tracing: &[u8]) {
        let is_nameless = |event: &EventInfo| event.is_tracepoint() && event.name == name_of(&event.attr);
        if !self.events.iter().any(is_nameless) {
            return;
        }
        let formats = Formats::parse(tracing);
        for event in self.events.iter_mut().filter(|event| is_nameless(event)) {
            if let Some(format) = formats.get(event.attr.config) {
                event.name = format!("{}:{}", format.system, format.name);
            }
        }
    }

    /// Takes a feature. `None` where its bytes end too early.
    pub(super) fn take_feature(&mut self, number: u32, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let about = &mut self.about;
        let is = |feature: Feature| number == u32::from(feature as u8);
        if is(Feature::HostName) {
            about.host = Some(fields.text()?);
        } else if is(Feature::OsRelease) {
            about.kernel = Some(fields.text()?);
        } else if is(Feature::Version) {
            about.writer = Some(fields.text()?);
        } else if is(Feature::Arch) {
            about.architecture = Some(fields.text()?);
        } else if is(Feature::CpuDesc) {
            about.processor = Some(fields.text()?);
        } else if is(Feature::NrCpus) {
            about.cpus_present = Some(fields.u32()?);
            about.cpus_online = Some(fields.u32()?);
        } else if is(Feature::TotalMem) {
            about.memory_kib = Some(fields.u64()?);
        } else if is(Feature::CmdLine) {
            let count = fields.u32()?;
            about.command_line = (0..count).map_while(|_| fields.text()).collect();
        } else if is(Feature::SampleTime) {
            // Zeros where the tool did not look at its samples (`perf record -B`, `--buildid-mmap`).
            about.sampled_ns = Some((fields.u64()?, fields.u64()?)).filter(|(_, last)| *last > 0);
        } else if is(Feature::ClockData) {
            let (_version, clock_id) = (fields.u32()?, fields.u32()?);
            about.clock_id = Some(clock_id);
            about.clock_moment_ns = Some((fields.u64()?, fields.u64()?));
        } else if is(Feature::Absences) {
            let count = fields.u64()?;
            let mut one = || {
                let (cpu, from, to) = (fields.u64()?, fields.u64()?, fields.u64()?);
                let to = (to != u64::MAX).then_some(Nanos(to));
                Some(Absence { cpu: u32::try_from(cpu).ok()?, from: Nanos(from), to })
            };
            about.absences = (0..count).map_while(|_| one()).collect();
        } else if is(Feature::TracingData) {
            self.tracing = bytes.to_vec();
        } else if is(Feature::BuildId) {
            self.build_ids.take_all(bytes)?;
        } else if is(Feature::EventDesc) {
            self.take_names(fields)?;
        } else if is(Feature::GroupDesc) {
            self.take_groups(fields)?;
        }
        Some(())
    }

    /// The events once more, with their names.
    fn take_names(&mut self, mut fields: Fields<'_>) -> Option<()> {
        let (count, attr_bytes) = (fields.u32()?, fields.u32()? as usize);
        for place in 0..count as usize {
            fields.take(attr_bytes)?;
            let ids = fields.u32()? as usize;
            let name = fields.text()?;
            let ids = fields.take(ids.checked_mul(8)?)?;
            // By an id where there is one: a pipe may have told of the events in another order.
            let by_id = Fields(ids).u64().and_then(|id| self.by_id.get(&id)).map(|&index| index as usize);
            if let Some(event) = self.events.get_mut(by_id.unwrap_or(place))
                && !name.is_empty()
            {
                event.name = name;
            }
        }
        Some(())
    }

    /// Which events were opened as groups.
    fn take_groups(&mut self, mut fields: Fields<'_>) -> Option<()> {
        for _ in 0..fields.u32()? {
            let (name, leader, events) = (fields.text()?, fields.u32()? as usize, fields.u32()? as usize);
            let is_there = leader.checked_add(events).is_some_and(|end| end <= self.events.len());
            if let Some(leader) = self.events.get_mut(leader).filter(|_| is_there && events > 1) {
                let name = if name == UNNAMED_GROUP { String::new() } else { name };
                leader.group = Some(EventGroup { name, events });
            }
        }
        Some(())
    }

    /// Takes a record, if it is one that describes.
    ///
    /// # Errors
    /// An event that is not understood.
    pub(super) fn take_record(&mut self, header: u32, misc: u16, payload: &[u8]) -> Result<(), ProfileError> {
        const UPDATE_NAME: u64 = 2;
        let mut fields = Fields(payload);
        match header {
            kind::HEADER_ATTR => {
                let size = Fields(payload.get(4..).unwrap_or_default()).u32().unwrap_or(0) as usize;
                let size = if size == 0 { 64 } else { size };
                let Some(attr) = fields.take(size) else {
                    return Err(ProfileError::CutOff { what: "description of an event" });
                };
                self.add_event(attr, fields.0)?;
            }
            kind::HEADER_FEATURE => {
                if let Some(number) = fields.u64() {
                    let _ = u32::try_from(number).ok().and_then(|number| self.take_feature(number, fields.0));
                }
            }
            kind::HEADER_BUILD_ID => {
                let _ = self.build_ids.take(Misc(misc), payload);
            }
            kind::EVENT_UPDATE => {
                let (what, id) = (fields.u64(), fields.u64());
                if what == Some(UPDATE_NAME)
                    && let Some(&index) = id.and_then(|id| self.by_id.get(&id))
                    && let Some(event) = self.events.get_mut(index as usize)
                {
                    event.name = until_zero(fields.0);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What a feature tells of, in words.
fn about_feature(number: u32) -> String {
    let known = [
        (Feature::TracingData, "the fields of tracepoints"),
        (Feature::BuildId, "build ids"),
        (Feature::HostName, "its host"),
        (Feature::OsRelease, "its kernel"),
        (Feature::Arch, "its architecture"),
        (Feature::CmdLine, "its command line"),
        (Feature::EventDesc, "the names of events"),
        (Feature::GroupDesc, "groups of events"),
        (Feature::SampleTime, "the times of its samples"),
        (Feature::ClockData, "its clock"),
    ];
    let words = known.iter().find(|(feature, _)| number == u32::from(*feature as u8)).map(|(_, words)| *words);
    words.map_or_else(|| format!("feature {number}"), ToOwned::to_owned)
}

/// What an event is called of which the recording doesn't say it.
fn name_of(attr: &Attr) -> String {
    match Generic::from_config(attr.kind, attr.config) {
        Some(Generic::Hardware(event)) => event.canonical().to_owned(),
        Some(Generic::Software(event)) => event.canonical().to_owned(),
        Some(Generic::Cache(event)) => event.to_string(),
        _ => format!("{}:{:#x}", attr.kind.0, attr.config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf_data::feature::{absences, groups};

    #[test]
    fn groups_are_believed_as_far_as_their_events_are_there() {
        let event = |_| EventInfo::new(Attr::default(), Vec::new());
        let mut head = Head { events: (0..4).map(event).collect(), ..Head::default() };
        let described =
            [(UNNAMED_GROUP, 0, 2), ("mine", 2, 2), ("one", 1, 1), ("far", 3, 2), ("wrong", u32::MAX, u32::MAX)];
        let (feature, bytes) = groups(&described.map(|(name, leader, events)| (name.to_owned(), leader, events)));
        assert_eq!(head.take_feature(u32::from(feature as u8), &bytes), Some(()));
        let group = |name: &str| Some(EventGroup { name: name.to_owned(), events: 2 });
        let found: Vec<_> = head.events.iter().map(|event| event.group.clone()).collect();
        assert_eq!(found, [group(""), None, group("mine"), None]);
    }

    #[test]
    fn when_cpus_were_away_is_told_and_understood() {
        let (feature, bytes) = absences([(1, 5, Some(9)), (2, 7, None)].into_iter());
        let mut head = Head::default();
        assert_eq!(head.take_feature(u32::from(feature as u8), &bytes), Some(()));
        let away = |cpu, from, to: Option<u64>| Absence { cpu, from: Nanos(from), to: to.map(Nanos) };
        assert_eq!(head.about.absences, [away(1, 5, Some(9)), away(2, 7, None)]);
        // Cut off, or with a count that can't be: what is there.
        let lies = [&u64::MAX.to_ne_bytes()[..], &bytes[8..40]].concat();
        assert_eq!(head.take_feature(u32::from(feature as u8), &lies), Some(()));
        assert_eq!(head.about.absences, [away(1, 5, Some(9))]);
    }

    #[test]
    fn times_that_were_not_taken_are_none() {
        let mut head = Head::default();
        let times = |first: u64, last: u64| [first.to_ne_bytes(), last.to_ne_bytes()].concat();
        let number = u32::from(Feature::SampleTime as u8);
        assert_eq!((head.take_feature(number, &times(0, 0)), head.about.sampled_ns), (Some(()), None));
        assert_eq!((head.take_feature(number, &times(3, 9)), head.about.sampled_ns), (Some(()), Some((3, 9))));
        assert_eq!(head.take_feature(number, &[1; 12]), None, "it is cut off");
    }

    #[test]
    fn tracepoints_without_names_have_those_of_their_fields() {
        let format = "name: open\nID: 1329\nformat:\n\tfield:int fd;\toffset:0;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->fd\n";
        let systems = vec![("files".to_owned(), vec![format.into()])];
        let files = pmux_linux::catalog::TracingFiles { systems, ..pmux_linux::catalog::TracingFiles::default() };
        let (_, tracing) = crate::perf_data::tracing::tracing_data(&files, 4096);
        let mut head = Head::default();
        for (kind, config) in [(EventType::TRACEPOINT, 1329), (EventType::TRACEPOINT, 7), (EventType::RAW, 1329)] {
            head.events.push(EventInfo::new(Attr { kind, config, ..Attr::default() }, Vec::new()));
        }
        head.name_tracepoints(&tracing);
        let names: Vec<&str> = head.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["files:open", "2:0x7", "4:0x531"]);
    }
}
