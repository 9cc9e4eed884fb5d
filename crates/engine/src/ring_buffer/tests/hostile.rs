//! Whatever stands in the memory: no reader or writer panics, hangs, or reads beyond it.
//!
//! What it is: the fuzz of heads, tails and sizes, from a seed. `PMUX_RING_SEED=7 PMUX_RING_ROUNDS=10000000 cargo test
//! --release -p pmux-engine ring::tests::hostile` runs it for long.

use super::threads::fastrand;
use super::*;
use core::sync::atomic::Ordering;

fn asked(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A number that may be near to something.
fn position(rng: &mut impl FnMut() -> u64, near: u64) -> u64 {
    match rng() % 6 {
        0 => near,
        1 => near.wrapping_add(rng() % 80).wrapping_sub(40),
        2 => near.wrapping_add(8 * (rng() % 80)).wrapping_sub(320) & !7,
        3 => 8 * (rng() % 64),
        4 => u64::MAX - rng() % 64,
        _ => rng(),
    }
}

/// A reader that claims what it likes: the writer goes on, keeps what is not taken, and accounts for everything.
#[test]
fn no_claim_of_the_reader_confuses_the_writer() {
    let (seed, rounds) = (asked("PMUX_RING_SEED", 1), asked("PMUX_RING_ROUNDS", if cfg!(miri) { 200 } else { 20_000 }));
    let mut rng = fastrand(seed);
    let (mut writer, mut pages) = ring::<Forward>(256, RingSetup::default());
    let (mut produced, mut lied) = (0, 0);
    for round in 0..rounds {
        let before = writer.tally();
        let claim = position(&mut rng, before.bytes);
        pages.taken().store(claim, Ordering::Relaxed);
        // All that it shows may be gone, too: it never looks there.
        for word in pages.shown() {
            if rng().is_multiple_of(8) {
                word.store(position(&mut rng, before.bytes), Ordering::Relaxed);
            }
        }
        let _ = write(&writer, round as u32, 8 + 8 * (rng() as usize % 20));
        produced += 1;
        let now = writer.tally();
        assert_eq!(now.records + now.lost.records(), produced, "round {round} of seed {seed}");
        assert!(now.tail >= before.tail && now.tail <= before.bytes && now.bytes - now.tail <= 256);
        let possible = claim.is_multiple_of(8) && (before.tail..=before.bytes).contains(&claim);
        assert!(possible || now.tail == before.tail && now.bad_tail <= before.bad_tail + 1);
        if rng().is_multiple_of(50) {
            lied += now.bad_tail;
            (writer, pages) = ring::<Forward>(256, RingSetup::default());
            produced = 0;
        }
    }
    assert!(lied > 0);
}

/// A writer that shows what it likes: readers say that the memory contradicts itself, and go on.
#[test]
fn no_memory_confuses_a_reader() {
    let (seed, rounds) = (asked("PMUX_RING_SEED", 1), asked("PMUX_RING_ROUNDS", if cfg!(miri) { 200 } else { 20_000 }));
    let mut rng = fastrand(seed);
    let pages = Arc::new(HeapPages::<core::sync::atomic::AtomicU64>::new(32));
    let (mut snapshot, mut reader) =
        (SnapshotReader::from_oldest(Arc::clone(&pages)), Reader::new(Taking(Arc::clone(&pages))));
    let (mut errors, mut records) = (0, 0);
    for _ in 0..rounds {
        for at in 0..pages.data_words() {
            if rng().is_multiple_of(2) {
                // Sizes that may be.
                pages.put(at, &((rng() % 6 * 8) << 48 | rng() >> 16).to_ne_bytes());
            }
        }
        let near = snapshot.position();
        for word in pages.shown() {
            if rng().is_multiple_of(2) {
                word.store(position(&mut rng, near), Ordering::Relaxed);
            }
        }
        let mut last = snapshot.position();
        let mut check = |piece: Piece<'_>| match piece {
            Piece::Records { position, bytes } => {
                assert!(position == last && !bytes.is_empty() && bytes.len() <= 256);
                assert!(Records::new(bytes).all(|record| record.is_ok()));
                records += 1;
                last = position + bytes.len() as u64;
            }
            Piece::Missed { position, bytes } => {
                assert!(position == last && bytes > 0);
                last = position + bytes;
            }
        };
        errors += u64::from(snapshot.read(&mut check).is_err());
        let mut total = 0;
        let _ = reader.drain(&mut |record| total += record.len());
        assert!(total <= 256 && reader.waiting_bytes() <= 256);
        if rng().is_multiple_of(4) {
            snapshot.rewind();
            let _ = (snapshot.lost(), snapshot.missed_records());
        }
    }
    assert!(errors > rounds / 10 && records > rounds / 100, "{errors} errors, {records} pieces");
    // What follows is read again.
    pages.shown()[0].store(0, Ordering::Relaxed);
    let _ = snapshot.read(&mut |_| ());
    pages.shown().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    snapshot.rewind();
    assert_eq!(snapshot.read(&mut |_| ()), Ok(Progress::default()));
}
