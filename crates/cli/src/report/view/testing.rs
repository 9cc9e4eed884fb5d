//! A recording that was made up, for the tests of what is looked at and how it is drawn.
//!
//! **Invariant:** names and numbers come from a real profile, so that ids are what they are elsewhere; nothing is read from the machine.

use super::messages::ReaderMessage;
use super::reader::{ReadPlan, run};
use super::state::{Action, Effect, Sort, State};
use pmux::abi::{Attr, AttrFlags, EventType, SampleFormat};
use pmux::perf_data::file::FileWriter;
use pmux::perf_data::{EventDesc, feature};
use pmux::profile::records::{
    Comm, CommCause, Misc, Mmap, Record, Sample, SampleId, SampleLayout, TaskId, encode_record,
};
use pmux::profile::{Input, LookupDetail, SortKey};
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A recording of two events, `one` with 40 samples and `other` with 10, of two threads in three programs that are not there.
pub(super) fn recording() -> File {
    let attr = Attr {
        kind: EventType::SOFTWARE,
        sample: SampleFormat::IDENTIFIER
            | SampleFormat::IP
            | SampleFormat::TID
            | SampleFormat::TIME
            | SampleFormat::CALLCHAIN
            | SampleFormat::PERIOD,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    let layout = SampleLayout::new(&attr);
    let mut records = Vec::new();
    let mut put = |record: &Record<'_>, id: Option<&SampleId>| {
        let mut bytes = [0; 4096];
        let length = encode_record(record, id, Misc::USER, &layout, &mut bytes).unwrap();
        records.extend(&bytes[..length]);
    };
    let sample_id = |tid| SampleId {
        task: Some(TaskId { pid: 7, tid }),
        time: Some(1),
        identifier: Some(11),
        ..SampleId::default()
    };
    for (tid, name) in [(7, "shop"), (8, "shelf")] {
        let comm = Comm { pid: 7, tid, cause: CommCause::Rename, comm: name.as_bytes() };
        put(&Record::Comm(comm), Some(&sample_id(tid)));
    }
    for (addr, path) in [(0x1000, "/nowhere/shop"), (0x2000, "/nowhere/libdoor.so"), (0x3000, "/nowhere/漢字.so")] {
        let map = Mmap { pid: 7, tid: 7, addr, len: 0x1000, filename: path.as_bytes(), ..Mmap::default() };
        put(&Record::Mmap(map), Some(&sample_id(7)));
    }
    let shop: [u64; 3] = [0x2010, 0x1011, 0x1021];
    let shelf: [u64; 2] = [0x3010, 0x1021];
    let samples = [(11, 7, &shop[..], 30), (11, 8, &shelf[..], 10), (12, 7, &shop[1..], 10)];
    for (time, (event, tid, chain)) in samples
        .into_iter()
        .flat_map(|(event, tid, chain, count)| (0..count).map(move |_| (event, tid, chain)))
        .enumerate()
    {
        let marked: Vec<u64> = [u64::MAX - 511].into_iter().chain(chain.iter().copied()).collect();
        let sample = Sample {
            identifier: Some(event),
            ip: chain.first().copied(),
            task: Some(TaskId { pid: 7, tid }),
            time: Some(10 + time as u64),
            period: Some(100),
            callchain: Some((&marked[..]).into()),
            ..Sample::default()
        };
        put(&Record::Sample(sample), None);
    }
    let event = |name: &str, id| EventDesc { attr, name: name.to_owned(), ids: vec![id] };
    let descs = [event("one", 11), event("other", 12)];
    let file = tempfile::tempfile().unwrap();
    let mut writer = FileWriter::create(file.try_clone().unwrap(), &descs, 0, &[]).unwrap();
    writer.put(&records).unwrap();
    writer.finish(&[feature::events(&descs)]).unwrap();
    file
}

/// The view of a recording, with a reader behind it.
pub(super) struct Viewed {
    pub(super) state: State,
    request: Sender<super::messages::ViewRequest>,
    messages: Receiver<ReaderMessage>,
}

impl Viewed {
    pub(super) fn new(size: (u16, u16)) -> Self {
        let keys = vec![SortKey::Comm, SortKey::Dso, SortKey::Symbol];
        let state = State::new("it.data".to_owned(), keys.clone(), Sort::Total, size);
        let ((request, requests), (sender, messages)) = (channel(), channel());
        let input = Input::file(recording());
        let plan = ReadPlan {
            name: "it.data".to_owned(),
            snapshots: Vec::new(),
            wrong: Vec::new(),
            keys,
            least_percent: 0.0,
            wanted: pmux::profile::SampleFilter::default(),
            is_wall: false,
            look: LookupDetail::Lines,
        };
        // Before the reader begins: when it has read all, it tells only what was asked by then.
        request.send(state.request()).unwrap();
        std::thread::spawn(move || run(input, plan, requests, Box::new(move |message| sender.send(message).is_ok())));
        let mut viewed = Self { state, request, messages };
        viewed.take_until(|message| matches!(message, ReaderMessage::Finished));
        viewed
    }

    fn take_until(&mut self, is_last: impl Fn(&ReaderMessage) -> bool) {
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(60)).unwrap();
            let ends = is_last(&message);
            self.state.take(message);
            if ends {
                return;
            }
        }
    }

    /// Does it, and waits for what is wanted after it.
    pub(super) fn act(&mut self, actions: &[Action]) {
        for action in actions {
            let before = self.state.request();
            assert_eq!(self.state.act(*action), Effect::Nothing, "{action:?}");
            let wanted = self.state.request();
            if wanted != before {
                let has_source = wanted.source.is_some();
                self.request.send(wanted).unwrap();
                self.take_until(|message| {
                    matches!(message, ReaderMessage::Source(..))
                        || !has_source && matches!(message, ReaderMessage::TableData(_))
                });
            }
        }
    }

    pub(super) fn write(&mut self, text: &str) {
        let letters: Vec<Action> = text.chars().map(Action::Type).collect();
        self.act(&letters);
    }
}
