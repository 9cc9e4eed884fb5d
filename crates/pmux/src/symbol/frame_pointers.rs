//! Which programs and libraries keep a frame pointer in their functions, so that call chains are found by it.
//!
//! What it is: [`FramePointers::of`] looks into what is about to run, or runs: at the tables by which functions are left. Where a function
//! keeps a frame pointer, they find its frame by that register (x86), or say where it is saved (arm64).
//!
//! **Invariant:** of a file without tables, one that can't be read, or of another machine, nothing is said. No program is executed to find
//! out, and what a file can cost is bounded, whatever is in it.
//!
//! Source: `.eh_frame` of the Linux Standard Base; `ld.so(8)`.

use super::elf::{needed_by, table_of};
use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, Register, RegisterRule};
use gimli::{UnwindContext, UnwindSection, UnwindTableRow};
use pmux_linux::plain_file;
use pmux_linux::procfs::Proc;
use pmux_linux::spawn::program_file;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Whose code it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeOf<'a> {
    /// A command that is to be executed, by its first word, and of the libraries that it is linked with.
    Command(&'a OsStr),
    /// All that processes have mapped.
    Processes(&'a [i32]),
    /// The same of all processes that may be looked at.
    Everything,
}

/// A shorter function may keep no frame, however it was compiled.
const LEAST_BYTES: u64 = 32;
/// So many functions of a file say enough, and so many bytes of its table.
const MOST_FUNCTIONS: u64 = 8192;
const MOST_TABLE_BYTES: u64 = 4 << 20;
/// What is common to functions is as short as this, where a compiler has written it. It is gone through for each of them.
const MOST_COMMON_BYTES: u32 = 64;
/// Libraries of a command, and what those are linked with.
const MOST_LIBRARIES: usize = 64;
/// Files that processes have mapped.
const MOST_FILES: usize = 4096;

/// Which programs and libraries keep frame pointers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FramePointers {
    /// The first few of whose longer functions more than half keep none. Call chains by frame pointers break off there, or leave out a
    /// caller.
    pub without: Vec<PathBuf>,
    /// How many of those that were looked into keep them.
    pub with: usize,
    /// How many do not tell.
    pub unknown: usize,
}

impl FramePointers {
    /// Looks until `most` without frame pointers are found.
    ///
    /// Of a command, libraries are found in `LD_LIBRARY_PATH` and in the usual folders; a run path in its file is not followed. A script
    /// stands for the program that its first line names. It may be called anywhere; it reads the tables of each file, which takes some
    /// milliseconds.
    #[must_use]
    pub fn of(code: CodeOf<'_>, most: usize) -> Self {
        let mut found = Self::default();
        let mut look = |path: &Path, file: File| {
            match keeps_frame_pointers(&file) {
                Some(true) => found.with += 1,
                Some(false) => found.without.push(path.to_owned()),
                None => found.unknown += 1,
            }
            found.without.len() < most
        };
        match code {
            CodeOf::Command(word) => {
                if let Ok(program) = program_file(word) {
                    each_of_command(program, &mut look);
                }
            }
            CodeOf::Processes(pids) => each_of_processes(pids, &mut look),
            CodeOf::Everything => each_of_processes(&Proc::system().processes().unwrap_or_default(), &mut look),
        }
        found
    }
}

/// Calls `look` for a program and its libraries, until it says that it knows enough.
fn each_of_command(program: PathBuf, look: &mut dyn FnMut(&Path, File) -> bool) {
    let mut wanted = vec![interpreter_of(&program).unwrap_or(program)];
    let (mut seen, mut next) = (HashSet::new(), 0);
    while let Some(path) = wanted.get(next).cloned() {
        next += 1;
        let Ok(file) = plain_file::open(&path) else { continue };
        let names = file.try_clone().map(needed_by).unwrap_or_default();
        if !look(&path, file) {
            return;
        }
        let new = names.into_iter().filter(|name| seen.insert(name.clone()));
        wanted.extend(new.filter_map(|name| library(&name)));
        wanted.truncate(MOST_LIBRARIES);
    }
}

/// The same for what processes have mapped, each file once.
fn each_of_processes(pids: &[i32], look: &mut dyn FnMut(&Path, File) -> bool) {
    let proc = Proc::system();
    let mut seen = BTreeSet::new();
    for &pid in pids {
        for mapping in proc.maps(pid).unwrap_or_default() {
            let Some(mapped) = mapping.file().filter(|_| mapping.rights.execute) else { continue };
            if seen.contains(&(mapped.device, mapped.inode)) {
                continue;
            }
            let Ok(file) = proc.open_mapped(pid, &mapping) else { continue };
            seen.insert((mapped.device, mapped.inode));
            if !look(&mapped.path, file) || seen.len() >= MOST_FILES {
                return;
            }
        }
    }
}

/// The program that executes a script.
fn interpreter_of(script: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    plain_file::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let program = words.next()?;
    let path = PathBuf::from(OsStr::from_bytes(program));
    // What `env` looks for.
    match (path.file_name()? == "env", words.find(|word| !word.starts_with(b"-"))) {
        (true, Some(name)) => program_file(OsStr::from_bytes(name)).ok(),
        _ => Some(path),
    }
}

/// Where a library with such a name is.
fn library(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let asked = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default().into_vec();
    let asked = asked.split(|byte| b":;".contains(byte)).filter(|folder| !folder.is_empty());
    let usual = ["lib64", "usr/lib64", "lib", "usr/lib"].map(|folder| Path::new("/").join(folder));
    let multiarch = format!("/lib/{}-linux-gnu", std::env::consts::ARCH);
    let folders = asked.map(|folder| PathBuf::from(OsStr::from_bytes(folder))).chain([multiarch.into()]).chain(usual);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether the functions of a file keep a frame pointer; `None` where nothing tells.
fn keeps_frame_pointers(file: &File) -> Option<bool> {
    let (address, table) = table_of(file, ".eh_frame", MOST_TABLE_BYTES)?;
    let (kept, all) = count(address, &table);
    (all > 0).then_some(kept * 2 >= all)
}

/// How many functions of a table keep a frame pointer, and how many there are, of those that are long enough.
fn count(address: u64, table: &[u8]) -> (u64, u64) {
    let mut frames = EhFrame::new(table, NativeEndian);
    frames.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let (mut entries, mut context) = (frames.entries(&bases), UnwindContext::new());
    let (mut kept, mut all, mut seen) = (0, 0, 0);
    while let Ok(Some(entry)) = entries.next()
        && seen < MOST_FUNCTIONS
    {
        let CieOrFde::Fde(partial) = entry else { continue };
        seen += 1;
        // Before it is read at all.
        let common = table.get(partial.cie_offset().0..).and_then(|bytes| bytes.first_chunk());
        if common.is_none_or(|bytes| u32::from_ne_bytes(*bytes) > MOST_COMMON_BYTES) {
            continue;
        }
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
        if fde.len() < LEAST_BYTES {
            continue;
        }
        let Ok(mut rows) = fde.rows(&frames, &bases, &mut context) else { continue };
        all += 1;
        while let Ok(Some(row)) = rows.next_row() {
            if has_frame(row) {
                kept += 1;
                break;
            }
        }
    }
    (kept, all)
}

/// Whether there is a frame that the frame pointer leads to.
fn has_frame(row: &UnwindTableRow<usize>) -> bool {
    const RBP: Register = Register(6);
    const X29: Register = Register(29);
    match () {
        () if cfg!(target_arch = "x86_64") => {
            matches!(row.cfa(), CfaRule::RegisterAndOffset { register, .. } if *register == RBP)
        }
        () => matches!(row.register(X29), Some(RegisterRule::Offset(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    const SOURCE: &str = "#include <stdio.h>\n#include <unistd.h>\n\
        __attribute__((noinline)) int inner(int n) { char text[64]; snprintf(text, 64, \"%d\", n); puts(text); return n * 2; }\n\
        __attribute__((noinline)) int middle(int n) { int of = inner(n + 1); of += inner(of); return of + 1; }\n\
        int main(int count, char **words) { int of = middle(count); of += middle(of); if (words[1]) pause(); return of & 1; }\n";

    /// A program that was compiled in this way.
    fn compiled(folder: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
        let (source, program) = (folder.join("p.c"), folder.join(name));
        fs::write(&source, SOURCE).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-o"]).arg(&program).args(options).arg(&source).stderr(Stdio::null());
        compile.status().is_ok_and(|status| status.success()).then_some(program)
    }

    #[test]
    fn how_a_program_was_compiled_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let keeps = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"];
        let (Some(with), Some(without)) =
            (compiled(folder.path(), "with", &keeps), compiled(folder.path(), "without", &["-fomit-frame-pointer"]))
        else {
            return println!("skipped: needs cc");
        };
        let of = |path: &Path| keeps_frame_pointers(&File::open(path).unwrap());
        assert_eq!((of(&with), of(&without)), (Some(true), Some(false)));
        // The libraries of both are the same; each is named once, the program first.
        let command = |path: &Path, most| FramePointers::of(CodeOf::Command(path.as_os_str()), most);
        let all = |path: &Path| command(path, 100).without;
        let libraries = all(&with);
        assert!(command(&with, 100).with > 0);
        assert!(libraries.iter().all(|path| path.starts_with("/lib") || path.starts_with("/usr/lib")), "{libraries:?}");
        assert_eq!(all(&without), [vec![without.clone()], libraries].concat());
        assert_eq!(command(&without, 1).without.len(), 1);
        // A script is executed by another program.
        let script = folder.path().join("script");
        fs::write(&script, format!("#! {} -x\n", without.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(all(&script), all(&without));
        // One that runs.
        let mut runs = Command::new(&without).arg("stays").stdout(Stdio::null()).spawn().unwrap();
        let pids = [runs.id().cast_signed()];
        // It may not have executed its program yet.
        let look = |_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            FramePointers::of(CodeOf::Processes(&pids), 100).without
        };
        let found = (0..60_000).map(look).find(|found| found.contains(&without));
        runs.kill().unwrap();
        runs.wait().unwrap();
        assert_eq!(found.unwrap().iter().filter(|path| **path == without).count(), 1);
        assert_eq!(FramePointers::of(CodeOf::Processes(&pids), 100), FramePointers::default());
    }

    #[test]
    fn what_tells_nothing_is_called_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        fs::write(&text, "no program\n").unwrap();
        assert_eq!(keeps_frame_pointers(&File::open(&text).unwrap()), None);
        let none = FramePointers::of(CodeOf::Command(OsStr::new("no such program")), 3);
        assert_eq!(none, FramePointers::default());
        for bytes in [&[][..], &[0; 64], &[0xff; 64]] {
            assert_eq!(count(0x1000, bytes), (0, 0));
        }
    }

    /// What is common to functions is gone through for each of them: what is long says nothing, and costs nothing.
    #[test]
    fn a_table_that_is_made_to_cost_much_is_not_gone_through() {
        // Version 1, the augmentation, 1, -8, the return address in register 16; then instructions that do nothing.
        let table = |signals: usize, nothing: usize| {
            let augmentation = if signals > 0 { [&b"z"[..], &vec![b'S'; signals]].concat() } else { Vec::new() };
            let common = [&[0, 0, 0, 0, 1][..], &augmentation, &[0, 1, 0x78, 16], &vec![0; nothing]].concat();
            let mut table = (common.len() as u32).to_ne_bytes().to_vec();
            table.extend(common);
            for _ in 0..100_000 {
                let begin = table.len() as u32;
                table.extend(20_u32.to_ne_bytes());
                table.extend((begin + 4).to_ne_bytes());
                // Where it is, and how long.
                table.extend(0x1000_u64.to_ne_bytes());
                table.extend(64_u64.to_ne_bytes());
            }
            table
        };
        assert_eq!(count(0x1000, &table(0, 3)), (0, MOST_FUNCTIONS));
        assert_eq!(count(0x1000, &table(0, 1 << 20)), (0, 0));
        assert_eq!(count(0x1000, &table(1 << 20, 3)), (0, 0));
    }
}
