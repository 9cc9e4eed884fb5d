//! An attribute's bytes, in both directions.
//!
//! Read first: [`Attr::decode`] for the order of the checks, [`Attr::encode`] for the size chosen.
//!
//! **Invariant:** only what the bytes alone can tell is checked here: sizes, reserved places, bits without a name.
//! Whether fields fit together is for the code that opens the event.
//!
//! **Invariant:** encode and decode are inverse. A bit without a name is refused, never dropped.

use super::{
    Attr, AttrError, AttrFlags, AttrSize, BranchSample, EventType, Precise, ReadFormat, SampleFormat, Sampling, Wakeup,
};
use crate::bytes::{Writer, u16_at, u32_at, u64_at};

/// `freq`: the period field holds a frequency.
const FREQ: u64 = 1 << 10;
/// `watermark`: the wakeup field holds bytes.
const WATERMARK: u64 = 1 << 14;
/// Where `precise_ip` starts, two bits.
const PRECISE_SHIFT: u32 = 15;
/// Flag bits that [`Sampling`], [`Wakeup`] and [`Precise`] stand for.
const TYPED_FLAGS: u64 = FREQ | WATERMARK | (3 << PRECISE_SHIFT);
/// The named bits of `aux_action`.
const AUX_ACTION: u32 = 0b111;
/// The largest `size` that a kernel looks at: one page.
const SIZE_LIMIT: u32 = 4096;

impl Attr {
    /// Bytes of the largest attribute that [`Attr::encode`] writes.
    pub const MAX_SIZE: usize = AttrSize::LARGEST.bytes();

    /// Whether it is `PERF_COUNT_SW_CPU_CLOCK` or `PERF_COUNT_SW_TASK_CLOCK`: its counts are nanoseconds.
    #[must_use]
    pub const fn is_clock(&self) -> bool {
        self.kind.0 == EventType::SOFTWARE.0 && self.config <= super::sw::TASK_CLOCK
    }

    /// Reads an attribute as a kernel does.
    ///
    /// Bytes after the attribute's own `size` are not looked at. A `size` of 0 means 64. A `size` between two
    /// published ones is taken, and what is missing counts as zero. A larger `size` than known is taken if only zeros
    /// follow, so that programs built for newer kernels work.
    ///
    /// # Errors
    ///
    /// In this order, the first that applies:
    ///
    /// 1. [`AttrError::Truncated`]: fewer than 8 bytes, too few for the `size` field.
    /// 2. [`AttrError::TooSmall`], [`AttrError::TooBig`]: `size` is below 64 or above 4096.
    /// 3. [`AttrError::Truncated`]: fewer bytes than `size`.
    /// 4. [`AttrError::UnknownFields`]: something but zeros beyond the largest known size.
    /// 5. [`AttrError::ReservedFlags`], [`AttrError::Reserved2`], [`AttrError::Reserved3`].
    /// 6. [`AttrError::SampleType`].
    /// 7. [`AttrError::ReadFormat`].
    /// 8. [`AttrError::BranchSampleType`], only if `sample_type` asks for branches. Otherwise the field means nothing
    ///    to the kernel, and it is kept as it is.
    ///
    /// Source: `perf_event_open(2)`; the order was checked on Linux 6.18.
    ///
    /// ```
    /// use pmux_abi::attr::{Attr, AttrError, EventType, Sampling, sw};
    ///
    /// let asked = Attr {
    ///     kind: EventType::SOFTWARE,
    ///     config: sw::PAGE_FAULTS,
    ///     sampling: Sampling::Period(100),
    ///     ..Attr::default()
    /// };
    /// let mut bytes = [0; Attr::MAX_SIZE];
    /// let size = asked.encode(&mut bytes);
    /// assert_eq!(Attr::decode(&bytes[..size]), Ok(asked));
    ///
    /// bytes[45] = 1; // a reserved bit of the flag word
    /// assert!(matches!(Attr::decode(&bytes[..size]), Err(AttrError::ReservedFlags { .. })));
    /// ```
    pub fn decode(bytes: &[u8]) -> Result<Self, AttrError> {
        let body = sized_body(bytes)?;
        let word = |at| u64_at(&body, at);
        let half = |at| u32_at(&body, at);

        let flags = word(40);
        let reserved_flags = flags & !(AttrFlags::all().bits() | TYPED_FLAGS);
        if reserved_flags != 0 {
            return Err(AttrError::ReservedFlags { bits: reserved_flags });
        }
        let reserved_2 = u16_at(&body, 110);
        if reserved_2 != 0 {
            return Err(AttrError::Reserved2 { value: reserved_2 });
        }
        let aux_action = half(116);
        if aux_action & !AUX_ACTION != 0 {
            return Err(AttrError::Reserved3 { bits: aux_action & !AUX_ACTION });
        }
        let sample = SampleFormat::from_bits(word(24))
            .ok_or(AttrError::SampleType { bits: word(24) & !SampleFormat::all().bits() })?;
        let read_format = ReadFormat::from_bits(word(32))
            .ok_or(AttrError::ReadFormat { bits: word(32) & !ReadFormat::all().bits() })?;
        let branch_sample = BranchSample::from_bits_retain(word(72));
        let unknown_branch = branch_sample.bits() & !BranchSample::all().bits();
        if unknown_branch != 0 && sample.contains(SampleFormat::BRANCH_STACK) {
            return Err(AttrError::BranchSampleType { bits: unknown_branch });
        }

        Ok(Self {
            kind: EventType(half(0)),
            config: word(8),
            sampling: match (flags & FREQ != 0, word(16)) {
                (true, frequency) => Sampling::Frequency(frequency),
                (false, 0) => Sampling::None,
                (false, period) => Sampling::Period(period),
            },
            sample,
            read_format,
            flags: AttrFlags::from_bits_truncate(flags),
            precise: Precise::from_bits_truncate(flags >> PRECISE_SHIFT),
            wakeup: if flags & WATERMARK != 0 { Wakeup::Bytes(half(48)) } else { Wakeup::Events(half(48)) },
            bp_type: half(52),
            config1: word(56),
            config2: word(64),
            branch_sample,
            sample_regs_user: word(80),
            sample_stack_user: half(88),
            clock_id: half(92).cast_signed(),
            sample_regs_intr: word(96),
            aux_watermark: half(104),
            sample_max_stack: u16_at(&body, 108),
            aux_sample_size: half(112),
            aux_action,
            sig_data: word(120),
            config3: word(128),
            config4: word(136),
        })
    }

    /// Writes the attribute in the smallest published size that loses nothing, and returns that size in bytes.
    ///
    /// Small sizes are what keeps old kernels working: they refuse a size that they don't know unless only zeros are
    /// behind it. The smallest size used is 72, the first with a breakpoint's length, which every kernel with
    /// breakpoints knows. The rest of `out` is set to zero.
    ///
    /// Bits of [`AttrFlags`] without a name are left out, since they would fall on other fields. All other fields are
    /// written as they are.
    #[must_use = "the size says how much of the buffer is the attribute"]
    pub fn encode(&self, out: &mut [u8; Self::MAX_SIZE]) -> usize {
        let size = self.needed_size().max(AttrSize::Ver1);
        self.write(size, out);
        if let Some(rest) = out.get_mut(size.bytes()..) {
            rest.fill(0);
        }
        size.bytes()
    }

    /// Returns the smallest published size that holds every field that is not zero.
    fn needed_size(&self) -> AttrSize {
        let late_fields = [
            (AttrSize::Ver1, self.config2 != 0),
            (AttrSize::Ver2, self.branch_sample.bits() != 0),
            (AttrSize::Ver3, self.sample_regs_user != 0 || self.sample_stack_user != 0 || self.clock_id != 0),
            (AttrSize::Ver4, self.sample_regs_intr != 0),
            (AttrSize::Ver5, self.aux_watermark != 0 || self.sample_max_stack != 0),
            (AttrSize::Ver6, self.aux_sample_size != 0 || self.aux_action != 0),
            (AttrSize::Ver7, self.sig_data != 0),
            (AttrSize::Ver8, self.config3 != 0),
            (AttrSize::Ver9, self.config4 != 0),
        ];
        late_fields.into_iter().filter(|&(_, set)| set).map(|(size, _)| size).max().unwrap_or(AttrSize::Ver0)
    }

    /// Writes all fields in order; what lies beyond `out` is dropped, so `out` decides.
    fn write(&self, size: AttrSize, out: &mut [u8]) {
        let (freq, period) = match self.sampling {
            Sampling::None => (0, 0),
            Sampling::Period(period) => (0, period),
            Sampling::Frequency(frequency) => (FREQ, frequency),
        };
        let (watermark, wakeup) = match self.wakeup {
            Wakeup::Events(events) => (0, events),
            Wakeup::Bytes(bytes) => (WATERMARK, bytes),
        };
        let flags = (self.flags & AttrFlags::all()).bits() | freq | watermark | (self.precise.bits() << PRECISE_SHIFT);

        let mut w = Writer::new(out);
        w.u32(self.kind.0);
        w.u32(size as u32);
        w.u64(self.config);
        w.u64(period);
        w.u64(self.sample.bits());
        w.u64(self.read_format.bits());
        w.u64(flags);
        w.u32(wakeup);
        w.u32(self.bp_type);
        w.u64(self.config1);
        w.u64(self.config2);
        w.u64(self.branch_sample.bits());
        w.u64(self.sample_regs_user);
        w.u32(self.sample_stack_user);
        w.u32(self.clock_id.cast_unsigned());
        w.u64(self.sample_regs_intr);
        w.u32(self.aux_watermark);
        w.u16(self.sample_max_stack);
        w.u16(0);
        w.u32(self.aux_sample_size);
        w.u32(self.aux_action);
        w.u64(self.sig_data);
        w.u64(self.config3);
        w.u64(self.config4);
    }
}

/// Applies the rules of the `size` field: returns the known part, with zeros where the attribute is shorter.
fn sized_body(bytes: &[u8]) -> Result<[u8; Attr::MAX_SIZE], AttrError> {
    let have = bytes.len();
    if have < 8 {
        return Err(AttrError::Truncated { need: 8, have });
    }
    let size = match u32_at(bytes, 4) {
        0 => AttrSize::Ver0 as u32,
        size if size < AttrSize::Ver0 as u32 => return Err(AttrError::TooSmall { size }),
        size if size > SIZE_LIMIT => return Err(AttrError::TooBig { size }),
        size => size,
    };
    let need = size as usize;
    let given = bytes.get(..need).ok_or(AttrError::Truncated { need, have })?;
    let known = given.len().min(Attr::MAX_SIZE);
    let (known, beyond) = given.split_at_checked(known).unwrap_or((given, &[]));
    if beyond.iter().any(|&byte| byte != 0) {
        return Err(AttrError::UnknownFields { size, largest: AttrSize::LARGEST });
    }
    let mut body = [0; Attr::MAX_SIZE];
    if let Some(start) = body.get_mut(..known.len()) {
        start.copy_from_slice(known);
    }
    Ok(body)
}
