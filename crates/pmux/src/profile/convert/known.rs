//! Chains that were met before.
//!
//! What it is: most samples were met where others were, and nearly all were called in the same way as others. [`ChainCache`] remembers the
//! stacks of those who have called as wholes, and next to it where these were met last. Read first: [`ChainCache::callers`].
//!
//! **Invariant:** it may forget and never lies: what is remembered is found by all that it depends on. Its size is bounded.

use crate::profile::stacks::{FrameId, Site, StackId};
use hashbrown::{DefaultHashBuilder, HashMap};
use pmux_abi::record::CpuMode;
use std::hash::{BuildHasher, Hash};

/// So many chains are remembered, and so many addresses of them; then from the beginning.
const MOST_CHAINS: usize = 1 << 18;
const MOST_ADDRESSES: usize = 1 << 21;
/// A power of two: so many places are remembered.
const PLACES: usize = 1 << 15;
/// So many stacks are remembered from end to end.
const PATHS: usize = 16;

/// The mappings that an address was met with, by their stamps: of its process, and of the kernel.
pub(super) type Mappings = (u32, u32);

/// A chain: the mappings that it was met with, and two hashes of its addresses with secret seeds.
type ChainKey = (Mappings, [u64; 2]);

/// What an address in a chain is found by: the mappings, the mode, the address, and what of it is meant.
pub(super) type FrameKey = (Mappings, CpuMode, u64, Site);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ChainPlace {
    pub(super) callers: StackId,
    pub(super) mappings: Mappings,
    pub(super) mode: CpuMode,
    pub(super) address: u64,
}

/// A stack, and where its addresses stand.
#[derive(Clone, Copy)]
pub(super) struct Callers {
    pub(super) stack: StackId,
    from: u32,
    count: u32,
}

#[derive(Default)]
pub(super) struct ChainCache {
    chains: HashMap<ChainKey, Callers>,
    addresses: Vec<(u64, FrameId)>,
    places: Vec<Option<(ChainPlace, StackId, FrameId)>>,
    frames: Vec<Option<(FrameKey, FrameId)>>,
    /// The last stacks that were walked, from the outermost frame on.
    paths: [Vec<(FrameId, StackId)>; PATHS],
    hashers: [DefaultHashBuilder; 2],
}

impl ChainCache {
    /// What a chain is found by. `how` is what the meaning of its words depends on beside the mappings.
    pub(super) fn key(&self, mappings: Mappings, words: &[u64], how: (bool, CpuMode)) -> ChainKey {
        (mappings, [self.hashers[0].hash_one(words), self.hashers[1].hash_one((words, how))])
    }

    pub(super) fn callers(&self, key: &ChainKey) -> Option<Callers> {
        self.chains.get(key).copied()
    }

    /// The addresses of those who have called, and the frames that these are.
    pub(super) fn addresses(&self, callers: Callers) -> &[(u64, FrameId)] {
        let (from, count) = (callers.from as usize, callers.count as usize);
        self.addresses.get(from..from + count).unwrap_or_default()
    }

    /// Remembers a chain, with its addresses where these are wanted.
    pub(super) fn add_callers(&mut self, key: ChainKey, stack: StackId, addresses: &[(u64, FrameId)]) {
        if self.chains.len() >= MOST_CHAINS || self.addresses.len() + addresses.len() > MOST_ADDRESSES {
            self.chains.clear();
            self.addresses.clear();
        }
        let (from, count) = (self.addresses.len() as u32, addresses.len() as u32);
        self.addresses.extend_from_slice(addresses);
        self.chains.insert(key, Callers { stack, from, count });
    }

    fn slot(&self, item: &impl Hash) -> usize {
        self.hashers[0].hash_one(item) as usize % PLACES
    }

    /// The frame of an address, or what `find` says.
    pub(super) fn frame(&mut self, named: FrameKey, find: impl FnOnce() -> FrameId) -> FrameId {
        if self.frames.is_empty() {
            self.frames.resize(PLACES, None);
        }
        let slot = self.slot(&named);
        match self.frames[slot] {
            Some((known, frame)) if known == named => frame,
            _ => {
                let frame = find();
                self.frames[slot] = Some((named, frame));
                frame
            }
        }
    }

    /// The stack of frames, the outermost first. What was called as it was the last time, by `whose`, is not looked for again.
    pub(super) fn stack(
        &mut self,
        whose: usize,
        frames: impl Iterator<Item = FrameId>,
        mut call: impl FnMut(StackId, FrameId) -> StackId,
    ) -> StackId {
        let path = &mut self.paths[whose % PATHS];
        let (mut stack, mut same) = (StackId::EMPTY, 0);
        let mut frames = frames.peekable();
        while let Some(&(_, known)) = path.get(same).filter(|(frame, _)| frames.peek() == Some(frame)) {
            (stack, same) = (known, same + 1);
            frames.next();
        }
        path.truncate(same);
        for frame in frames {
            stack = call(stack, frame);
            path.push((frame, stack));
        }
        stack
    }

    /// The stack of a place, and its innermost frame.
    pub(super) fn place(&self, place: &ChainPlace) -> Option<(StackId, FrameId)> {
        let (known, stack, frame) = (*self.places.get(self.slot(place))?)?;
        (known == *place).then_some((stack, frame))
    }

    /// Remembers a place, and forgets the one that was where it belongs.
    pub(super) fn add_place(&mut self, place: ChainPlace, stack: StackId, frame: FrameId) {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let slot = self.slot(&place);
        self.places[slot] = Some((place, stack, frame));
    }
}
