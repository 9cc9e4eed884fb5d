//! What a `perf.data` file holds, as others read it.

use linux_perf_data::linux_perf_event_reader::EventRecord;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// By number of the events of the file.
    pub event: usize,
    pub at_ns: u64,
    pub pid: i32,
    pub tid: i32,
    pub cpu: Option<u32>,
    pub raw: Vec<u8>,
    /// What a reader takes the task to be called.
    pub comm: Option<String>,
}

impl Seen {
    /// Eight bytes of what a tracepoint has written.
    pub(crate) fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.raw[at..at + 8].try_into().unwrap())
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Content {
    pub events: Vec<String>,
    /// In the order of their times, as the reader sorts them.
    pub samples: Vec<Seen>,
    pub comms: usize,
    pub maps: Vec<String>,
    pub lost: u64,
}

impl Content {
    /// Everything, by the crate `linux-perf-data`. It complains about nothing.
    pub(crate) fn read(file: &Path) -> Self {
        let reader = PerfFileReader::parse_file(BufReader::new(File::open(file).unwrap())).unwrap();
        let PerfFileReader { mut perf_file, mut record_iter } = reader;
        let mut content = Self::default();
        let names = perf_file.event_attributes().iter().map(|event| event.name().unwrap_or("?").to_owned());
        content.events = names.collect();
        let mut named = std::collections::HashMap::new();
        while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
            let PerfFileRecord::EventRecord { attr_index, record } = record else { continue };
            let parsed = record.parse().unwrap_or_else(|error| {
                let bytes = record.data.as_slice();
                panic!("{error} in {record:?} of event {attr_index}: {bytes:02x?}")
            });
            match parsed {
                EventRecord::Sample(sample) => {
                    let (pid, tid) = (sample.pid.unwrap(), sample.tid.unwrap());
                    content.samples.push(Seen {
                        event: attr_index,
                        at_ns: sample.timestamp.unwrap(),
                        pid,
                        tid,
                        cpu: sample.cpu,
                        raw: sample.raw.map(|raw| raw.as_slice().into_owned()).unwrap_or_default(),
                        comm: named.get(&tid).cloned(),
                    });
                }
                EventRecord::Lost(lost) => content.lost += lost.count,
                EventRecord::Comm(comm) => {
                    content.comms += 1;
                    named.insert(comm.tid, String::from_utf8_lossy(&comm.name.as_slice()).into_owned());
                }
                EventRecord::Fork(fork) => {
                    if let Some(name) = named.get(&fork.ptid).cloned() {
                        named.insert(fork.tid, name);
                    }
                }
                EventRecord::Mmap2(map) => {
                    content.maps.push(String::from_utf8_lossy(&map.path.as_slice()).into_owned());
                }
                _ => {}
            }
        }
        content
    }
}

/// What `perf script` makes of a file, without a complaint; `None` where there is no perf.
pub(crate) fn perf_script(file: &Path, options: &[&str]) -> Option<String> {
    if Command::new("perf").arg("version").output().is_err() {
        return None;
    }
    let output = Command::new("perf").args(["script", "-i"]).arg(file).args(options).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaint}");
    assert!(complaint.trim().is_empty(), "perf complains: {complaint}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
