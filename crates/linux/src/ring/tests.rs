//! The reader on fabricated memory, and the whole on the kernel's.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use super::{Corruption, Reader, Ring, RingError, RingSource};
use crate::sys::{Errno, perf};

/// A ring whose writer is the test.
#[derive(Clone)]
struct Fake(Rc<FakeRing>);

struct FakeRing {
    data: RefCell<Vec<u8>>,
    head: Cell<u64>,
    tail: Cell<u64>,
}

impl Fake {
    fn new(bytes: usize, start: u64) -> Self {
        let data = RefCell::new(vec![0xEE; bytes]);
        Self(Rc::new(FakeRing { data, head: Cell::new(start), tail: Cell::new(start) }))
    }

    fn put(&self, bytes: &[u8]) {
        let mut data = self.0.data.borrow_mut();
        let head = self.0.head.get();
        for (i, &byte) in bytes.iter().enumerate() {
            let at = head.wrapping_add(i as u64) as usize & (data.len() - 1);
            data[at] = byte;
        }
        self.0.head.set(head.wrapping_add(bytes.len() as u64));
    }

    fn set_head(&self, head: u64) {
        self.0.head.set(head);
    }

    fn published(&self) -> u64 {
        self.0.tail.get()
    }
}

impl RingSource for Fake {
    fn bytes(&self) -> u64 {
        self.0.data.borrow().len() as u64
    }
    fn head(&self) -> u64 {
        self.0.head.get()
    }
    fn tail(&self) -> u64 {
        self.0.tail.get()
    }
    fn publish_tail(&self, tail: u64) {
        self.0.tail.set(tail);
    }
    fn copy(&self, position: u64, into: &mut [u8]) {
        let data = self.0.data.borrow();
        for (i, byte) in into.iter_mut().enumerate() {
            *byte = data[position.wrapping_add(i as u64) as usize & (data.len() - 1)];
        }
    }
}

/// A record of `size` bytes whose body repeats `mark`.
fn record(size: u16, mark: u8) -> Vec<u8> {
    let mut bytes = vec![mark; usize::from(size).max(8)];
    bytes[..6].fill(0);
    bytes[6..8].copy_from_slice(&size.to_ne_bytes());
    bytes
}

fn drain(reader: &mut Reader<Fake>) -> (Vec<Vec<u8>>, Result<u64, RingError>) {
    let mut seen = Vec::new();
    let answer = reader.drain(&mut |bytes| seen.push(bytes.to_vec()));
    (seen, answer)
}

#[test]
fn records_come_whole_across_the_wrap_and_the_end_of_numbers() {
    let fake = Fake::new(64, u64::MAX - 23);
    let mut reader = Reader::new(fake.clone());
    for round in 0..50 {
        let (a, b) = (record(24, round), record(32, round + 100));
        fake.put(&a);
        fake.put(&b);
        assert_eq!(reader.waiting_bytes(), 56);
        let (seen, answer) = drain(&mut reader);
        assert_eq!(answer, Ok(2));
        assert_eq!(seen, [a, b]);
        assert_eq!(fake.published(), fake.head());
    }
    assert_eq!(drain(&mut reader), (vec![], Ok(0)));
}

#[test]
fn a_full_ring_is_read() {
    let fake = Fake::new(64, 8);
    let mut reader = Reader::new(fake.clone());
    fake.put(&record(64, 7));
    assert_eq!(drain(&mut reader), (vec![record(64, 7)], Ok(1)));
}

#[test]
fn records_longer_than_a_step_are_joined() {
    let fake = Fake::new(1 << 18, 0);
    let mut reader = Reader::new(fake.clone());
    let sent: Vec<_> = [65528, 48, 65528, 40000, 40000, 8].into_iter().map(|size| record(size, 3)).collect();
    for one in &sent {
        fake.put(one);
    }
    assert_eq!(drain(&mut reader), (sent, Ok(6)));
}

#[test]
fn impossible_sizes_are_reported_and_skipped() {
    for size in [0, 1, 7, 12, 40, 65535, 65528] {
        let fake = Fake::new(64, 0);
        let mut reader = Reader::new(fake.clone());
        fake.put(&record(16, 1));
        let mut broken = record(16, 2);
        broken[6..8].copy_from_slice(&u16::to_ne_bytes(size));
        fake.put(&broken);
        let (seen, answer) = drain(&mut reader);
        assert_eq!(seen, [record(16, 1)], "size {size}");
        let what = Corruption::RecordSize { size };
        assert_eq!(answer, Err(RingError::Corrupt { what, position: 16, skipped_bytes: 16 }));
        assert_eq!(fake.published(), 32);
        fake.put(&record(24, 4));
        assert_eq!(drain(&mut reader), (vec![record(24, 4)], Ok(1)), "goes on after size {size}");
    }
}

#[test]
fn a_head_that_lies_is_reported_and_followed() {
    let fake = Fake::new(64, 4096);
    let mut reader = Reader::new(fake.clone());
    for head in [4088, 0, 4096 + 72, u64::MAX, 4096 + 9] {
        fake.set_head(4096);
        let _ = drain(&mut reader);
        fake.set_head(head);
        let (seen, answer) = drain(&mut reader);
        assert!(seen.is_empty());
        let Err(RingError::Corrupt { what, skipped_bytes, .. }) = answer else { panic!("head {head}: {answer:?}") };
        assert_eq!(what, Corruption::Head { head });
        assert!(skipped_bytes <= 64);
        assert!(reader.waiting_bytes() < 8);
    }
    fake.set_head(8192);
    let _ = drain(&mut reader);
    fake.put(&record(8, 0));
    assert_eq!(drain(&mut reader).1, Ok(1));
}

#[test]
fn random_memory_never_stops_the_reader() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..2000 {
        let fake = Fake::new(256, random.u64(..) & !7);
        let mut reader = Reader::new(fake.clone());
        for _ in 0..8 {
            let mut bytes = vec![0; random.usize(..33) * 8];
            for byte in &mut bytes {
                // Small values make plausible sizes likely.
                *byte = random.u8(..3) * 8;
            }
            fake.put(&bytes);
            let mut total = 0;
            let _ = reader.drain(&mut |one| {
                assert!(one.len() >= 8 && one.len() % 8 == 0);
                total += one.len();
            });
            assert!(total <= 256);
            assert_eq!(reader.waiting_bytes() / 8, 0);
        }
    }
}

#[test]
fn errors_read_as_sentences() {
    let error = RingError::Corrupt { what: Corruption::RecordSize { size: 3 }, position: 40, skipped_bytes: 16 };
    assert_eq!(error.to_string(), "the ring is corrupt: a record at 40 states a size of 3 bytes; 16 bytes skipped");
}

fn caller() -> perf::TargetTask<'static> {
    perf::TargetTask::Task(crate::current_tid().unsigned_abs())
}

/// Opens a software event of this thread that writes a record for each page fault, or says why not.
fn page_fault_records() -> Option<OwnedFd> {
    let mut attr = [0_u8; 112];
    attr[0..4].copy_from_slice(&1_u32.to_ne_bytes()); // software
    attr[4..8].copy_from_slice(&112_u32.to_ne_bytes());
    attr[8..16].copy_from_slice(&2_u64.to_ne_bytes()); // page faults
    attr[16..24].copy_from_slice(&1_u64.to_ne_bytes()); // each one
    attr[24..32].copy_from_slice(&8_u64.to_ne_bytes()); // with its address
    attr[40..48].copy_from_slice(&(1_u64 | 1 << 5).to_ne_bytes()); // disabled, exclude_kernel
    opened(&attr)
}

/// Opens an event of this thread, or says why not.
pub(super) fn opened(attr: &[u8]) -> Option<OwnedFd> {
    match perf::open(attr, caller(), None, None) {
        Ok(fd) => Some(fd),
        Err(error @ (Errno::EACCES | Errno::EPERM | Errno::ENOSYS)) => {
            println!("skipped: needs perf_event_open ({error})");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Touches `pages` fresh pages and answers that memory, which must live on.
fn touch(pages: usize) -> Vec<u8> {
    // So much is mapped afresh by every allocator, whatever other tests have given back to it: each page faults, and what is not
    // touched costs nothing.
    let mut memory = Vec::with_capacity(33 << 20);
    memory.resize(pages * 4096, 1);
    std::hint::black_box(memory)
}

/// Whether a record says that the kernel holds an event back, or lets it go on: on a quick machine it may do so with page faults.
fn is_throttling(kind: u32) -> bool {
    matches!(kind, 5 | 6)
}

#[test]
fn the_kernels_records_are_read() {
    let Some(event) = page_fault_records() else { return };
    assert_eq!(Ring::map(event.as_fd(), 3).err(), Some(Errno::EINVAL));
    let mut ring = Ring::map(event.as_fd(), 2).unwrap();
    assert_eq!(ring.capacity_bytes() % 2, 0);
    assert_eq!(ring.drain(&mut |_| panic!("nothing was written")), Ok(0));
    let mut seen = 0;
    // Kept: the allocator would hand out pages again that are there already.
    let mut touched = Vec::new();
    // Many times round the ring, never more at once than it holds.
    for _ in 0..20 {
        perf::enable(event.as_fd()).unwrap();
        let memory = touch(300);
        perf::disable(event.as_fd()).unwrap();
        let range = memory.as_ptr_range();
        assert!(ring.waiting_bytes() > 0);
        let mut inside = 0;
        let records = ring
            .drain(&mut |record| {
                if is_throttling(u32::from_ne_bytes(record[..4].try_into().unwrap())) {
                    return;
                }
                assert_eq!(record[..4], 9_u32.to_ne_bytes(), "a sample");
                let address = u64::from_ne_bytes(record[8..16].try_into().unwrap()) as usize;
                inside += u64::from((range.start.addr()..range.end.addr()).contains(&address));
            })
            .unwrap();
        assert!(records >= inside);
        seen += inside;
        touched.push(memory);
    }
    // Huge pages would make the faults fewer, never none.
    assert!(seen > 0);
    let mut count = [0; 8];
    assert_eq!(crate::sys::read(event.as_fd(), &mut count), Ok(8));
    assert!(u64::from_ne_bytes(count) >= seen);
}

#[test]
fn records_are_passed_on_as_they_lie() {
    use std::io::Read;
    let Some(event) = page_fault_records() else { return };
    let mut ring = Ring::map(event.as_fd(), 2).unwrap();
    let mut file = tempfile::tempfile().unwrap();
    let (mut expected, mut copy, mut touched) = (Vec::new(), Vec::new(), Vec::new());
    // Many times round the ring.
    for round in 0..20 {
        perf::enable(event.as_fd()).unwrap();
        touched.push(touch(60));
        perf::disable(event.as_fd()).unwrap();
        let before = expected.len();
        let mut batch = ring
            .batch(|peek| {
                peek.copy_to(&mut copy);
                assert!(peek.kind() == 9 || is_throttling(peek.kind()), "{}", peek.kind());
                assert_eq!(usize::from(peek.size()), copy.len());
                assert_eq!(peek.word(8).to_ne_bytes(), copy[8..16]);
                expected.extend_from_slice(&copy);
            })
            .unwrap();
        assert_eq!(batch.left_bytes(), (expected.len() - before) as u64);
        if round % 2 == 0 {
            // The start of it goes another way.
            let mut start = Vec::new();
            batch.copy_to(&mut start, 24);
            assert!(!start.is_empty());
            assert_eq!(start, expected[before..before + start.len()]);
            std::io::Write::write_all(&mut file, &start).unwrap();
        }
        batch.write_to(file.as_fd()).unwrap();
        assert_eq!(batch.left_bytes(), 0);
        assert_eq!(batch.written_whole_bytes(0), (expected.len() - before) as u64);
        assert_eq!(batch.written_whole_bytes(1), (expected.len() - before - copy.len()) as u64);
        drop(batch);
        assert_eq!(ring.waiting_bytes(), 0, "its space is given back");
    }
    let mut written = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_end(&mut written).unwrap();
    assert!(written == expected && !written.is_empty());
    // A file that takes nothing is reported, and nothing of the batch is lost but by a caller that gives up.
    perf::enable(event.as_fd()).unwrap();
    touched.push(touch(10));
    perf::disable(event.as_fd()).unwrap();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut batch = ring.batch(|_| {}).unwrap();
    let bytes = batch.left_bytes();
    assert_eq!(batch.write_to(full.as_fd()), Err(Errno::from_raw(libc::ENOSPC)));
    assert_eq!((batch.left_bytes(), batch.written_whole_bytes(0)), (bytes, 0));
}

#[test]
fn an_event_answers_its_requests() {
    let Some(event) = page_fault_records() else { return };
    let fd = event.as_fd();
    assert!(perf::id(fd).unwrap() > 0);
    perf::disable(fd).unwrap();
    perf::enable(fd).unwrap();
    let _ring = Ring::map(fd, 1).unwrap();
    let other = page_fault_records().unwrap();
    perf::set_output(other.as_fd(), fd).unwrap();
    let file = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    assert_eq!(perf::enable(file.as_fd()), Err(Errno::ENOTTY));
    assert_eq!(Ring::map(file.as_fd(), 1).err(), Some(Errno::ENODEV));
}

#[test]
fn attributes_that_lie_about_their_size_are_refused() {
    let open = |attr: &[u8]| perf::open(attr, caller(), None, None).err();
    assert_eq!(open(&[]), Some(Errno::EINVAL));
    assert_eq!(open(&[0; 63]), Some(Errno::EINVAL));
    let mut attr = [0_u8; 64];
    attr[4..8].copy_from_slice(&4096_u32.to_ne_bytes());
    assert_eq!(open(&attr), Some(Errno::EINVAL));
    let task = |tid| perf::open(&[0; 64], perf::TargetTask::Task(tid), None, None).err();
    assert_eq!(task(0), Some(Errno::ESRCH));
    assert_eq!(task(u32::MAX), Some(Errno::ESRCH));
}
