//! What a ring costs: one record written, beside copying the same bytes.
//!
//! What it is: nanoseconds for a record of 64 bytes and of 1 KiB in small and large rings of either mode, each with a `memcpy` of the
//! same bytes into a buffer of the same size, taken in turn; and what a writer pays while another thread takes one snapshot
//! after another. Minimum of several rounds, because others use the machine too.
//!
//! `cargo bench -p pmux-engine --bench ring` prints a table. With `--test` (as `cargo test --benches` passes) or
//! `PMUX_BENCH_SMALL=1` everything runs once, small.

use pmux_engine::Nanos;
use pmux_engine::ring_buffer::{
    Forward, HeapPages, Mode, Overwrite, Piece, Reader, RingSetup, SnapshotReader, Taking, Wakeup, Writer,
};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Pages = Arc<HeapPages>;

struct Size {
    rounds: usize,
    /// How many bytes go through the ring in a round: so few that some rounds are not interrupted.
    bytes: usize,
    rings: &'static [usize],
}

const FULL: Size = Size { rounds: 600, bytes: 256 << 10, rings: &[64 << 10, 1 << 20, 64 << 20] };
const SMALL: Size = Size { rounds: 1, bytes: 64 << 10, rings: &[8 << 10] };

fn record(bytes: usize) -> Vec<u8> {
    let mut record = vec![1; bytes];
    record[6..8].copy_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_ne_bytes());
    record
}

fn ring<M: Mode>(ring_bytes: usize) -> (Writer<Pages, M>, Pages) {
    let pages = Arc::new(HeapPages::<AtomicU64>::new(ring_bytes / 8));
    let setup = RingSetup { wakeup: Wakeup::Bytes(u64::MAX), labels: None };
    (Writer::new(Arc::clone(&pages), setup).unwrap_or_else(|error| panic!("{error}")), pages)
}

fn put<M: Mode>(writer: &Writer<Pages, M>, record: &[u8]) {
    let written = black_box(writer.write(black_box(record), Nanos(0)));
    assert!(written.is_ok());
}

/// Nanoseconds for each of `times`.
fn time(times: usize, mut f: impl FnMut()) -> f64 {
    let started = Instant::now();
    (0..times).for_each(|_| f());
    started.elapsed().as_nanos() as f64 / times as f64
}

/// A buffer that is copied into, around its end, as a ring is.
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
}

impl Buffer {
    fn put(&mut self, record: &[u8]) {
        self.bytes[self.at..self.at + record.len()].copy_from_slice(record);
        self.at = (self.at + record.len()) & (self.bytes.len() - 1);
        black_box(&mut self.bytes);
    }
}

/// Overwrite, forward (emptied when half full, outside the time), memcpy: the best of the rounds.
fn written(size: &Size, ring_bytes: usize, record_bytes: usize) -> [f64; 3] {
    let record = record(record_bytes);
    let (overwrite, _) = ring::<Overwrite>(ring_bytes);
    let (forward, pages) = ring::<Forward>(ring_bytes);
    let mut reader = Reader::new(Taking(pages));
    let mut buffer = Buffer { bytes: vec![0; ring_bytes], at: 0 };
    let times = size.bytes / record_bytes;
    let mut best = [f64::MAX; 3];
    for _ in 0..size.rounds {
        let overwriting = time(times, || {
            put(&overwrite, &record);
        });
        let (batch, mut forwarding, mut left) = (ring_bytes / 2 / record_bytes, 0.0, times);
        while left > 0 {
            let now = batch.min(left);
            forwarding += now as f64
                * time(now, || {
                    put(&forward, &record);
                });
            left -= now;
            let _ = reader.drain(&mut |_| ());
        }
        let copying = time(times, || buffer.put(black_box(&record)));
        for (best, ns) in best.iter_mut().zip([overwriting, forwarding / times as f64, copying]) {
            *best = best.min(ns);
        }
    }
    best
}

/// A writer by itself, while another thread takes a snapshot each 10 ms, and while it does nothing else.
fn watched(size: &Size, ring_bytes: usize) -> ([f64; 3], u64) {
    let record = record(64);
    let (writer, pages) = ring::<Overwrite>(ring_bytes);
    let pause_us = AtomicU64::new(u64::MAX);
    let stop = AtomicBool::new(false);
    let mut best = [f64::MAX; 3];
    let snapshots = std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let mut reader = SnapshotReader::from_oldest(&pages);
            let mut snapshots = 0;
            while !stop.load(Ordering::Relaxed) {
                match pause_us.load(Ordering::Relaxed) {
                    u64::MAX => std::thread::sleep(Duration::from_millis(1)),
                    pause_us => {
                        std::thread::sleep(Duration::from_micros(pause_us));
                        reader.rewind();
                        let look = &mut |piece: Piece<'_>| {
                            black_box(piece);
                        };
                        reader.read(look).unwrap_or_else(|error| panic!("{error}"));
                        snapshots += 1;
                    }
                }
            }
            snapshots
        });
        for _ in 0..size.rounds {
            for (best, pause) in best.iter_mut().zip([u64::MAX, 10_000, 0]) {
                pause_us.store(pause, Ordering::Relaxed);
                let ns = time(size.bytes / 64, || {
                    put(&writer, &record);
                });
                *best = best.min(ns);
            }
        }
        stop.store(true, Ordering::Relaxed);
        taking.join().unwrap_or_default()
    });
    (best, snapshots)
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let size = if small { &SMALL } else { &FULL };
    println!(
        "{:>10} {:>8} {:>14} {:>12} {:>10} {:>8}",
        "ring KiB", "record", "overwrite ns", "forward ns", "memcpy ns", "ratio"
    );
    for &ring_bytes in size.rings {
        for record_bytes in [64, 1024] {
            let [overwrite, forward, memcpy] = written(size, ring_bytes, record_bytes);
            let (kib, ratio) = (ring_bytes >> 10, overwrite / memcpy);
            println!("{kib:>10} {record_bytes:>8} {overwrite:>14.1} {forward:>12.1} {memcpy:>10.1} {ratio:>8.2}");
        }
    }
    println!(
        "\n{:>10} {:>12} {:>16} {:>16} {:>10}",
        "ring KiB", "alone ns", "each 10 ms ns", "all the time ns", "snapshots"
    );
    for &ring_bytes in size.rings {
        let ([alone, now_and_then, always], snapshots) = watched(size, ring_bytes);
        println!("{:>10} {alone:>12.1} {now_and_then:>16.1} {always:>16.1} {snapshots:>10}", ring_bytes >> 10);
    }
}
