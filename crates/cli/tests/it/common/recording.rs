//! What is in a recording, as a reader that others wrote finds it.
//!
//! Read first: [`Content`].

use linux_perf_data::linux_perf_event_reader::{EventRecord, RecordType, SampleFormat};
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, Read as _};
use std::path::Path;

/// What is in a file, as the crate `linux-perf-data` reads it.
#[derive(Default, Debug)]
pub struct Content {
    pub events: Vec<String>,
    pub samples: u64,
    /// Samples that no event of the file is known for.
    pub lost: u64,
    pub comms: Vec<String>,
    /// When each CPU had a sample, where samples tell it.
    pub cpus: BTreeMap<u32, Vec<u64>>,
    pub pids: BTreeMap<i32, u64>,
    pub tids: BTreeMap<i32, u64>,
    pub forks: u64,
    pub exits: u64,
    pub switches: u64,
    pub maps: Vec<String>,
    /// How many samples each event has.
    pub sampled: BTreeMap<String, u64>,
    /// Cgroups by number: their paths, and how many samples say that they were taken in them.
    pub cgroups: BTreeMap<u64, String>,
    pub sampled_in: BTreeMap<u64, u64>,
    /// When each thread of this name had a sample.
    pub times: BTreeMap<String, Vec<u64>>,
}

impl Content {
    pub fn read(file: &Path) -> Self {
        let reader = PerfFileReader::parse_file(BufReader::new(File::open(file).unwrap())).unwrap();
        Self::of(reader)
    }

    /// The same of a file that is being written; `None` where it is not one yet.
    pub fn look(file: &Path) -> Option<Self> {
        const HEADER_BYTES: usize = 104;
        let bytes = std::fs::read(file).ok()?;
        let mut header = [0; HEADER_BYTES];
        File::open(file).ok()?.read_exact(&mut header).ok()?;
        // The header changes before the index moves, and after it. A reader that takes the one from before and the other from
        // behind would take records for the sizes of features.
        let is_of_one_state = bytes.starts_with(&header);
        is_of_one_state.then(|| PerfFileReader::parse_file(Cursor::new(bytes)).ok().map(Self::of))?
    }

    pub fn of<R: std::io::Read>(reader: PerfFileReader<R>) -> Self {
        let PerfFileReader { mut perf_file, mut record_iter } = reader;
        let mut content = Self::default();
        let events = perf_file.event_attributes().iter().map(|event| event.name().unwrap_or("?").to_owned());
        content.events = events.collect();
        let mut names: BTreeMap<i32, String> = BTreeMap::new();
        let attrs = perf_file.event_attributes().iter().map(|event| &event.attr);
        let with_cgroup: Vec<_> = attrs.map(|attr| attr.sample_format.contains(SampleFormat::CGROUP)).collect();
        while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
            let PerfFileRecord::EventRecord { attr_index, record } = record else { continue };
            if matches!(record.record_type, RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE) {
                content.switches += 1;
            }
            let bytes = record.data.as_slice().into_owned();
            let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            if record.record_type == RecordType::CGROUP {
                let path = bytes[8..].split(|&byte| byte == 0).next().unwrap_or_default();
                content.cgroups.insert(word(0), String::from_utf8_lossy(path).into_owned());
            }
            match record.parse().unwrap() {
                EventRecord::Sample(sample) => {
                    if with_cgroup.get(attr_index) == Some(&true) {
                        // The last field of those that are asked for here.
                        *content.sampled_in.entry(word(bytes.len() - 8)).or_default() += 1;
                    }
                    content.samples += 1;
                    *content.sampled.entry(content.events[attr_index].clone()).or_default() += 1;
                    let name = sample.tid.and_then(|tid| names.get(&tid)).cloned().unwrap_or_default();
                    content.times.entry(name).or_default().extend(sample.timestamp);
                    if let Some(cpu) = sample.cpu {
                        content.cpus.entry(cpu).or_default().extend(sample.timestamp);
                    }
                    sample.pid.into_iter().for_each(|pid| *content.pids.entry(pid).or_default() += 1);
                    sample.tid.into_iter().for_each(|tid| *content.tids.entry(tid).or_default() += 1);
                }
                EventRecord::Lost(lost) => content.lost += lost.count,
                EventRecord::Comm(comm) => {
                    let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
                    names.insert(comm.tid, name.clone());
                    content.comms.push(name);
                }
                EventRecord::Fork(_) => content.forks += 1,
                EventRecord::Exit(_) => content.exits += 1,
                EventRecord::Mmap2(map) => {
                    content.maps.push(String::from_utf8_lossy(&map.path.as_slice()).into_owned());
                }
                _ => {}
            }
        }
        content
    }
}
