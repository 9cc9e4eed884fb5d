//! What the programs of a watch share with it.
//!
//! **Invariant:** an address has one piece: where two spots share it, that of the first.

use pmux_linux::Errno;
use pmux_linux::bpf::{Map, MapKind, Update};

/// How many registers can ever be watched by one watch with programs.
const MOST_PIECES: u32 = 4096;
/// Of how many places (an address of a process) it is known what stood there at the last hit; those that were not hit for longest
/// are forgotten first.
const MOST_PLACES: u32 = 16 << 10;

/// Where a piece has what, in bytes.
pub(super) struct PieceLayout {
    /// What is read: the spot, where it is a number.
    pub(super) address: i16,
    /// The bits of its bytes.
    pub(super) mask: i16,
    /// Its bytes; 0 for code.
    pub(super) bytes: i16,
    /// Whether the condition is asked, or hits are counted: not before all is armed.
    pub(super) judged: i16,
    /// For how many hits it did not hold.
    pub(super) missed: i16,
}

pub(super) const PIECE: PieceLayout = PieceLayout { address: 0, mask: 8, bytes: 16, judged: 20, missed: 24 };
const PIECE_BYTES: u32 = 32;

/// A piece, as its programs see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watch) struct ProbePiece {
    pub(in crate::watch) register: u64,
    /// What is read.
    pub(in crate::watch) address: u64,
    /// 1, 2, 4 or 8; 0 for code.
    pub(in crate::watch) bytes: u32,
    /// The bits in which a condition computes.
    pub(in crate::watch) mask: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    NotYet,
    FromNowOn,
}

impl ProbePiece {
    fn encode(&self, judged: Judged) -> [u8; PIECE_BYTES as usize] {
        let mut bytes = [0; PIECE_BYTES as usize];
        bytes[..8].copy_from_slice(&self.address.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.mask.to_ne_bytes());
        bytes[16..20].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[20..24].copy_from_slice(&u32::from(judged == Judged::FromNowOn).to_ne_bytes());
        bytes
    }
}

#[derive(Debug)]
pub(in crate::watch) struct ProbeMaps {
    /// Pieces by the address of their register.
    pub(super) pieces: Map,
    /// The events into whose rings programs write, by CPU.
    pub(super) outputs: Map,
}

impl ProbeMaps {
    pub(super) fn new(cpus: u32) -> Result<Self, Errno> {
        Ok(Self {
            pieces: Map::new(MapKind::Hash, 8, PIECE_BYTES, MOST_PIECES, "pmux_pieces")?,
            outputs: Map::new(MapKind::PerfEventArray, 4, 4, cpus, "pmux_outputs")?,
        })
    }

    /// One more piece; where its address has one, that one stays.
    pub(super) fn add(&self, piece: &ProbePiece) -> Result<(), Errno> {
        match self.pieces.set(&piece.register.to_ne_bytes(), &piece.encode(Judged::NotYet), Update::New) {
            Err(Errno::EEXIST) => Ok(()),
            other => other,
        }
    }

    /// The condition is asked for a piece. Nothing was missed before.
    pub(super) fn judge(&self, piece: &ProbePiece) -> Result<(), Errno> {
        let key = piece.register.to_ne_bytes();
        match self.pieces.get(&key)? {
            Some(there) if there.get(..16) == piece.encode(Judged::NotYet).get(..16) => {
                self.pieces.set(&key, &piece.encode(Judged::FromNowOn), Update::Present)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn remove(&self, register: u64) {
        // One that isn't there is removed.
        let _ = self.pieces.remove(&register.to_ne_bytes());
    }

    /// For how many hits on a register the condition did not hold.
    pub(in crate::watch) fn missed(&self, register: u64) -> u64 {
        let piece = self.pieces.get(&register.to_ne_bytes()).ok().flatten().unwrap_or_default();
        piece.get(24..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
}

/// What stood somewhere at the last hit, and when that was, by process (0 for the kernel) and address. Where programs look in
/// front of an access: whether the condition held for the last hit.
pub(super) fn last_values() -> Result<Map, Errno> {
    Map::new(MapKind::LruHash, 16, 16, MOST_PLACES, "pmux_last")
}

/// What stands somewhere before the first hit.
pub(super) fn stood(last: &Map, pid: u32, address: u64, value: u64, at_ns: u64) {
    let key = [u64::from(pid).to_ne_bytes(), address.to_ne_bytes()].concat();
    let value = [value.to_ne_bytes(), at_ns.to_ne_bytes()].concat();
    // A hit that was there first knows better; without room the first hit has no old value.
    let _ = last.set(&key, &value, Update::New);
}
