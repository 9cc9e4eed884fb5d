//! Code by its file, long after it ran: the file may be gone or another one by now.
//!
//! What it is: [`FileCode`] is a program or library of a recording, [`VdsoCode`] the kernel's own code in each process. Read first:
//! [`FileCode::function`].
//!
//! **Invariant:** what is kept on disk, and what is not, never makes another answer.

use super::debug::files::candidates;
use super::debuginfod;
use super::elf::{Elf, Kind};
use super::kept::{FileAnswers, NamedFunction};
use super::module::LoadedModule;
use super::names;
use super::place::ResolvedFrame;
use super::sources::{Located, Missing, Recorded, Sources, copies, is_same, locate};
use super::symbolizer::own_vdso;
use hashbrown::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A program or library. It is opened only when a caller asks what is not kept on disk.
pub(crate) struct FileCode {
    sources: Sources,
    path: PathBuf,
    pid: Option<i32>,
    until: Option<SystemTime>,
    build_id: Vec<u8>,
    /// Once it was opened.
    module: Option<Result<Box<LoadedModule>, Missing>>,
    /// What should be said although it is there.
    pub(crate) remark: Option<String>,
    kept: FileAnswers,
    /// Names of functions, by where these begin: each is made readable once.
    names: HashMap<u64, Arc<str>>,
}

impl FileCode {
    pub(crate) fn new(sources: &Sources, recorded: Recorded<'_>) -> Self {
        let Recorded { path, build_id, pid, until } = recorded;
        let build_id = build_id.unwrap_or_default().to_vec();
        let kept = match &sources.cache {
            Some(cache) if !build_id.is_empty() => FileAnswers::load(cache, &sources.key(&build_id)),
            _ => FileAnswers::default(),
        };
        let (sources, path, names) = (sources.clone(), path.to_owned(), HashMap::new());
        Self { sources, path, pid, until, build_id, module: None, remark: None, kept, names }
    }

    /// The file, if it is there.
    fn module(&mut self) -> Option<&mut LoadedModule> {
        let Self { sources, path, pid, until, build_id, module, remark, kept, .. } = self;
        let module = module.get_or_insert_with(|| {
            let build_id = (!build_id.is_empty()).then_some(&build_id[..]);
            let found = locate(sources, Recorded { path, build_id, pid: *pid, until: *until })?;
            if let (None, Some(what)) = (build_id, changed_since(&found, *until)) {
                *remark = Some(format!(
                    "{} {what} after the recording, which has no build id of it: its functions may have wrong names",
                    path.display()
                ));
            }
            let folder = sources.folder();
            let fetch = |elf: &Elf| match debuginfod::fetch(sources, &elf.build_id, debuginfod::DEBUGINFO) {
                Ok(found) => found,
                Err(why) => {
                    *remark = Some(why);
                    None
                }
            };
            let module =
                LoadedModule::read_or_fetch(found.file, &found.path, &folder, fetch).map_err(Missing::Unreadable)?;
            kept.asked(candidates(&module.elf, &found.path, &folder));
            kept.asked(build_id.map(|id| copies(sources, id)).unwrap_or_default());
            Ok(Box::new(module))
        });
        module.as_deref_mut().ok()
    }

    /// Why there are no names, if a caller asked for one and it could not be had.
    pub(crate) fn missing(&self) -> Option<&Missing> {
        self.module.as_ref()?.as_ref().err()
    }

    /// The function at a place in the file.
    pub(crate) fn function(&mut self, offset: u64) -> Option<NamedFunction> {
        if let Some(known) = self.kept.function(offset) {
            return known.cloned();
        }
        let elf = &self.module()?.elf;
        let address = elf.bias(offset, offset, true).map(|bias| offset.wrapping_sub(bias));
        let found = address.and_then(|address| {
            let symbol = elf.symbols.at(address)?;
            Some((offset.wrapping_sub(address - symbol.address), elf.symbols.name(symbol).to_vec()))
        });
        let named = found.map(|(start, raw)| {
            let name = self.names.entry(start).or_insert_with(|| names::short(&raw).into());
            NamedFunction { start, name: Arc::clone(name) }
        });
        self.kept.set_function(offset, named.clone());
        named
    }

    /// The variable that is so many bytes behind a place in the file, in code, where the file is mapped as a whole; and how many bytes
    /// behind its beginning that is.
    pub(crate) fn variable(&mut self, offset: u64, distance: u64) -> Option<(String, u64)> {
        let elf = &self.module()?.elf;
        let address = offset.wrapping_sub(elf.bias(offset, offset, true)?).checked_add(distance)?;
        let symbol = elf.symbols.at(address).filter(|symbol| symbol.kind == Kind::Data && symbol.size > 0)?;
        Some((names::short(elf.symbols.name(symbol)), address - symbol.address))
    }

    /// Where the function at a place in the file stands: the file, and its address and size as the file counts. `None` where the symbol
    /// table doesn't know it, or has no size of it.
    pub(crate) fn range(&mut self, offset: u64) -> Option<CodeRange> {
        let LoadedModule { elf, path, .. } = self.module()?;
        let address = offset.wrapping_sub(elf.bias(offset, offset, true)?);
        let symbol = elf.symbols.at(address).filter(|symbol| symbol.size > 0)?;
        Some(CodeRange { path: PathBuf::from(&**path), start: symbol.address, bytes: symbol.size })
    }

    /// Finds what [`FileCode::lines`] answers for many places, on as many CPUs as there are.
    pub(crate) fn find_lines(&mut self, offsets: impl Iterator<Item = u64>) {
        let mut unknown: Vec<u64> = offsets.filter(|offset| self.kept.lines(*offset).is_none()).collect();
        crate::order::sort(&mut unknown);
        unknown.dedup();
        if unknown.is_empty() || !self.kept.has_room_for_lines(unknown.len()) {
            // The file is not opened for what is known, and nothing is found that would not be kept.
            return;
        }
        let Some(module) = self.module() else { return };
        let address = |offset: u64| Some(offset.wrapping_sub(module.elf.bias(offset, offset, true)?));
        let places: (Vec<u64>, Vec<u64>) = unknown.iter().filter_map(|&at| Some((at, address(at)?))).unzip();
        for (offset, frames) in places.0.into_iter().zip(module.frames_of_each(&places.1)) {
            self.keep_lines(offset, frames);
        }
    }

    /// The functions at a place in the file, the innermost inlined one first, as debugging information has them.
    pub(crate) fn lines(&mut self, offset: u64) -> Arc<[ResolvedFrame]> {
        if let Some(known) = self.kept.lines(offset) {
            return Arc::clone(known);
        }
        let Some(module) = self.module() else { return Arc::default() };
        let address = module.elf.bias(offset, offset, true).map(|bias| offset.wrapping_sub(bias));
        let frames = address.map(|address| module.frames(address)).unwrap_or_default();
        self.keep_lines(offset, frames)
    }

    fn keep_lines(&mut self, offset: u64, mut frames: Vec<ResolvedFrame>) -> Arc<[ResolvedFrame]> {
        // Places are told apart by their lines, not by where in a function they are.
        frames.iter_mut().for_each(|frame| frame.offset = None);
        let frames: Arc<[ResolvedFrame]> = frames.into();
        self.kept.set_lines(offset, Arc::clone(&frames));
        frames
    }
}

impl Drop for FileCode {
    fn drop(&mut self) {
        if let Some(cache) = self.sources.cache.as_deref().filter(|_| !self.build_id.is_empty()) {
            self.kept.save(cache, &self.sources.key(&self.build_id));
        }
    }
}

/// What became of a file after a recording, if anything: it was written, or perhaps only put in its place.
fn changed_since(found: &Located, until: Option<SystemTime>) -> Option<&'static str> {
    let (data, until) = (found.file.metadata().ok()?, until?);
    let is_later = |time: std::io::Result<SystemTime>| time.is_ok_and(|time| time > until);
    if is_later(data.modified()) || is_later(data.created()) {
        return Some("was written");
    }
    // Installing keeps the time of the contents, and sets that of the inode; so does a hard link.
    let since_1970 = Duration::new(u64::try_from(data.ctime()).ok()?, u32::try_from(data.ctime_nsec()).ok()?);
    let changed = UNIX_EPOCH.checked_add(since_1970)?;
    (changed > until).then_some("was renamed, linked or given other attributes, and perhaps exchanged,")
}

/// Where the code of a function is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeRange {
    /// The file, as it is here.
    pub path: PathBuf,
    /// The address of its first byte, as the file counts.
    pub start: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// The kernel's own code in each process.
pub(crate) struct VdsoCode(Elf);

impl VdsoCode {
    pub(crate) fn of_this_machine() -> Option<Self> {
        own_vdso().map(Self)
    }

    pub(crate) fn is_build(&self, recorded: &[u8]) -> bool {
        is_same(recorded, &self.0.build_id)
    }

    /// The function that is so many bytes from the beginning.
    pub(crate) fn function(&self, address: u64) -> Option<NamedFunction> {
        let symbol = self.0.symbols.at(address)?;
        Some(NamedFunction { start: symbol.address, name: names::short(self.0.symbols.name(symbol)).into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    #[test]
    fn many_places_have_the_lines_that_each_has() {
        let sources = Sources::default();
        let me = std::env::current_exe().unwrap();
        let code = || FileCode::new(&sources, Recorded { path: &me, build_id: None, pid: None, until: None });
        // Places in this very code, in no order: enough for several threads.
        let begin = code().module().unwrap().elf.segments.iter().find(|segment| segment.execute).unwrap().offset;
        let places: Vec<u64> = (0..6_000).map(|place| begin + place * 7_919 % 600_000).collect();
        let mut many = code();
        many.find_lines(places.iter().copied());
        let mut one = code();
        let lines = |code: &mut FileCode| places.iter().map(|&place| code.lines(place)).collect::<Vec<_>>();
        assert!(places.iter().all(|place| many.kept.lines(*place).is_some()));
        let found = lines(&mut many);
        assert!(found.iter().flat_map(|lines| &lines[..]).filter(|line| line.line.is_some()).count() > 1_000);
        assert_eq!(found, lines(&mut one));
    }

    #[test]
    fn another_build_is_not_used() {
        let sources = Sources::default();
        let me = std::env::current_exe().unwrap();
        let own = pmux_linux::build_id::of_file(&File::open(&me).unwrap());
        let missing = |path: &Path, id: Option<&[u8]>| {
            let mut code = FileCode::new(&sources, Recorded { path, build_id: id, pid: None, until: None });
            code.function(0);
            code.missing().cloned()
        };
        assert_eq!(missing(&me, own.as_deref()), None);
        let other = [0x5a; 20];
        assert_eq!(missing(&me, Some(&other)), Some(Missing::Changed));
        assert_eq!(missing(Path::new("/nonexistent/x"), None), Some(Missing::Gone));
        assert!(matches!(missing(Path::new("/dev/null"), None), Some(Missing::Unreadable(_))));
    }
}
