//! Compressing records.
//!
//! What it is: [`Packer`] makes records that hold others, compressed with zstd. Read first: [`Packer::pack`].
//!
//! Each record is a zstd stream of its own, so a file that was cut off loses the last one only. A skippable frame fills it up to
//! whole words: readers of every age know that.
//!
//! **Invariant:** a packed record holds whole records, and no more bytes of them than [`MOST_BYTES`].

use super::kind;
use pmux_abi::record::RecordHeader;
use ruzstd::encoding::{CompressionLevel, compress};

/// The most bytes that are packed into one record. What can't be compressed must fit into one as well.
pub const MOST_BYTES: usize = 60 << 10;
/// What a reader makes room for. A single record may be longer than what is packed together.
pub const ROOM_BYTES: u32 = 128 << 10;
/// Marks a frame that readers skip; its size follows.
const SKIPPABLE: u32 = 0x184d_2a50;
const SKIPPABLE_BYTES: usize = 8;

/// Compresses, and keeps account of it.
#[derive(Default)]
pub struct Packer {
    frame: Vec<u8>,
    raw_bytes: u64,
    packed_bytes: u64,
}

impl Packer {
    /// Packs whole records into as few as it takes, one after another into `out`. What gets no shorter is left as it is.
    pub fn pack(&mut self, records: &[u8], out: &mut Vec<u8>) {
        let mut rest = records;
        while !rest.is_empty() {
            let bytes = whole(rest);
            let (chunk, later) = rest.split_at(bytes);
            self.pack_one(chunk, out);
            rest = later;
        }
    }

    fn pack_one(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        self.frame.clear();
        compress(chunk, &mut self.frame, CompressionLevel::Fastest);
        // Either nothing is missing to whole words, or at least as much as an empty frame takes.
        let missing = self.frame.len().wrapping_neg() % 8;
        if missing > 0 {
            self.frame.extend(SKIPPABLE.to_le_bytes());
            self.frame.extend((missing as u32).to_le_bytes());
            self.frame.resize(self.frame.len() + missing, 0);
        }
        let bytes = RecordHeader::SIZE + self.frame.len();
        let start = out.len();
        match u16::try_from(bytes).ok().filter(|_| bytes < chunk.len()) {
            Some(size) => {
                out.extend(kind::COMPRESSED.to_ne_bytes());
                out.extend([0; 2]);
                out.extend(size.to_ne_bytes());
                out.extend(&self.frame);
            }
            None => out.extend(chunk),
        }
        self.raw_bytes += chunk.len() as u64;
        self.packed_bytes += (out.len() - start) as u64;
    }

    /// How many times shorter it has become, at least 1.
    #[must_use]
    pub fn ratio(&self) -> u32 {
        u32::try_from((self.raw_bytes / self.packed_bytes.max(1)).max(1)).unwrap_or(u32::MAX)
    }

    /// Bytes before and after.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.raw_bytes, self.packed_bytes)
    }
}

const _: () = assert!(SKIPPABLE_BYTES.is_multiple_of(8), "a skippable frame fills up whole words");

/// How many bytes at the start are whole records, as many as go into one: at least one record.
fn whole(records: &[u8]) -> usize {
    let mut bytes = 0;
    while let Ok((header, _, _)) = RecordHeader::split(records.get(bytes..).unwrap_or_default()) {
        let next = bytes + usize::from(header.size);
        if next > MOST_BYTES && bytes > 0 {
            return bytes;
        }
        bytes = next;
    }
    // What is no record goes along: it is not ours to judge.
    if bytes == 0 { records.len() } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn records(count: u16) -> Vec<u8> {
        let one = |number: u16| {
            let mut record = vec![9, 0, 0, 0, 2, 0, 64, 0];
            record.extend((0..28).flat_map(|_| number.to_ne_bytes()));
            record
        };
        (0..count).flat_map(one).collect()
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let all = records(5000);
        let (mut packer, mut packed) = (Packer::default(), Vec::new());
        packer.pack(&all, &mut packed);
        assert!(packed.len() < all.len() / 4, "{} of {}", packed.len(), all.len());
        assert!(packer.ratio() >= 4);
        let (mut unpacked, mut rest) = (Vec::new(), &packed[..]);
        while let Ok((header, payload, behind)) = RecordHeader::split(rest) {
            assert_eq!(header.kind.0, kind::COMPRESSED);
            assert!(header.size % 8 == 0);
            let mut one = Vec::new();
            // A decoder takes one frame; what follows it is the one that is skipped.
            ruzstd::decoding::StreamingDecoder::new(payload).expect("a frame").read_to_end(&mut one).expect("whole");
            assert!(one.len() <= MOST_BYTES);
            unpacked.extend(one);
            rest = behind;
        }
        assert!(unpacked == all);
    }

    #[test]
    fn what_gets_no_shorter_stays() {
        let (mut packer, mut packed) = (Packer::default(), Vec::new());
        let one = [68, 0, 0, 0, 0, 0, 8, 0];
        packer.pack(&one, &mut packed);
        assert_eq!(packed, one);
    }
}
