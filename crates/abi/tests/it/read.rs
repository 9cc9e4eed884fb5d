//! Read values: hand-made bytes for each layout and each error. `record_props` has the round trip, in samples and READ records.

use pmux_abi::attr::ReadFormat;
use pmux_abi::read::{ReadLayout, ReadMember, ReadValues};

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
    assert_eq!(values.members.iter().len(), 1);
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
    let members: Vec<_> = values.members.iter().collect();
    let expected =
        [ReadMember { value: 1, id: Some(11), lost: Some(0) }, ReadMember { value: 2, id: Some(12), lost: Some(5) }];
    assert_eq!(members, expected);
    let empty = layout(8);
    assert_eq!(empty.decode(&bytes(&[0])).unwrap().first(), None);
}

#[test]
fn sizes_are_checked() {
    let alone = layout(3);
    let raw = bytes(&[1, 2, 3, 4]);
    let read = |bytes: &[u8]| alone.decode(bytes).is_some();
    assert!(!read(&[]), "end of file");
    assert!(!read(&raw[..23]) && read(&raw[..24]) && !read(&raw));

    let group = layout(8 | 4);
    let read = |bytes: &[u8]| group.decode(bytes).is_some();
    assert!(!read(&raw[..7]));
    for claimed in [2, 3, 1 << 60, u64::MAX] {
        assert!(!read(&bytes(&[claimed, 1, 1, 1])), "{claimed}");
    }
    assert!(!read(&bytes(&[1, 1, 1, 1])) && read(&bytes(&[1, 1, 1])));
}

#[test]
fn sizes_never_overflow() {
    assert_eq!(ReadLayout::new(ReadFormat::all()).size(usize::MAX), usize::MAX);
    let nameless = ReadLayout::new(ReadFormat::from_bits_retain(u64::MAX));
    assert_eq!(nameless, ReadLayout::new(ReadFormat::all()));
}
