//! What a record costs in the ring that other processes read, beside a `memcpy` of the same bytes into a buffer of the same size.
//!
//! The engine's own bench measures the same writer on memory that is copied to word by word. `cargo bench -p pmux-linux --bench ring`
//! prints a table: minimum of many rounds, because others use the machine too. With `--test` or `PMUX_BENCH_SMALL=1` everything
//! runs once, small.

use pmux_engine::Nanos;
use pmux_engine::ring_buffer::{Overwrite, RingSetup, Writer};
use pmux_linux::ring::RingMemory;
use std::hint::black_box;
use std::time::Instant;

/// Bytes that go through in a round: so few that some rounds are not interrupted.
const ROUND_BYTES: usize = 256 << 10;

fn record(bytes: usize) -> Vec<u8> {
    let mut record = vec![1; bytes];
    record[6..8].copy_from_slice(&u16::try_from(bytes).unwrap_or(u16::MAX).to_ne_bytes());
    record
}

/// Nanoseconds for each of `times`.
fn time(times: usize, mut f: impl FnMut()) -> f64 {
    let started = Instant::now();
    (0..times).for_each(|_| f());
    started.elapsed().as_nanos() as f64 / times as f64
}

/// The ring and `memcpy`: the best of the rounds.
fn written(rounds: usize, ring_bytes: usize, record: &[u8]) -> [f64; 2] {
    let memory = RingMemory::make(ring_bytes).unwrap_or_else(|error| panic!("a ring: {error}"));
    let writer: Writer<_, Overwrite> =
        Writer::new(memory, RingSetup::default()).unwrap_or_else(|error| panic!("a ring: {error}"));
    let (mut buffer, mut at) = (vec![0_u8; ring_bytes], 0);
    let times = ROUND_BYTES / record.len();
    let mut best = [f64::MAX; 2];
    for _ in 0..rounds {
        let writing = time(times, || {
            assert!(black_box(writer.write(black_box(record), Nanos(0))).is_ok());
        });
        let copying = time(times, || {
            buffer[at..at + record.len()].copy_from_slice(black_box(record));
            at = (at + record.len()) & (ring_bytes - 1);
            black_box(&mut buffer);
        });
        for (best, ns) in best.iter_mut().zip([writing, copying]) {
            *best = best.min(ns);
        }
    }
    best
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let (rounds, rings): (_, &[usize]) = if small { (1, &[64 << 10]) } else { (600, &[64 << 10, 1 << 20, 64 << 20]) };
    println!("{:>10} {:>8} {:>14} {:>10} {:>8}", "ring KiB", "record", "overwrite ns", "memcpy ns", "ratio");
    for &ring_bytes in rings {
        for record_bytes in [64, 256, 1024] {
            let [overwrite, memcpy] = written(rounds, ring_bytes, &record(record_bytes));
            let (kib, ratio) = (ring_bytes >> 10, overwrite / memcpy);
            println!("{kib:>10} {record_bytes:>8} {overwrite:>14.1} {memcpy:>10.1} {ratio:>8.2}");
        }
    }
}
