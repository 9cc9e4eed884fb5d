//! Passing records on while there are always more.

use super::pass::PIECE_BYTES;
use super::*;
use crate::server_api::Acting;
use pmux_abi::attr::{AttrFlags, EventType, SampleFormat, Sampling, sw};
use pmux_abi::record::RecordKind;
use pmux_engine::ring_buffer::{Reader, Taking};
use pmux_linux::ring::TakingFile;

const RING_BYTES: u64 = 4 << 20;
/// More than one piece of a turn.
const MANY_BYTES: u64 = 100 << 10;

/// A thread whose page faults are sampled, all of them; `None` where that may not be.
struct Scene {
    streams: Streams,
    stream: StreamId,
    question: StreamRequest,
    reader: Reader<Taking<TakingFile>>,
    /// Memory that was touched once.
    touched: Vec<Vec<u8>>,
}

impl Scene {
    fn new() -> Option<Self> {
        let Ok(session) = Session::with_backend(crate::BackendChoice::Kernel) else {
            println!("skipped: needs performance events");
            return None;
        };
        let mut streams = Streams::new(&session, 512 << 10).unwrap();
        let faults = Attr {
            kind: EventType::SOFTWARE,
            config: sw::PAGE_FAULTS,
            sampling: Sampling::Period(1),
            sample: SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME | SampleFormat::IDENTIFIER,
            flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::SAMPLE_ID_ALL | AttrFlags::USE_CLOCKID | AttrFlags::DISABLED,
            // CLOCK_MONOTONIC, as `now_ns`.
            clock_id: 1,
            ..Attr::default()
        };
        let scope = StreamScope::Tasks(vec![pmux_linux::current_tid()]);
        let question = StreamRequest { scope, attrs: vec![faults], ring_bytes: RING_BYTES, wake_bytes: 4096 };
        let Ok((stream, [records, taken, _bell])) = streams.open(&Acting::default(), &question) else {
            println!("skipped: needs rings of sampling events");
            return None;
        };
        streams.enable(stream).unwrap();
        let reader = Reader::new(Taking(TakingFile::map(records, taken, RING_BYTES as usize).unwrap()));
        Some(Self { streams, stream, question, reader, touched: Vec::new() })
    }

    fn waiting_bytes(&self) -> u64 {
        self.streams.sources.values().map(|source| source.ring.ring.waiting_bytes()).sum()
    }

    fn fill(&mut self) {
        while self.waiting_bytes() < MANY_BYTES {
            touch(&mut self.touched);
        }
    }

    fn read(&mut self) -> Vec<Option<u64>> {
        samples(&mut self.reader)
    }
}

/// What is in a stream's ring: the times of samples, and `None` for a round mark.
fn samples(reader: &mut Reader<Taking<TakingFile>>) -> Vec<Option<u64>> {
    let mut read = Vec::new();
    let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    reader
        .drain(&mut |bytes| match RecordKind(word(bytes, 0) as u32) {
            RecordKind::SAMPLE => read.push(Some(word(bytes, 32))),
            RecordKind::LOST => panic!("there was room"),
            _ => read.push(None),
        })
        .unwrap();
    read
}

/// Some page faults.
fn touch(touched: &mut Vec<Vec<u8>>) {
    touched.push(vec![1; 256 << 10]);
}

/// A turn ends where it is told to, although each piece finds more than it took away; what is left comes later, each record once.
#[test]
fn a_turn_ends_although_there_is_always_more() {
    let Some(mut scene) = Scene::new() else { return };
    let mut read = Vec::new();
    for _ in 0..20 {
        scene.fill();
        let (mut pieces, before) = (0, scene.streams.all().taken);
        let touched = &mut scene.touched;
        let left = scene.streams.pass_while(|| {
            touch(touched);
            pieces += 1;
            pieces < 2
        });
        assert!((1..=2).contains(&pieces), "{pieces} pieces");
        let taken = scene.streams.all().taken - before;
        assert!(taken > 0 && taken * 24 <= 2 * PIECE_BYTES, "{taken} records in {pieces} pieces");
        assert!(scene.waiting_bytes() > 0, "{left:?}: there is always more");
        read.extend(scene.read());
    }
    scene.streams.pass();
    read.extend(scene.read());
    assert_eq!(scene.streams.tally(scene.stream).lost, 0);
    let samples = read.iter().flatten().count();
    assert_eq!(samples as u64, scene.streams.all().taken, "each once");
    // Rounds are so long that a mark says something: what comes behind the next one is no older than what came before it.
    let rounds: Vec<&[Option<u64>]> = read.split(Option::is_none).collect();
    assert!(rounds.len() > 2, "{} rounds", rounds.len());
    let mut newest = 0;
    for (before, after) in rounds.iter().zip(&rounds[2.min(rounds.len())..]) {
        newest = before.iter().flatten().copied().max().unwrap_or(newest).max(newest);
        assert!(after.iter().flatten().all(|&at| at >= newest), "too old for its round");
    }
}

/// A stream that begins gets what is written from then on, one that ends what was written until then, and neither waits for a round.
#[test]
fn a_stream_that_begins_or_ends_within_a_round_gets_its_records() {
    let Some(mut scene) = Scene::new() else { return };
    scene.fill();
    let question = scene.question.clone();
    let (other, [records, taken, _bell]) = scene.streams.open(&Acting::default(), &question).unwrap();
    let mut reader = Reader::new(Taking(TakingFile::map(records, taken, RING_BYTES as usize).unwrap()));
    let before = pmux_linux::now_ns();
    scene.streams.enable(other).unwrap();
    assert!(scene.waiting_bytes() >= MANY_BYTES, "no record had to be passed on for that");
    scene.streams.pass_while(|| false);
    touch(&mut scene.touched);
    scene.streams.disable(other);
    let after = pmux_linux::now_ns();
    assert!(scene.waiting_bytes() > 0, "the first one's records wait still");
    let got = samples(&mut reader);
    assert!(got.iter().flatten().all(|at| (before..after).contains(at)), "only what came while it was on");
    let got = got.iter().flatten().count();
    assert!(got >= 60, "{got} samples of 64 pages");
    // It is on twice, and asks twice: nothing comes a second time.
    scene.streams.enable(other).unwrap();
    touch(&mut scene.touched);
    scene.streams.enable(other).unwrap();
    scene.streams.pass();
    scene.streams.disable(other);
    scene.streams.disable(other);
    let second: Vec<u64> = samples(&mut reader).into_iter().flatten().collect();
    assert!((60..200).contains(&second.len()) && second.iter().all(|&at| at >= after), "{} samples", second.len());
    let distinct: std::collections::BTreeSet<_> = second.iter().collect();
    assert_eq!(distinct.len(), second.len());
    scene.streams.pass();
    let all = scene.read();
    assert_eq!(all.iter().flatten().count() as u64, scene.streams.all().taken, "the first one has all");
}

/// Where there is no time to give a stream what waits for it at its end, it is told how much that was.
#[test]
fn what_there_was_no_time_for_is_lost_and_told() {
    let Some(mut scene) = Scene::new() else { return };
    scene.fill();
    let mut left = 10;
    scene.streams.disable_while(scene.stream, || {
        left -= 1;
        left >= 0
    });
    let (mut whole, mut lost) = (0, 0);
    let word = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut count = |bytes: &[u8]| match RecordKind(word(bytes, 0) as u32) {
        RecordKind::SAMPLE => whole += 1,
        RecordKind::LOST => lost += word(bytes, 16),
        _ => {}
    };
    scene.reader.drain(&mut count).unwrap();
    assert_eq!(whole, 10);
    assert!(lost > 1000, "{lost}");
    assert_eq!(lost, scene.streams.tally(scene.stream).lost);
    // It was off before the next one comes: none of this shows to it.
    let question = scene.question.clone();
    let (other, _files) = scene.streams.open(&Acting::default(), &question).unwrap();
    scene.streams.enable(other).unwrap();
    scene.streams.pass();
    assert_eq!(scene.streams.tally(other).lost, 0);
}

/// A round is what was there when it began: it ends by itself, and so does everything that has to empty the rings.
#[test]
fn a_round_ends_although_there_is_always_more() {
    let Some(mut scene) = Scene::new() else { return };
    scene.fill();
    let touched = &mut scene.touched;
    let left = scene.streams.pass_while(|| {
        touch(touched);
        true
    });
    assert_eq!(left, RoundRemainder::Nothing);
    assert!(scene.waiting_bytes() > 0, "what came meanwhile is of the next round");
    assert_eq!(scene.read().iter().filter(|record| record.is_none()).count(), 1, "one round, one mark");
    // In the middle of a round it is switched off: all that was written until then is there.
    scene.fill();
    assert_eq!(scene.streams.pass_while(|| false), RoundRemainder::Some);
    scene.streams.disable(scene.stream);
    let samples = scene.read().iter().filter(|record| record.is_some()).count();
    assert!(samples as u64 * 24 > MANY_BYTES / 2, "{samples} samples");
    scene.streams.close(scene.stream);
    assert_eq!(scene.streams.pass_while(|| true), RoundRemainder::Nothing);
}

/// Who is switched on while it is on is given what waits, and gets it no second time.
#[test]
fn who_is_on_can_have_what_waits() {
    let Some(mut scene) = Scene::new() else { return };
    let mut read = Vec::new();
    for _ in 0..3 {
        scene.fill();
        let before = scene.waiting_bytes();
        scene.streams.enable(scene.stream).unwrap();
        assert!(scene.waiting_bytes() >= before, "it stays there for others");
        let given = scene.read();
        assert!(
            given.len() as u64 * 40 >= before / 2 && given.iter().all(Option::is_some),
            "{} of {before}",
            given.len()
        );
        read.extend(given);
        scene.streams.pass();
        read.extend(scene.read());
    }
    // Each CPU that it was on has a ring of its own: only within one they are in order.
    let times: Vec<u64> = read.into_iter().flatten().collect();
    let distinct: std::collections::BTreeSet<_> = times.iter().collect();
    assert_eq!((distinct.len(), scene.streams.tally(scene.stream).lost), (times.len(), 0));
    assert_eq!(scene.streams.all().taken, times.len() as u64);
}
