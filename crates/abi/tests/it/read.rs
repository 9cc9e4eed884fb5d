//! Read values: hand-made bytes for each layout and each error, random ones for the round trip.

use pmux_abi::attr::ReadFormat;
use pmux_abi::read::{ReadError, ReadLayout, ReadMember, ReadValues};
use proptest::prelude::*;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn layout(bits: u64) -> ReadLayout {
    ReadLayout::new(ReadFormat::from_bits_truncate(bits))
}

#[test]
fn an_event_read_alone() {
    let all = ReadLayout::new(ReadFormat::all() - ReadFormat::GROUP);
    assert_eq!(all.size(1), 40);
    assert_eq!(all.size(9), 40, "alone, the number doesn't matter");
    let raw = bytes(&[1, 2, 3, 4, 5]);
    let values = all.decode(&raw).unwrap();
    assert_eq!(values.time_enabled, Some(2));
    assert_eq!(values.time_running, Some(3));
    let member = ReadMember { value: 1, id: Some(4), lost: Some(5) };
    assert_eq!(values.first(), Some(member));
    assert_eq!(values.members.len(), 1);
    assert_eq!(values.members.get(1), None);

    let plain = layout(0);
    let raw = bytes(&[7]);
    let values = plain.decode(&raw).unwrap();
    assert_eq!(values, ReadValues::of(&[ReadMember { value: 7, id: None, lost: None }]));
}

#[test]
fn a_group() {
    let all = ReadLayout::new(ReadFormat::all());
    assert_eq!(all.size(2), 8 * 9);
    let raw = bytes(&[2, 20, 30, 1, 11, 0, 2, 12, 5]);
    let values = all.decode(&raw).unwrap();
    assert_eq!(values.time_enabled, Some(20));
    assert_eq!(values.time_running, Some(30));
    let members: Vec<_> = values.members.into_iter().collect();
    let expected =
        [ReadMember { value: 1, id: Some(11), lost: Some(0) }, ReadMember { value: 2, id: Some(12), lost: Some(5) }];
    assert_eq!(members, expected);
    assert_eq!(values.member(12), Some(expected[1]));
    assert_eq!(values.member(13), None);
    let empty = layout(8);
    assert_eq!(empty.decode(&bytes(&[0])).unwrap().first(), None);
}

#[test]
fn sizes_are_checked_in_order() {
    let alone = layout(3);
    let raw = bytes(&[1, 2, 3, 4]);
    let truncated = |need, have| Err(ReadError::Truncated { need, have });
    assert_eq!(alone.decode(&[]), truncated(24, 0), "end of file");
    assert_eq!(alone.decode(&raw[..23]), truncated(24, 23));
    assert_eq!(alone.decode(&raw), Err(ReadError::Trailing { bytes: 8 }));
    assert_eq!(alone.decode_prefix(&raw).unwrap().1, 24);

    let group = layout(8 | 4);
    assert_eq!(group.decode(&raw[..7]), truncated(8, 7));
    for claimed in [2, 3, 1 << 60, u64::MAX] {
        let raw = bytes(&[claimed, 1, 1, 1]);
        let fit = 1;
        let too_many = Err(ReadError::TooManyMembers { claimed, fit });
        assert_eq!(group.decode(&raw), too_many);
    }
    let raw = bytes(&[1, 1, 1, 1]);
    assert_eq!(group.decode(&raw), Err(ReadError::Trailing { bytes: 8 }));
}

#[test]
fn encoding_checks_each_field() {
    let mut out = [0; 64];
    let one = [ReadMember { value: 1, id: Some(2), lost: None }];
    let two = [one[0]; 2];
    let no_time = ReadValues::of(&one);
    let with_time = ReadValues { time_enabled: Some(1), ..no_time };
    let not_alone = Err(ReadError::NotAlone { members: 2 });
    assert_eq!(layout(1).encode(&ReadValues::of(&two), &mut out), not_alone);
    let none = Err(ReadError::NotAlone { members: 0 });
    assert_eq!(layout(4).encode(&ReadValues::default(), &mut out), none);
    let missing = |field| Err(ReadError::Missing { field });
    let unexpected = |field| Err(ReadError::Unexpected { field });
    assert_eq!(layout(5).encode(&no_time, &mut out), missing("time_enabled"));
    assert_eq!(layout(4).encode(&with_time, &mut out), unexpected("time_enabled"));
    assert_eq!(layout(6).encode(&no_time, &mut out), missing("time_running"));
    assert_eq!(layout(0).encode(&no_time, &mut out), unexpected("id"));
    assert_eq!(layout(8 | 4 | 16).encode(&no_time, &mut out), missing("lost"));
    let no_space = Err(ReadError::NoSpace { need: 16, have: 15 });
    assert_eq!(layout(4).encode(&no_time, &mut out[..15]), no_space);
    assert_eq!(layout(4).encode(&no_time, &mut out[..16]), Ok(16));
}

#[test]
fn sizes_never_overflow() {
    assert_eq!(ReadLayout::new(ReadFormat::all()).size(usize::MAX), usize::MAX);
    let nameless = ReadLayout::new(ReadFormat::from_bits_retain(u64::MAX));
    assert_eq!(nameless, ReadLayout::new(ReadFormat::all()));
}

proptest! {
    #[test]
    fn values_round_trip(
        bits in 0..32_u64,
        times in any::<(u64, u64)>(),
        members in proptest::collection::vec(any::<(u64, u64, u64)>(), 1..20),
    ) {
        let layout = layout(bits);
        let format = layout.format();
        let mut members: Vec<_> = members
            .into_iter()
            .map(|(value, id, lost)| ReadMember {
                value,
                id: format.contains(ReadFormat::ID).then_some(id),
                lost: format.contains(ReadFormat::LOST).then_some(lost),
            })
            .collect();
        if !format.contains(ReadFormat::GROUP) {
            members.truncate(1);
        }
        let values = ReadValues {
            time_enabled: format.contains(ReadFormat::TOTAL_TIME_ENABLED).then_some(times.0),
            time_running: format.contains(ReadFormat::TOTAL_TIME_RUNNING).then_some(times.1),
            ..ReadValues::of(&members)
        };
        let mut out = [0; 1024];
        let len = layout.encode(&values, &mut out).unwrap();
        prop_assert_eq!(len, layout.size(members.len()));
        prop_assert_eq!(layout.decode(&out[..len]), Ok(values));
    }

    #[test]
    fn what_is_decoded_encodes_to_the_same_bytes(
        bits in 0..32_u64,
        count in 0..6_u64,
        raw in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut raw = raw;
        if bits & 8 != 0 && raw.len() >= 8 {
            raw[..8].copy_from_slice(&count.to_ne_bytes());
        }
        let layout = layout(bits);
        if let Ok((values, used)) = layout.decode_prefix(&raw) {
            let mut out = [0; 256];
            prop_assert_eq!(layout.encode(&values, &mut out), Ok(used));
            prop_assert_eq!(&out[..used], &raw[..used]);
        }
    }
}
