//! What was copied out of the rings for one snapshot.
//!
//! What it is: an excerpt for each ring and each time that it was copied. Each goes on where the one before it ended.
//! Read first: [`CpuRingCopy::take`].
//!
//! **Invariant:** what is missing between two excerpts is a number.

use pmux_linux::ring::Excerpt;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct CpuRingCopy {
    pub(super) cpu: u32,
    /// By ring, in the order in which they were copied.
    pub(super) pieces: Vec<(u64, Excerpt)>,
    /// Up to where each ring is known.
    known: Vec<(u64, u64)>,
    /// Bytes that were overwritten between two copies for this snapshot.
    pub(super) missing_bytes: u64,
    /// Bytes that came after the snapshot before this one and are in neither; `None` where there was none before.
    pub(super) gap_bytes: Option<u64>,
    /// Bytes that are in the snapshot before this one as well.
    pub(super) overlap_bytes: u64,
    pub(super) corrupt: u64,
    /// Since when the first ring is there, if nothing in it was ever overwritten.
    pub(super) whole_since_ns: Option<u64>,
    /// Rings that overwrote records before the first copy: there everything is there from the oldest record on.
    overwritten: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) cpu_rings: Vec<CpuRingCopy>,
}

impl Copies {
    pub(super) fn cpu_ring(&mut self, cpu: u32) -> &mut CpuRingCopy {
        let place = self.cpu_rings.iter().position(|cpu_ring| cpu_ring.cpu == cpu).unwrap_or_else(|| {
            self.cpu_rings.push(CpuRingCopy { cpu, ..CpuRingCopy::default() });
            self.cpu_rings.len() - 1
        });
        &mut self.cpu_rings[place]
    }

    /// How many bytes had been written into each ring at a time: what was copied, less what is younger.
    pub(super) fn written_until(&self, ended_ns: u64, time_of: impl Fn(&[u8]) -> Option<u64>) -> HashMap<u64, u64> {
        let is_younger = |record: &&[u8]| time_of(record).is_some_and(|at_ns| at_ns > ended_ns);
        let of = |cpu_ring: &CpuRingCopy, (ring, written): (u64, u64)| {
            let pieces = cpu_ring.pieces.iter().rev().filter(move |(of, _)| *of == ring);
            let newest = pieces.flat_map(|(_, excerpt)| excerpt.newest_first());
            let younger: usize = newest.take_while(is_younger).map(<[u8]>::len).sum();
            (ring, written - younger as u64)
        };
        self.cpu_rings
            .iter()
            .flat_map(|cpu_ring| cpu_ring.known.iter().map(move |&known| of(cpu_ring, known)))
            .collect()
    }
}

impl CpuRingCopy {
    /// How many of the bytes that were ever written into a ring are copied, or gone.
    pub(super) fn known(&self, ring: u64) -> u64 {
        self.known.iter().find(|(known, _)| *known == ring).map_or(0, |(_, written)| *written)
    }

    /// Takes in what is new in a ring, which is there since `begun_ns`. `snapshot_bytes` is what had been written into it when the
    /// last snapshot ended, if there was one. Older rings come first.
    pub(super) fn take(&mut self, ring: u64, begun_ns: u64, snapshot_bytes: Option<u64>, excerpt: Excerpt) {
        let written = excerpt.written_bytes();
        self.corrupt += u64::from(excerpt.corrupt().is_some());
        match self.known.iter_mut().find(|(known, _)| *known == ring) {
            Some((_, known)) => {
                self.missing_bytes += excerpt.missing_bytes();
                *known = written;
            }
            None => {
                if excerpt.missing_bytes() > 0 {
                    self.overwritten.push(ring);
                } else if self.known.is_empty() {
                    self.whole_since_ns = Some(begun_ns);
                }
                self.known.push((ring, written));
                if let Some(snapshot_bytes) = snapshot_bytes {
                    let begins = written - excerpt.bytes();
                    *self.gap_bytes.get_or_insert(0) += begins.saturating_sub(snapshot_bytes);
                    self.overlap_bytes += snapshot_bytes.saturating_sub(begins);
                }
            }
        }
        if excerpt.bytes() > 0 {
            self.pieces.push((ring, excerpt));
        }
    }

    /// Since when everything is there that was not overwritten; `None` where nothing was.
    pub(super) fn overwritten_until(&self, time_of: impl Fn(&[u8]) -> Option<u64>) -> Option<u64> {
        let oldest = |ring: &u64| {
            let pieces = self.pieces.iter().filter(|(of, _)| of == ring);
            pieces.flat_map(|(_, excerpt)| excerpt.records()).find_map(&time_of)
        };
        self.overwritten.iter().filter_map(oldest).max()
    }
}
