//! Records that were compressed.
//!
//! What it is: [`Unpacker`] takes the contents of packed records one after another. `perf` writes one zstd stream that goes through
//! all of them and never ends; pmux gives each record a stream of its own. Read first: [`Unpacker::feed`].
//!
//! **Invariant:** what comes out is bounded by what a stream may ask for; what is broken is said once, and then nothing comes.

use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// The longest header of a stream. With fewer bytes it may be that the rest is yet to come.
const LONGEST_HEADER: usize = 18;
/// An empty last block: it ends a stream that was left open.
const LAST_BLOCK: [u8; 3] = [1, 0, 0];

/// Unpacks.
pub(super) struct Unpacker {
    decoder: FrameDecoder,
    waiting: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    Within,
    Broken,
}

impl Default for Unpacker {
    fn default() -> Self {
        Self { decoder: FrameDecoder::new(), waiting: Vec::new(), state: State::Between }
    }
}

impl Unpacker {
    /// Whether a stream is open, so that some of its bytes may not have come out.
    pub(super) fn holds_back(&self) -> bool {
        self.state == State::Within
    }

    /// Takes more packed bytes, and adds what can be unpacked.
    ///
    /// # Errors
    /// What is wrong with them, as half a sentence; once.
    pub(super) fn feed(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        if self.state == State::Broken {
            return Ok(());
        }
        self.waiting.extend(packed);
        let done = self.go_on(out);
        if done.is_err() {
            self.state = State::Broken;
            self.waiting = Vec::new();
        }
        done
    }

    /// Ends a stream that was left open, and adds what it held back.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.state == State::Within {
            self.waiting.extend(LAST_BLOCK);
            // A stream with a checksum wants one; ours is not compared.
            self.waiting.extend([0; 4]);
            let _ = self.go_on(out);
        }
    }

    fn go_on(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let mut at = 0;
        loop {
            let rest = self.waiting.get(at..).unwrap_or_default();
            if self.state == State::Between {
                if rest.is_empty() {
                    break;
                }
                let mut source = rest;
                match self.decoder.reset(&mut source) {
                    Ok(()) => {
                        at += rest.len() - source.len();
                        self.state = State::Within;
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
            let (read, written) = self.decoder.decode_from_to(rest, &mut room).map_err(|error| error.to_string())?;
            // It asks for a checksum that has not come yet.
            let read = if read > rest.len() { 0 } else { read };
            at += read;
            out.extend(&room[..written]);
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                self.state = State::Between;
            } else if read == 0 && written == 0 {
                break;
            }
        }
        self.waiting.drain(..at.min(self.waiting.len()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    proptest! {
        #[test]
        fn streams_come_out_whatever_they_are_cut_into(
            parts in prop::collection::vec((0_u8..4, 1_usize..5000), 1..6),
            cut in 1_usize..4000,
            open in any::<bool>(),
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
                unpacker.feed(piece, &mut out).unwrap();
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
            let _ = unpacker.feed(&begun, &mut out);
            let _ = unpacker.feed(&begun, &mut out);
            unpacker.finish(&mut out);
        }
    }
}
