//! Attribute bytes: hand-made ones for each check and their order, random ones for the round trip.

use pmux_abi::attr::{
    Attr, AttrError, AttrFlags, AttrSize, BranchSample, EventType, Precise, ReadFormat, SampleFormat, Sampling, Wakeup,
};
use proptest::prelude::*;

/// An attribute of zeros with a size field, in a buffer of `len` bytes.
fn bytes(size: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    put(&mut bytes, 4, &size.to_ne_bytes());
    bytes
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn every_field_is_at_its_place() {
    let mut raw = bytes(144, 144);
    let flags = 1 | 1 << 10 | 1 << 14 | 2 << 15 | 1 << 37;
    let words = [(8, 2_u64), (16, 3), (24, 0x0100_0001), (32, 0x14), (40, flags), (56, 6), (64, 7), (72, 8), (80, 9)];
    for (at, value) in words.into_iter().chain([(96, 12), (120, 17), (128, 18), (136, 19)]) {
        put(&mut raw, at, &value.to_ne_bytes());
    }
    for (at, value) in [(0, 1_u32), (48, 4), (52, 5), (88, 10), (104, 13), (112, 15), (116, 4)] {
        put(&mut raw, at, &value.to_ne_bytes());
    }
    put(&mut raw, 92, &(-11_i32).to_ne_bytes());
    put(&mut raw, 108, &14_u16.to_ne_bytes());

    let attr = Attr {
        kind: EventType::SOFTWARE,
        config: 2,
        sampling: Sampling::Frequency(3),
        sample: SampleFormat::IP | SampleFormat::WEIGHT_STRUCT,
        read_format: ReadFormat::ID | ReadFormat::LOST,
        flags: AttrFlags::DISABLED | AttrFlags::SIGTRAP,
        precise: Precise::RequestZeroSkid,
        wakeup: Wakeup::Bytes(4),
        bp_type: 5,
        config1: 6,
        config2: 7,
        branch_sample: BranchSample::ANY,
        sample_regs_user: 9,
        sample_stack_user: 10,
        clock_id: -11,
        sample_regs_intr: 12,
        aux_watermark: 13,
        sample_max_stack: 14,
        aux_sample_size: 15,
        aux_action: 4,
        sig_data: 17,
        config3: 18,
        config4: 19,
    };
    assert_eq!(Attr::decode(&raw), Ok(attr));
    let mut out = [0; Attr::MAX_SIZE];
    assert_eq!(attr.encode(&mut out), 144);
    assert_eq!(out[..], raw);
}

#[test]
fn sizes_are_checked_first() {
    let truncated = |need, have| Err(AttrError::Truncated { need, have });
    assert_eq!(Attr::decode(&[]), truncated(8, 0));
    assert_eq!(Attr::decode(&[0; 7]), truncated(8, 7));
    // The size field is judged before the length of the bytes is.
    let small = Err(AttrError::TooSmall { size: 63 });
    assert_eq!(Attr::decode(&bytes(63, 8)), small);
    let big = Err(AttrError::TooBig { size: 4097 });
    assert_eq!(Attr::decode(&bytes(4097, 8)), big);
    assert_eq!(Attr::decode(&bytes(64, 63)), truncated(64, 63));
    assert_eq!(Attr::decode(&bytes(0, 63)), truncated(64, 63));

    for size in [0, 64, 65, 72, 100, 143, 144, 145, 4096] {
        let raw = bytes(size, size.max(64) as usize);
        assert_eq!(Attr::decode(&raw), Ok(Attr::default()), "size {size}");
    }
}

#[test]
fn a_size_of_zero_means_64() {
    let mut raw = bytes(0, 72);
    put(&mut raw, 64, &1_u64.to_ne_bytes());
    assert_eq!(Attr::decode(&raw), Ok(Attr::default()));
    put(&mut raw, 4, &72_u32.to_ne_bytes());
    assert_eq!(Attr::decode(&raw).unwrap().config2, 1);
}

#[test]
fn fields_after_an_odd_size_count_as_zero() {
    let mut raw = bytes(66, 72);
    put(&mut raw, 64, &[1, 2, 3, 4]);
    let config2 = u64::from_ne_bytes([1, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Attr::decode(&raw).unwrap().config2, config2);
}

#[test]
fn unknown_fields_must_be_zero() {
    let mut raw = bytes(152, 160);
    raw[152] = 1; // behind the attribute
    assert_eq!(Attr::decode(&raw), Ok(Attr::default()));
    raw[151] = 1;
    raw[45] = 1; // a reserved flag too, which comes later
    let error = Attr::decode(&raw).unwrap_err();
    let (size, largest) = (152, AttrSize::Ver9);
    assert_eq!(error, AttrError::UnknownFields { size, largest });
}

#[test]
fn reserved_places_are_checked_in_order() {
    // Everything is wrong at first; then one fault after the other is mended.
    let mut raw = bytes(144, 144);
    let unknown_format = 1_u64 << 25 | SampleFormat::BRANCH_STACK.bits();
    put(&mut raw, 24, &unknown_format.to_ne_bytes());
    put(&mut raw, 32, &(1_u64 << 5).to_ne_bytes());
    put(&mut raw, 40, &(1_u64 << 40 | 1).to_ne_bytes());
    put(&mut raw, 72, &(1_u64 << 20 | 8).to_ne_bytes());
    put(&mut raw, 110, &7_u16.to_ne_bytes());
    put(&mut raw, 116, &9_u32.to_ne_bytes());
    let mut expect = |expected: AttrError, at: usize, mended: &[u8]| {
        let error = Attr::decode(&raw).unwrap_err();
        assert_eq!(error, expected);
        assert!(!error.to_string().is_empty());
        put(&mut raw, at, mended);
    };
    expect(AttrError::ReservedFlags { bits: 1 << 40 }, 40, &[0; 8]);
    expect(AttrError::Reserved2 { value: 7 }, 110, &[0; 2]);
    expect(AttrError::Reserved3 { bits: 8 }, 116, &[0; 4]);
    let branches = SampleFormat::BRANCH_STACK.bits().to_ne_bytes();
    expect(AttrError::SampleType { bits: 1 << 25 }, 24, &branches);
    expect(AttrError::ReadFormat { bits: 1 << 5 }, 32, &[0; 8]);
    // Without BRANCH_STACK the kernel doesn't look at the field, and neither do we.
    expect(AttrError::BranchSampleType { bits: 1 << 20 }, 24, &[0; 8]);
    let attr = Attr::decode(&raw).unwrap();
    assert_eq!(attr.branch_sample.bits(), 1 << 20 | 8);
    let mut out = [0; Attr::MAX_SIZE];
    assert_eq!(attr.encode(&mut out), 80);
    assert_eq!(out[8..], raw[8..], "what means nothing is kept all the same");
}

#[test]
fn encode_picks_the_smallest_size() {
    let mut out = [0xff; Attr::MAX_SIZE];
    assert_eq!(Attr::default().encode(&mut out), 72);
    assert_eq!(&out[4..8], 72_u32.to_ne_bytes());
    assert!(out[8..].iter().all(|&byte| byte == 0), "the rest is zero");

    let late = [
        (72, Attr { config2: 1, ..Attr::default() }),
        (80, Attr { branch_sample: BranchSample::ANY, ..Attr::default() }),
        (96, Attr { sample_regs_user: 1, ..Attr::default() }),
        (96, Attr { sample_stack_user: 1, ..Attr::default() }),
        (96, Attr { clock_id: -1, ..Attr::default() }),
        (104, Attr { sample_regs_intr: 1, ..Attr::default() }),
        (112, Attr { aux_watermark: 1, ..Attr::default() }),
        (112, Attr { sample_max_stack: 1, ..Attr::default() }),
        (120, Attr { aux_sample_size: 1, ..Attr::default() }),
        (120, Attr { aux_action: 1, ..Attr::default() }),
        (128, Attr { sig_data: 1, ..Attr::default() }),
        (136, Attr { config3: 1, ..Attr::default() }),
        (144, Attr { config4: 1, ..Attr::default() }),
    ];
    for (size, attr) in late {
        assert_eq!(attr.encode(&mut out), size, "{attr:?}");
        assert_eq!(Attr::decode(&out[..size]), Ok(attr));
    }
}

#[test]
fn flags_never_fall_on_typed_fields() {
    let attr = Attr { flags: AttrFlags::from_bits_retain(u64::MAX), ..Attr::default() };
    let mut out = [0; Attr::MAX_SIZE];
    let size = attr.encode(&mut out);
    let seen = Attr::decode(&out[..size]).unwrap();
    assert_eq!(seen.flags, AttrFlags::all());
    assert_eq!(seen.sampling, Sampling::None);
    assert_eq!(seen.wakeup, Wakeup::Events(0));
    assert_eq!(seen.precise, Precise::ArbitrarySkid);
}

/// Any attribute that has only named bits and no field that is set beyond `size`.
fn attr_of_size(size: AttrSize) -> impl Strategy<Value = Attr> {
    let sampling = prop_oneof![
        Just(Sampling::None),
        (1..=u64::MAX).prop_map(Sampling::Period),
        any::<u64>().prop_map(Sampling::Frequency),
    ];
    let wakeup = prop_oneof![any::<u32>().prop_map(Wakeup::Events), any::<u32>().prop_map(Wakeup::Bytes),];
    let words = proptest::array::uniform20(prop_oneof![Just(0), any::<u64>()]);
    (sampling, wakeup, words).prop_map(move |(sampling, wakeup, words)| {
        let late = |since: AttrSize, word: u64| if since <= size { word } else { 0 };
        Attr {
            kind: EventType(words[0] as u32),
            config: words[1],
            sampling,
            sample: SampleFormat::from_bits_truncate(words[2]),
            read_format: ReadFormat::from_bits_truncate(words[3]),
            flags: AttrFlags::from_bits_truncate(words[4]),
            precise: Precise::from_bits_truncate(words[5]),
            wakeup,
            bp_type: words[6] as u32,
            config1: words[7],
            config2: late(AttrSize::Ver1, words[8]),
            branch_sample: BranchSample::from_bits_truncate(late(AttrSize::Ver2, words[9])),
            sample_regs_user: late(AttrSize::Ver3, words[10]),
            sample_stack_user: late(AttrSize::Ver3, words[11]) as u32,
            clock_id: late(AttrSize::Ver3, words[12]) as i32,
            sample_regs_intr: late(AttrSize::Ver4, words[13]),
            aux_watermark: late(AttrSize::Ver5, words[14]) as u32,
            sample_max_stack: late(AttrSize::Ver5, words[14] >> 32) as u16,
            aux_sample_size: late(AttrSize::Ver6, words[15]) as u32,
            aux_action: late(AttrSize::Ver6, words[16] & 7) as u32,
            sig_data: late(AttrSize::Ver7, words[17]),
            config3: late(AttrSize::Ver8, words[18]),
            config4: late(AttrSize::Ver9, words[19]),
        }
    })
}

const SIZES: [AttrSize; 10] = {
    use AttrSize::*;
    [Ver0, Ver1, Ver2, Ver3, Ver4, Ver5, Ver6, Ver7, Ver8, Ver9]
};

fn sized_attr() -> impl Strategy<Value = (AttrSize, Attr)> {
    proptest::sample::select(&SIZES[..]).prop_flat_map(|size| attr_of_size(size).prop_map(move |attr| (size, attr)))
}

proptest! {
    #[test]
    fn every_size_round_trips((size, attr) in sized_attr()) {
        let mut out = [0xff; Attr::MAX_SIZE];
        let len = attr.encode(&mut out);
        prop_assert!(len <= size.max(AttrSize::Ver1).bytes());
        prop_assert!(out[len..].iter().all(|&byte| byte == 0));
        prop_assert_eq!(Attr::decode(&out[..len]), Ok(attr));
    }

    #[test]
    fn what_is_decoded_encodes_to_the_same_bytes(
        (_, attr) in sized_attr(),
        size in prop_oneof![Just(0_u32), 60..160_u32, any::<u32>()],
        mutations in proptest::collection::vec((0..200_usize, any::<u8>()), 0..4),
        len in 0..200_usize,
    ) {
        let mut raw = [0; 200];
        let mut encoded = [0; Attr::MAX_SIZE];
        let used = attr.encode(&mut encoded);
        raw[..used].copy_from_slice(&encoded[..used]);
        put(&mut raw, 4, &size.to_ne_bytes());
        for (at, byte) in mutations {
            raw[at] = byte;
        }
        let Ok(seen) = Attr::decode(&raw[..len]) else { return Ok(()) };
        let size = match u32::from_ne_bytes(raw[4..8].try_into().unwrap()) {
            0 => 64,
            size => size as usize,
        };
        prop_assert!(size <= len);
        // The same bytes, but for the size: zeros behind the one that was given.
        let mut expected = [0; Attr::MAX_SIZE];
        let known = size.min(Attr::MAX_SIZE);
        expected[..known].copy_from_slice(&raw[..known]);
        let mut out = [0xff; Attr::MAX_SIZE];
        let used = seen.encode(&mut out);
        put(&mut expected, 4, &(used as u32).to_ne_bytes());
        prop_assert_eq!(out, expected);
    }

    #[test]
    fn no_bytes_panic(raw in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let _whatever = Attr::decode(&raw);
    }
}
