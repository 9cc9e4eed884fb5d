//! What explains samples: names, mappings, births and ends, as far back as the oldest sample that is kept.
//!
//! What it is: a table of how things stood at a moment ([`TaskTable`]), and all records about tasks since then, in memory. The moment
//! moves on as samples are overwritten: what is older than the oldest one is taken into the table. Read first: [`Past::forget`].
//!
//! Memory: the table has what is alive; what was told since the moment is as much as happens in the time that is kept. Where that is
//! more than [`MOST_BYTES`], because nothing overwrites a CPU's samples, the moment moves on all the same: who ended before it is
//! without a name ([`Past::known_since_ns`]).
//!
//! **Invariant:** pure, and bounded. Records are in the order of their times when they are told.

use super::mend::put_own;
use super::state::TaskTable;
use pmux_abi::attr::Attr;
use pmux_abi::record::{Record, RecordHeader, RecordKind, Records, SampleId, SampleLayout, decode_record};
use std::ops::Range;

/// The most bytes of records about tasks that are kept as they came.
const MOST_BYTES: usize = 64 << 20;
/// A record may be seen later than a younger one of another CPU, but not that much later.
const SETTLED_NS: u64 = 500_000_000;

pub(crate) struct Past {
    layout: SampleLayout,
    state: TaskTable,
    pub(super) records: Vec<u8>,
    places: Vec<(u64, Range<usize>)>,
    since_ns: u64,
    pub(crate) lost: u64,
    lost_since_sweep: bool,
    most_bytes: usize,
}

/// What a snapshot tells of it.
#[derive(Debug, Default)]
pub(crate) struct TaskRecords {
    /// How things stood, as records without a time.
    pub(crate) state: Vec<u8>,
    /// What came since then.
    pub(crate) records: Vec<u8>,
    /// Where each is, and its time; in order.
    pub(crate) places: Vec<(u64, Range<usize>)>,
    /// From when on nothing is left out.
    pub(crate) since_ns: u64,
    pub(crate) lost: u64,
}

impl Past {
    /// Of an event that tells. What is told without a time is of the layout of `first`, the first event of the file, with this id.
    pub(crate) fn new(tracking: &Attr, first: SampleLayout, id: SampleId, now_ns: u64) -> Self {
        Self {
            layout: SampleLayout::new(tracking),
            state: TaskTable::new(first, id),
            records: Vec::new(),
            places: Vec::new(),
            since_ns: now_ns,
            lost: 0,
            lost_since_sweep: false,
            most_bytes: MOST_BYTES,
        }
    }

    /// Takes in what was there before, as records of the layout of the first event.
    pub(crate) fn begin(&mut self, existing: &[u8], layout: &SampleLayout) {
        Records::new(existing).flatten().for_each(|record| self.state.take(record, layout));
    }

    /// Takes in a record as it came out of a ring.
    pub(crate) fn take(&mut self, record: &[u8]) {
        let Ok(header) = RecordHeader::decode(record) else { return };
        if header.kind == RecordKind::LOST {
            let decoded = decode_record(record, &self.layout);
            let lost = if let Ok((Record::Lost(lost), _)) = decoded { lost.lost } else { 1 };
            return self.lose(lost);
        }
        let Some(at_ns) = self.layout.time(record) else { return };
        let start = self.records.len();
        put_own(record, &self.layout, &mut self.records);
        self.places.push((at_ns, start..self.records.len()));
    }

    pub(crate) fn lose(&mut self, records: u64) {
        self.lost += records;
        self.lost_since_sweep = true;
    }

    /// No sample is older than that: what is, need not be told record by record. All that had happened by `now_ns` was taken in.
    pub(crate) fn forget(&mut self, oldest_ns: u64, now_ns: u64, is_alive: impl Fn(u32) -> bool) {
        self.sort();
        let settled_ns = now_ns.saturating_sub(SETTLED_NS);
        let mut done = self.places.partition_point(|(at_ns, _)| *at_ns < oldest_ns.min(settled_ns));
        if self.records.len() > self.most_bytes {
            // Down to a half, or it would be the same again at once.
            let much = self.places.partition_point(|(_, place)| place.start < self.records.len() - self.most_bytes / 2);
            done = done.max(much.min(self.places.partition_point(|(at_ns, _)| *at_ns < settled_ns)));
        }
        // Moving what is left pays off where it is not more than what goes.
        let gone = self.places.get(done).map_or(self.records.len(), |(_, place)| place.start);
        if done == 0 || gone < self.records.len() / 2 {
            return;
        }
        for (at_ns, place) in self.places.drain(..done) {
            self.since_ns = self.since_ns.max(at_ns);
            self.state.take(&self.records[place], &self.layout);
        }
        self.records.drain(..gone);
        self.places.iter_mut().for_each(|(_, place)| *place = place.start - gone..place.end - gone);
        self.records.shrink_to(self.records.len() * 2);
        if std::mem::take(&mut self.lost_since_sweep) {
            self.state.sweep(is_alive);
        }
    }

    /// Puts records in the order of their times, and in memory as well.
    fn sort(&mut self) {
        if self.places.is_sorted_by_key(|(at_ns, _)| *at_ns) {
            return;
        }
        crate::order::sort_by_key(&mut self.places, |(at_ns, _)| *at_ns);
        let mut sorted = Vec::with_capacity(self.records.len());
        for (_, place) in &mut self.places {
            let start = sorted.len();
            sorted.extend(&self.records[place.clone()]);
            *place = start..sorted.len();
        }
        self.records = sorted;
    }

    pub(crate) fn snapshot(&mut self) -> TaskRecords {
        self.sort();
        let (state, records, places) = (self.state.encode_records(), self.records.clone(), self.places.clone());
        TaskRecords { state, records, places, since_ns: self.since_ns, lost: self.lost }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes() + self.records.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::{AttrFlags, SampleFormat};
    use pmux_abi::record::{Comm, CommCause, Lost, Misc, Task, TaskId, encode_record};

    const SECOND: u64 = 1_000_000_000;

    fn attr() -> Attr {
        let sample = SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER;
        Attr { sample, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() }
    }

    fn id(time: u64) -> SampleId {
        let task = Some(TaskId::default());
        SampleId { task, time: Some(time), identifier: Some(7), ..SampleId::default() }
    }

    fn past() -> Past {
        Past::new(&attr(), SampleLayout::new(&attr()), id(0), 0)
    }

    fn take(past: &mut Past, record: &Record<'_>, time: u64) {
        let (mut bytes, layout) = ([0; 256], SampleLayout::new(&attr()));
        let size = encode_record(record, Some(&id(time)), Misc::USER, &layout, &mut bytes).unwrap();
        past.take(&bytes[..size]);
    }

    /// A process that is born at a time and ends a second later.
    fn life(past: &mut Past, pid: u32, at: u64) {
        let task = Task { pid, ppid: 1, tid: pid, ptid: 1, time: at };
        take(past, &Record::Fork(task), at);
        take(past, &Record::Comm(Comm { pid, tid: pid, cause: CommCause::Exec, comm: b"x" }), at + 1);
        take(past, &Record::Exit(task), at + SECOND);
    }

    #[test]
    fn a_snapshot_is_in_order_whatever_the_order_of_arrival() {
        let mut past = past();
        for pid in [5, 3, 9, 1] {
            life(&mut past, pid, u64::from(pid) * SECOND);
        }
        let task_records = past.snapshot();
        assert_eq!(task_records.places.len(), 12);
        assert!(task_records.places.is_sorted_by_key(|(at, _)| *at));
        let layout = SampleLayout::new(&attr());
        for (at, place) in &task_records.places {
            assert_eq!(layout.time(&task_records.records[place.clone()]), Some(*at));
        }
        assert!(task_records.state.is_empty());
    }

    #[test]
    fn months_of_processes_take_no_more_than_the_window() {
        let mut past = past();
        let mut most = 0;
        for second in 1..20_000_u64 {
            life(&mut past, second as u32, second * SECOND);
            // Ten seconds are kept.
            past.forget(second.saturating_sub(10) * SECOND, second * SECOND, |_| true);
            most = most.max(past.bytes());
        }
        assert!(most < 10_000, "{most} bytes");
        let task_records = past.snapshot();
        let first = task_records.places.first().unwrap().0;
        assert!(task_records.since_ns <= 19_989 * SECOND && first <= 19_990 * SECOND, "nothing younger is missing");
        assert!(task_records.places.last().unwrap().0 > 19_999 * SECOND);
    }

    #[test]
    fn more_than_there_is_memory_for_goes_and_it_is_said_since_when() {
        let mut past = past();
        past.most_bytes = 4096;
        for second in 1..1000_u64 {
            life(&mut past, second as u32, second * SECOND);
            // Nothing is overwritten.
            past.forget(0, (second + 2) * SECOND, |_| true);
            assert!(past.records.len() <= 4096 + 512);
        }
        let task_records = past.snapshot();
        assert!(task_records.since_ns > 900 * SECOND && task_records.since_ns < task_records.places[0].0);
    }

    #[test]
    fn a_record_that_has_just_come_is_not_taken_into_the_table() {
        let mut past = past();
        life(&mut past, 3, SECOND);
        past.forget(u64::MAX, SECOND + SETTLED_NS / 2, |_| true);
        assert_eq!(past.snapshot().places.len(), 3, "an older record may come yet");
        past.forget(u64::MAX, 10 * SECOND, |_| true);
        assert_eq!((past.snapshot().places.len(), past.snapshot().state.len()), (0, 0));
    }

    #[test]
    fn losses_are_counted_and_tasks_that_were_lost_are_looked_for() {
        let mut past = past();
        let task = Task { pid: 4, ppid: 1, tid: 4, ptid: 1, time: SECOND };
        take(&mut past, &Record::Fork(task), SECOND);
        take(&mut past, &Record::Comm(Comm { pid: 4, tid: 4, cause: CommCause::Exec, comm: b"x" }), SECOND);
        take(&mut past, &Record::Lost(Lost { id: 7, lost: 12 }), SECOND);
        past.forget(u64::MAX, 9 * SECOND, |pid| pid != 4);
        assert_eq!((past.lost, past.snapshot().state.len()), (12, 0));
    }
}
