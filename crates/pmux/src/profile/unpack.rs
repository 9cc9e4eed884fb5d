//! Records that were compressed.
//!
//! What it is: [`Unpacker`] takes the contents of packed records one after another. `perf` writes one zstd stream that goes through
//! all of them and never ends; pmux gives each record a stream of its own. Read first: [`Unpacker::feed`].
//!
//! **Invariant:** memory is bounded by what is kept at a time, not by how many times larger the contents become: what comes out at once is
//! bounded by the caller, and the decoder keeps a window and a block. What is broken is said once, and then nothing comes.

use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// The longest header of a stream. With fewer bytes it may be that the rest is yet to come.
const LONGEST_HEADER: usize = 18;
/// An empty last block: it ends a stream that was left open.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

#[derive(Default)]
pub(super) struct Unpacker {
    decoder: FrameDecoder,
    waiting: Vec<u8>,
    state: UnpackState,
    is_last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum UnpackState {
    #[default]
    Between,
    Within,
    Broken,
}

impl Unpacker {
    /// Whether a stream is open, so that some of its bytes may not have come out.
    pub(super) fn holds_back(&self) -> bool {
        self.state == UnpackState::Within
    }

    pub(super) fn feed(&mut self, packed: &[u8]) {
        if self.state != UnpackState::Broken {
            self.waiting.extend(packed);
        }
    }

    /// Adds what can be unpacked, until `most` bytes were added. Returns whether there may be more.
    ///
    /// # Errors
    /// What is wrong with them, as half a sentence; once.
    pub(super) fn unpack(&mut self, out: &mut Vec<u8>, most: usize) -> Result<bool, String> {
        if self.state == UnpackState::Broken {
            return Ok(false);
        }
        let done = self.go_on(out, most);
        if done.is_err() {
            self.give_up();
        }
        done
    }

    /// Leaves out whatever comes.
    pub(super) fn give_up(&mut self) {
        self.state = UnpackState::Broken;
        self.waiting = Vec::new();
    }

    /// Ends a stream that was left open, and adds what it held back.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.state == UnpackState::Within {
            self.waiting.extend(LAST_BLOCK);
            // A stream with a checksum wants one; ours is not compared.
            self.waiting.extend([0; 4]);
            let _ = self.go_on(out, usize::MAX);
        }
    }

    fn go_on(&mut self, out: &mut Vec<u8>, most: usize) -> Result<bool, String> {
        let (mut at, before) = (0, out.len());
        let mut more = false;
        loop {
            if out.len() - before >= most {
                more = true;
                break;
            }
            let rest = self.waiting.get(at..).unwrap_or_default();
            if self.state == UnpackState::Between {
                if rest.is_empty() {
                    break;
                }
                let mut source = rest;
                match self.decoder.reset(&mut source) {
                    Ok(()) => {
                        at += rest.len() - source.len();
                        self.state = UnpackState::Within;
                    }
                    Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                        length, ..
                    })) => {
                        // The mark and the length, and what is skipped.
                        let skipped = 8 + length as usize;
                        if rest.len() < skipped {
                            break;
                        }
                        at += skipped;
                    }
                    Err(_) if rest.len() < LONGEST_HEADER => break,
                    Err(error) => return Err(error.to_string()),
                }
                continue;
            }
            let mut room = [0; 1 << 14];
            let source = self.next_piece(rest);
            let (read, written) = self.decoder.decode_from_to(source, &mut room).map_err(|error| error.to_string())?;
            // It asks for a checksum that has not come yet.
            let read = if read > source.len() { 0 } else { read };
            at += read;
            self.is_last |= read > 0 && source.first().is_some_and(|first| first & 1 == 1);
            out.extend(&room[..written]);
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                (self.state, self.is_last) = (UnpackState::Between, false);
            } else if read == 0 && written == 0 {
                break;
            }
        }
        self.waiting.drain(..at.min(self.waiting.len()));
        Ok(more)
    }

    /// What the decoder is given next: one block, for it unpacks all that it is given before it hands any of it out.
    fn next_piece<'r>(&self, rest: &'r [u8]) -> &'r [u8] {
        /// A block that is one byte, many times.
        const SAME: u32 = 1;
        const CHECKSUM_BYTES: usize = 4;
        if self.is_last {
            return &rest[..CHECKSUM_BYTES.min(rest.len())];
        }
        if self.decoder.can_collect() > 0 {
            return &[];
        }
        let Some(&[a, b, c]) = rest.first_chunk() else { return &[] };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = if header >> 1 & 3 == SAME { 1 } else { header as usize >> 3 };
        let tail = if header & 1 == 1 { CHECKSUM_BYTES } else { 0 };
        &rest[..rest.len().min(3 + size + tail)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    proptest! {
        #[test]
        fn streams_come_out_whatever_they_are_cut_into(
            parts in prop::collection::vec((0_u8..4, 1_usize..5000), 1..6),
            cut in 1_usize..4000,
            open in any::<bool>(),
            most in 1_usize..100_000,
        ) {
            let (mut all, mut packed) = (Vec::new(), Vec::new());
            for (byte, length) in parts {
                let part: Vec<u8> = (0..length).map(|at| byte ^ (at / 7) as u8).collect();
                packed.extend(compress_to_vec(&part[..], CompressionLevel::Fastest));
                // Some streams are followed by one that is skipped.
                if byte == 1 {
                    packed.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 9, 9, 9]);
                }
                all.extend(part);
            }
            let (mut unpacker, mut out) = (Unpacker::default(), Vec::new());
            let end = if open { packed.len().saturating_sub(2) } else { packed.len() };
            for piece in packed[..end].chunks(cut) {
                unpacker.feed(piece);
                while unpacker.unpack(&mut out, most).unwrap() {}
            }
            unpacker.finish(&mut out);
            prop_assert!(all.starts_with(&out));
            prop_assert!(open || out == all);
        }

        #[test]
        fn anything_may_come(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut unpacker, mut out) = (Unpacker::default(), Vec::new());
            let mut begun = compress_to_vec(&[7_u8; 400][..], CompressionLevel::Fastest);
            begun.truncate(9);
            begun.extend(bytes);
            for _ in 0..2 {
                unpacker.feed(&begun);
                let _ = unpacker.unpack(&mut out, usize::MAX);
            }
            unpacker.finish(&mut out);
        }
    }

    #[test]
    fn what_grows_beyond_measure_is_unpacked_piece_by_piece() {
        // A stream of blocks that each say one byte 128 KiB times, as the format has it: magic, window, blocks of 4 bytes. It becomes
        // 32,767 times as large; copies of stacks, which are mostly zeros, become some thousands of times as large.
        const BLOCKS: usize = 1000;
        let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
        let block = (0x2_0000_u32 << 3 | 1 << 1).to_le_bytes();
        (0..BLOCKS).for_each(|_| packed.extend([block[0], block[1], block[2], 7]));
        let mut unpacker = Unpacker::default();
        unpacker.feed(&packed);
        let (mut out, mut all) = (Vec::new(), 0);
        loop {
            out.clear();
            let more = unpacker.unpack(&mut out, 1 << 20).unwrap();
            assert!(out.len() <= (1 << 20) + (1 << 14) && out.iter().all(|&byte| byte == 7), "{} at once", out.len());
            assert!(unpacker.decoder.can_collect() <= 1 << 17, "a block waits at most");
            all += out.len();
            if !more {
                break;
            }
        }
        out.clear();
        unpacker.finish(&mut out);
        // The window comes last.
        assert!(out.len() <= 1 << 17, "{} at the end", out.len());
        assert_eq!(all + out.len(), BLOCKS << 17);
    }

    #[test]
    fn what_is_broken_is_said_once() {
        let mut unpacker = Unpacker::default();
        unpacker.feed(&[9; 100]);
        let mut out = Vec::new();
        assert!(unpacker.unpack(&mut out, 1).is_err());
        unpacker.feed(&compress_to_vec(&[7_u8; 400][..], CompressionLevel::Fastest));
        assert_eq!(unpacker.unpack(&mut out, 1), Ok(false), "once is enough");
    }
}
