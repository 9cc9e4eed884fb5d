//! Files that are whole, cut off, and changed at random.

use super::super::debug::{Debug, LineHit};
use super::*;
use proptest::prelude::*;
use std::io::Write;
use std::sync::OnceLock;

struct Program {
    bytes: Vec<u8>,
    /// Whether it is ours, with debugging information; otherwise it is the usual `true`.
    is_built: bool,
}

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("a.c"), folder.path().join("a"));
        let text = "int counter, puts(const char *); static inline int f(int a) { return a + counter; }\nint main(void) { return f(1) + puts(\"\"); }\n";
        std::fs::write(&source, text).unwrap();
        let built = std::process::Command::new("cc").args(["-g", "-O2", "-o"]).arg(&out).arg(&source).status();
        let is_built = built.is_ok_and(|status| status.success());
        let path = if is_built { out.as_path() } else { std::path::Path::new("/bin/true") };
        Program { bytes: std::fs::read(path).unwrap(), is_built }
    })
}

fn as_file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Everything that is ever asked of a file.
fn ask(bytes: &[u8]) {
    if let Ok(elf) = Elf::parse(bytes) {
        for symbol in elf.symbols.iter() {
            assert!(elf.symbols.name(symbol).len() <= bytes.len());
            elf.symbols.source(symbol);
            elf.symbols.at(symbol.address);
        }
        elf.symbols.at(u64::MAX);
        elf.bias(0x1000, 0, true);
        elf.bias(u64::MAX, u64::MAX, false);
    }
    let sections = Sections::of(as_file(bytes));
    sections.shared_part();
    if let Some(debug) = Debug::read(&sections, None) {
        for address in (0x1000..0x2000).step_by(64) {
            assert!(debug.frames(address).len() <= 256);
        }
        debug.lines().find("a.c", 1, |_| true);
    }
}

#[test]
fn a_whole_file_is_understood() {
    let program = program();
    let elf = Elf::parse(&program.bytes[..]).unwrap();
    assert!(elf.segments.iter().any(|segment| segment.execute));
    if !program.is_built {
        println!("skipped: needs cc");
        return;
    }
    assert!(elf.needed.iter().any(|name| name.contains("libc")), "{:?}", elf.needed);
    let main = elf.symbols.iter().find(|symbol| elf.symbols.name(symbol) == b"main").unwrap();
    assert_eq!((main.kind, main.reach), (Kind::Code, Reach::Global));
    assert!(elf.is_code(main.address));
    assert_eq!(elf.symbols.at(main.address + 1).map(|symbol| symbol.address), Some(main.address));
    // What it calls of others is in no table.
    let jump = elf.symbols.iter().find(|symbol| elf.symbols.name(symbol) == b"puts@plt").unwrap();
    assert_eq!(elf.symbols.at(jump.address + 4).map(|symbol| symbol.address), Some(jump.address));
    let debug = Debug::read(&Sections::of(as_file(&program.bytes)), None).unwrap();
    let frames = debug.frames(main.address);
    assert_eq!(frames.last().unwrap().function.as_deref(), Some("main"));
    match debug.lines().find("a.c", 2, |address| elf.is_code(address)) {
        LineHit::Code { line: 2, addresses, .. } => assert!(addresses.contains(&main.address), "{addresses:x?}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(debug.lines().find("b.c", 2, |_| true), LineHit::NoFile(files) if files == ["a.c"]));
}

#[test]
fn what_is_no_elf_file_is_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0; 4096]] {
        assert!(Elf::parse(bytes).is_err());
        ask(bytes);
    }
}

#[test]
fn every_beginning_of_a_file_is_bearable() {
    let whole = &program().bytes;
    for part in 0..64 {
        ask(&whole[..whole.len() * part / 64]);
    }
}

proptest! {
    #[test]
    fn changed_files_are_bearable(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24),
        part in 0..4,
    ) {
        let mut bytes = program().bytes.clone();
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let headers = headers.min(bytes.len() - 1);
        // The headers at the beginning and the end decide most; what they lead to is reached where they are whole.
        let range = match part {
            0 => 0..1024.min(bytes.len()),
            1 => headers..bytes.len(),
            _ => 1024.min(headers)..headers,
        };
        for (index, value) in changes {
            bytes[range.start + index.index(range.len())] = value;
        }
        ask(&bytes);
    }
}
