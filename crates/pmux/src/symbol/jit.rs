//! Code that a program made while it ran, by what the program told of it.
//!
//! What it is: [`JitCode`] reads the two kinds of lists that there are: `perf-PID.map`, a line for each function, and `jit-PID.dump`, which
//! also has lines of source, and code that moved. Read first: [`JitCode::read`].
//!
//! **Invariant:** a list may be anything, and may end anywhere: what is understood of it is used. Of several functions in the same place
//! the one that came last is meant: when each was there is not asked.
//!
//! Source: `tools/perf/Documentation/jit-interface.txt`, `jitdump-specification.txt`.

use super::kept::NamedFunction;
use super::place::ResolvedFrame;
use crate::bytes::Fields;
use pmux_linux::plain_file;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// No list is larger: what is behind that is left out.
const LARGEST_LIST_BYTES: u64 = 1 << 30;
/// No program makes more functions: a line of a few bytes takes some hundred.
const MOST_FUNCTIONS: usize = 1 << 22;
/// How a dump begins, in the byte order of this machine.
const MAGIC: u32 = 0x4a69_5444;
/// The kinds of records in a dump.
const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
/// What each record begins with: kind, length, time.
const HEADER_BYTES: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
struct JitFunction {
    start: u64,
    end: u64,
    name: Arc<str>,
    /// Where lines begin, as bytes from its beginning.
    lines: Arc<[(u64, JitLine)]>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct JitLine {
    file: Arc<str>,
    line: u32,
}

/// What a program has told of the code that it made.
#[derive(Default)]
pub(crate) struct JitCode {
    /// By their beginning; of those that begin at one place the last one is meant.
    functions: Vec<JitFunction>,
    /// While a dump is read: the function that began at a place last.
    last_at: HashMap<u64, usize>,
}

impl JitCode {
    /// Reads a program's lists, as far as they are there.
    pub(crate) fn read(map: &Path, dump: Option<&Path>) -> Self {
        let mut code = Self::default();
        if let Some(text) = open_map(map).and_then(bytes_of) {
            code.add_map(&text);
        }
        if let Some(bytes) = dump.and_then(|dump| plain_file::open(dump).ok()).and_then(bytes_of) {
            code.add_dump(&bytes);
        }
        code.last_at = HashMap::new();
        crate::order::sort_by_key(&mut code.functions, |function| function.start);
        code
    }

    fn add_map(&mut self, text: &[u8]) {
        let line = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (start, length) = (number()?, number()?);
            let name = words.next()?.trim().into();
            Some(JitFunction { start, end: start.checked_add(length)?, name, lines: Arc::default() })
        };
        self.functions.extend(text.split(|&byte| byte == b'\n').filter_map(line).take(MOST_FUNCTIONS));
    }

    fn add_dump(&mut self, bytes: &[u8]) {
        let mut head = Fields(bytes);
        let (Some(MAGIC), Some(_version), Some(size)) = (head.u32(), head.u32(), head.u32()) else { return };
        let mut rest = bytes.get(size as usize..).unwrap_or_default();
        // Lines come before the function that they are of.
        let mut lines: Vec<(u64, JitLine)> = Vec::new();
        loop {
            let mut record = Fields(rest);
            let (Some(kind), Some(length)) = (record.u32(), record.u32()) else { return };
            let length = length as usize;
            let Some(whole) = rest.get(..length).filter(|_| length >= HEADER_BYTES) else { return };
            let mut fields = Fields(&whole[HEADER_BYTES..]);
            match kind {
                LOAD => self.load(&mut fields, std::mem::take(&mut lines)).unwrap_or_default(),
                MOVE => self.moved(&mut fields).unwrap_or_default(),
                LINES => lines = lines_of(&mut fields),
                _ => {}
            }
            rest = &rest[length..];
        }
    }

    fn load(&mut self, fields: &mut Fields<'_>, lines: Vec<(u64, JitLine)>) -> Option<()> {
        let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (start, length, _number) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let name = String::from_utf8_lossy(fields.zero_ended()?).into();
        let inside =
            |(address, line): (u64, JitLine)| Some((address.checked_sub(start).filter(|at| *at < length)?, line));
        let mut lines: Vec<_> = lines.into_iter().filter_map(inside).collect();
        crate::order::sort_by_key(&mut lines, |(at, _)| *at);
        self.add(JitFunction { start, end: start.checked_add(length)?, name, lines: lines.into() });
        Some(())
    }

    fn add(&mut self, function: JitFunction) {
        if self.functions.len() < MOST_FUNCTIONS {
            self.last_at.insert(function.start, self.functions.len());
            self.functions.push(function);
        }
    }

    fn moved(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let (_pid, _tid, _vma) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (from, to) = (fields.u64()?, fields.u64()?);
        let old = self.functions.get(*self.last_at.get(&from)?)?;
        let end = to.checked_add(old.end - old.start)?;
        let moved = JitFunction { start: to, end, ..old.clone() };
        self.add(moved);
        Some(())
    }

    fn at(&self, address: u64) -> Option<&JitFunction> {
        let behind = self.functions.partition_point(|function| function.start <= address);
        self.functions.get(behind.checked_sub(1)?).filter(|function| address < function.end)
    }

    pub(crate) fn function(&self, address: u64) -> Option<NamedFunction> {
        self.at(address).map(|function| NamedFunction { start: function.start, name: Arc::clone(&function.name) })
    }

    /// The line at an address; empty where none was told.
    pub(crate) fn lines(&self, address: u64) -> Arc<[ResolvedFrame]> {
        let Some(function) = self.at(address) else { return Arc::default() };
        let behind = function.lines.partition_point(|(at, _)| *at <= address - function.start);
        let Some((_, line)) = behind.checked_sub(1).and_then(|at| function.lines.get(at)) else {
            return Arc::default();
        };
        let (name, file) = (Arc::clone(&function.name), Arc::clone(&line.file));
        let line = (line.line > 0).then_some(line.line);
        [ResolvedFrame { function: Some(name), offset: None, file: Some(file), line }].into()
    }
}

/// What is in a list.
fn bytes_of(file: File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LARGEST_LIST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Opens `perf-PID.map`. Any user may make a file of that name in a folder for all: it is read where it belongs to root, to the user who
/// reads, or to the user of the process, if that runs. (A dump is named by the process that maps it.)
fn open_map(path: &Path) -> Option<File> {
    let file = plain_file::open(path).ok()?;
    let owner = file.metadata().ok()?.uid();
    let process = path.file_stem().and_then(|name| name.to_str()?.strip_prefix("perf-"));
    let process = process.filter(|number| number.bytes().all(|digit| digit.is_ascii_digit()));
    let mut users = ["self"]
        .into_iter()
        .chain(process)
        .filter_map(|process| std::fs::metadata(Path::new("/proc").join(process)).ok().map(|folder| folder.uid()));
    (owner == 0 || users.any(|user| user == owner)).then_some(file)
}

/// Lines of a function that comes behind them, by their addresses.
fn lines_of(fields: &mut Fields<'_>) -> Vec<(u64, JitLine)> {
    /// Stands for the name of the entry before.
    const SAME: &[u8] = &[0xff];
    let mut lines: Vec<(u64, JitLine)> = Vec::new();
    let (Some(_address), Some(count)) = (fields.u64(), fields.u64()) else { return lines };
    for _ in 0..count {
        let entry = |fields: &mut Fields<'_>| {
            let (address, line, _discriminator) = (fields.u64()?, fields.u32()?, fields.u32()?);
            let file: Arc<str> = match (fields.zero_ended()?, lines.last()) {
                (SAME, Some((_, before))) => Arc::clone(&before.file),
                (text, _) => String::from_utf8_lossy(text).into(),
            };
            Some((address, JitLine { file, line }))
        };
        let Some(entry) = entry(fields) else { break };
        lines.push(entry);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(code: &JitCode, address: u64) -> Option<String> {
        code.function(address).map(|function| function.name.to_string())
    }

    fn of_dump(bytes: &[u8]) -> JitCode {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jit-1.dump");
        std::fs::write(&path, bytes).unwrap();
        JitCode::read(Path::new("/nonexistent"), Some(&path))
    }

    #[test]
    fn lists_of_made_code() {
        let mut code = JitCode::default();
        code.add_map(b"2000 10 late\n1000 20 Lfoo;bar baz\nnonsense\n0x1000 30 again\nffffffffffffffff 2 x\n");
        crate::order::sort_by_key(&mut code.functions, |function| function.start);
        assert_eq!(name(&code, 0x1025).as_deref(), Some("again"));
        assert_eq!(code.function(0x1025).unwrap().start, 0x1000);
        assert_eq!(name(&code, 0x2000).as_deref(), Some("late"));
        assert_eq!((name(&code, 0x2010), name(&code, 0xfff)), (None, None));
    }

    #[test]
    fn a_map_of_another_user_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join(format!("perf-{}.map", std::process::id()));
        let names = |path: &Path| name(&JitCode::read(path, None), 0x1000).is_some();
        std::fs::write(&own, "1000 10 f\n").unwrap();
        assert!(names(&own));
        if std::fs::metadata(&own).unwrap().uid() != 0 {
            println!("skipped: needs root");
            return;
        }
        const USER: u32 = 65_533;
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(USER), None).unwrap();
        give(&own);
        assert!(!names(&own), "it says nothing of a process of root");
        let mut sleeper = std::process::Command::new("sleep");
        let mut sleeper = std::os::unix::process::CommandExt::uid(&mut sleeper, USER).arg("60").spawn().unwrap();
        let of_user = folder.path().join(format!("perf-{}.map", sleeper.id()));
        std::fs::copy(&own, &of_user).unwrap();
        give(&of_user);
        let seen = names(&of_user);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(seen, "it is the process's own");
        assert!(!names(&of_user), "the process has ended: its number is free");
        // It has no writer, and none is waited for.
        let pipe = folder.path().join("perf-1.map");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(!names(&pipe));
    }

    fn record(kind: u32, fields: &[u64], text: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = fields.iter().flat_map(|field| field.to_ne_bytes()).collect();
        body.extend(text);
        let length = (body.len() + HEADER_BYTES) as u32;
        [&kind.to_ne_bytes()[..], &length.to_ne_bytes(), &7_u64.to_ne_bytes(), &body].concat()
    }

    fn dump() -> Vec<u8> {
        let header = [MAGIC, 1, 40, 62, 0, 1, 0, 0, 0, 0];
        let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let entry = |address: u64, line: u32, file: &[u8]| {
            [&address.to_ne_bytes()[..], &line.to_ne_bytes(), &0_u32.to_ne_bytes(), file, &[0]].concat()
        };
        let lines = [entry(0x1000, 3, b"/x/a.js"), entry(0x1008, 4, b"\xff")].concat();
        bytes.extend(record(LINES, &[0x1000, 2], &lines));
        bytes.extend(record(LOAD, &[1, 0x1000, 0x1000, 0x20, 1], b"Function:a\0code"));
        bytes.extend(record(LOAD, &[1, 0x3000, 0x3000, 8, 2], b"b\0"));
        bytes.extend(record(9, &[1, 2, 3], b""));
        bytes.extend(record(MOVE, &[1, 0x5000, 0x1000, 0x5000, 0x20, 1], b""));
        bytes
    }

    #[test]
    fn dumps_tell_lines_and_what_moved() {
        let code = of_dump(&dump());
        assert_eq!(name(&code, 0x101f).as_deref(), Some("Function:a"));
        assert_eq!(name(&code, 0x3007).as_deref(), Some("b"));
        assert_eq!((name(&code, 0x3008), name(&code, 0x5010).as_deref()), (None, Some("Function:a")));
        let line =
            |address| code.lines(address).first().map(|line| (line.file.as_deref().unwrap().to_owned(), line.line));
        assert_eq!(line(0x1007), Some(("/x/a.js".to_owned(), Some(3))));
        assert_eq!(line(0x5008), Some(("/x/a.js".to_owned(), Some(4))));
        assert_eq!(line(0x3000), None);
    }

    #[test]
    fn functions_that_move_share_their_lines() {
        let mut bytes = dump();
        for to in 0..1000_u64 {
            bytes.extend(record(MOVE, &[1, 0x5000 + to, 0x5000 + to, 0x5001 + to, 0x20, 1], b""));
        }
        let code = of_dump(&bytes);
        let at = |address: u64| code.at(address).unwrap();
        assert_eq!(at(0x5000 + 1000).start, 0x5000 + 1000);
        assert!(Arc::ptr_eq(&at(0x5000 + 1000).lines, &at(0x1000).lines));
    }

    proptest! {
        #[test]
        fn broken_dumps_are_bearable(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), keep in any::<prop::sample::Index>()) {
            let mut bytes = dump();
            for (index, value) in changes {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(keep.index(bytes.len() + 1));
            let mut code = JitCode::default();
            code.add_dump(&bytes);
            crate::order::sort_by_key(&mut code.functions, |function| function.start);
            let _ = (code.function(0x1004), code.lines(0x1009));
        }
    }
}
