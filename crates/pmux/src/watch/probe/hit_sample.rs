//! What a program says of a hit: its part of a record.
//!
//! What it is: the bytes that a program lays out on its stack and hands over with [`write`]; the kernel adds who, when and from
//! where.
//!
//! **Invariant:** a program that can't write a record answers the kernel to write its own.

use super::maps::ProbeMaps;
use crate::bytes::Fields;
use pmux_linux::bpf::{Assembler, Compare, Helper, Label, Reg, Size};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watch) struct HitSample {
    /// Which generation of programs it was.
    pub(in crate::watch) tag: u32,
    /// The register's address.
    pub(in crate::watch) address: u64,
    pub(in crate::watch) value: Option<u64>,
    /// What had stood there at the hit before, and when that was.
    pub(in crate::watch) old: Option<(u64, u64)>,
    /// For how many hits of its thread at its place it stands: itself, and those that were only counted.
    pub(in crate::watch) stands_for: u64,
}

pub(super) const HAS_VALUE: u32 = 1;
pub(super) const HAS_OLD: u32 = 2;
/// In the place of the value is the number of hits for which it stands.
pub(super) const STANDS_FOR: u32 = 4;
const HIT_SAMPLE_BYTES: usize = 40;

// The upper end of a program's stack: the hit sample, in its order.
const HIT_SAMPLE: i16 = -40;
pub(super) const TAG: i16 = HIT_SAMPLE;
pub(super) const FLAGS: i16 = HIT_SAMPLE + 4;
pub(super) const ADDRESS: i16 = HIT_SAMPLE + 8;
pub(super) const VALUE: i16 = HIT_SAMPLE + 16;
pub(super) const OLD: i16 = HIT_SAMPLE + 24;
pub(super) const OLD_AT: i16 = HIT_SAMPLE + 32;

/// This CPU, as a place in a map of events.
const CURRENT_CPU: u64 = 0xffff_ffff;
/// The ring is full, and counts that itself.
const ENOSPC: i32 = 28;

impl HitSample {
    pub(in crate::watch) fn decode(raw: &[u8]) -> Option<Self> {
        let mut fields = Fields(raw);
        let (tag, flags, address) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (value, old, old_at) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let stands_for = if flags & STANDS_FOR != 0 { value } else { 1 };
        let value = (flags & HAS_VALUE != 0).then_some(value);
        let old = (flags & HAS_OLD != 0).then_some((old, old_at));
        Some(Self { tag, address, value, old, stands_for })
    }
}

/// Lays out a hit sample of the address in `address`, which says nothing more yet.
pub(super) fn lay_out(asm: &mut Assembler<'_>, tag: u32, address: Reg) {
    asm.store(Size::Word, Reg::R10, TAG, tag.cast_signed()).store(Size::Word, Reg::R10, FLAGS, 0);
    asm.store(Size::Double, Reg::R10, ADDRESS, address);
    for place in [VALUE, OLD, OLD_AT] {
        asm.store(Size::Double, Reg::R10, place, 0);
    }
}

/// Hands the hit sample over. `R6` is the context; `R0` is then 0, or why there is no record.
pub(super) fn write<'m>(asm: &mut Assembler<'m>, maps: &'m ProbeMaps) {
    asm.set(Reg::R1, Reg::R6).set_map(Reg::R2, &maps.outputs).set_wide(Reg::R3, CURRENT_CPU);
    asm.stack(Reg::R4, HIT_SAMPLE).set(Reg::R5, HIT_SAMPLE_BYTES as i32).call(Helper::PerfEventOutput);
}

/// Hands the hit sample over from `here` on, and ends: where that can't be done, the kernel writes its own record.
pub(super) fn write_and_end<'m>(asm: &mut Assembler<'m>, here: Label, maps: &'m ProbeMaps) {
    let written = asm.label();
    asm.place(here);
    write(asm, maps);
    asm.jump_if(Reg::R0, Compare::Equal, 0, written).jump_if(Reg::R0, Compare::Equal, -ENOSPC, written);
    asm.set(Reg::R0, 1).exit();
    asm.place(written).set(Reg::R0, 0).exit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_sample_is_what_the_program_wrote() {
        let mut raw = Vec::new();
        raw.extend(3_u32.to_ne_bytes());
        raw.extend((HAS_VALUE | HAS_OLD).to_ne_bytes());
        for double in [0x1000_u64, 42, 41, 7] {
            raw.extend(double.to_ne_bytes());
        }
        // The kernel fills it up to whole words.
        raw.extend([0; 4]);
        let hit_sample = HitSample::decode(&raw).unwrap();
        let expected = HitSample { tag: 3, address: 0x1000, value: Some(42), old: Some((41, 7)), stands_for: 1 };
        assert_eq!(hit_sample, expected);
        raw[4..8].copy_from_slice(&STANDS_FOR.to_ne_bytes());
        let hit_sample = HitSample::decode(&raw).unwrap();
        assert_eq!((hit_sample.value, hit_sample.old, hit_sample.stands_for), (None, None, 42));
        assert_eq!(HitSample::decode(&raw[..39]), None);
    }
}
