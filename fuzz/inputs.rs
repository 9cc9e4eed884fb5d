//! What the fuzzers do with their bytes: one function for each kind of input that a peer or a file controls.
//!
//! What it is: each function reads the bytes as pmux does and uses all of the result. A panic, an endless loop or memory
//! without bound is a defect. `fuzz_targets/` gives these functions to libFuzzer, and `crates/cli/tests/it/fuzz_corpus.rs` runs
//! them over `corpus/` in every test run.
//!
//! **Invariant:** nothing here writes a file, opens an event or looks at the machine.

use pmux::abi::Attr;
use pmux::profile::formats::Formats;
use pmux::profile::{Input, Tally, read};
use pmux::server_api::shared::wire::{decode_reply, decode_request, encode_reply, encode_request};
use std::io::Cursor;

/// A packet of the service's protocol, in both directions. What can be read can be written, to the same message.
pub(crate) fn wire(bytes: &[u8]) {
    if let Ok((number, request)) = decode_request(bytes) {
        let again = encode_request(number, &request).expect("what was read has a number and fits");
        assert_eq!(decode_request(&again), Ok((number, request)));
    }
    if let Ok((number, reply)) = decode_reply(bytes) {
        let again = encode_reply(number, &reply).expect("what was read has a number and fits");
        assert_eq!(decode_reply(&again), Ok((number, reply)));
    }
}

/// A recording, read as `pmux report` and `pmux script` read it; names are not looked up, as they need files of the machine.
pub(crate) fn perf_data(bytes: &[u8]) {
    let mut tally = Tally::default();
    match read(Input::stream(Cursor::new(bytes.to_vec())), &mut tally) {
        Ok(profile) => {
            for (key, _) in tally.rows() {
                let _ = profile.stacks.innermost(key.stack);
            }
            let _ = Formats::parse(&profile.tracing).len();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The descriptions of tracepoints as they stand in a recording, and raw bytes of a sample that each of them prints: the
/// length of the descriptions (u16, little-endian), the descriptions, the raw bytes.
pub(crate) fn tracepoint_format(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (tracing, raw) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    let formats = Formats::parse(tracing);
    let mut text = String::new();
    for format in (0..=u64::from(u16::MAX)).filter_map(|id| formats.get(id)) {
        text.clear();
        format.print(raw, &mut |address| Some((String::from("symbol"), address & 7)), &mut text);
        for field in &format.fields {
            let _ = field.value(raw);
        }
    }
}

/// The bytes of a `perf_event_attr`. What is accepted is encoded to an attribute that is equal.
pub(crate) fn attr(bytes: &[u8]) {
    match Attr::decode(bytes) {
        Ok(attr) => {
            let mut out = [0; Attr::MAX_SIZE];
            let length = attr.encode(&mut out);
            assert_eq!(Attr::decode(&out[..length]), Ok(attr));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
