//! Code by its file, long after it ran: the file may be gone or another one by now.
//!
//! What it is: [`FileCode`] is a program or library of a recording, [`KernelCode`] the kernel, [`JitCode`] what a program has told of
//! the code that it made. Read first: [`FileCode::function`].
//!
//! **Invariant:** what is kept on disk, and what is not, never makes another answer.

use super::debug::files::candidates;
use super::elf::Elf;
use super::image::ProcessImage;
use super::kept::{Kept, Named};
use super::kernel::Kernel;
use super::module::Module;
use super::names;
use super::place::Frame;
use super::sources::{Missing, Sources, copies, copy_of_perf, locate};
use super::symbolizer::own_vdso;
use hashbrown::HashMap;
use pmux_linux::machine::Machine;
use pmux_linux::procfs::Proc;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No list of a program's own code is larger.
const LARGEST_LIST_BYTES: u64 = 1 << 30;

/// A program or library. It is opened only when somebody asks what is not kept on disk.
pub(crate) struct FileCode {
    sources: Sources,
    path: PathBuf,
    build_id: Vec<u8>,
    /// Once it was opened.
    module: Option<Result<Box<Module>, Missing>>,
    kept: Kept,
    /// Names of functions, by where these begin: each is made readable once.
    names: HashMap<u64, Arc<str>>,
}

impl FileCode {
    /// Of a file as it was recorded.
    pub(crate) fn new(sources: &Sources, path: &Path, build_id: Option<&[u8]>) -> Self {
        let build_id = build_id.unwrap_or_default().to_vec();
        let kept = match &sources.cache {
            Some(cache) if !build_id.is_empty() => Kept::load(cache, &build_id),
            _ => Kept::default(),
        };
        Self { sources: sources.clone(), path: path.to_owned(), build_id, module: None, kept, names: HashMap::new() }
    }

    /// The file, if it is there.
    fn module(&mut self) -> Option<&mut Module> {
        let Self { sources, path, build_id, module, kept, .. } = self;
        let module = module.get_or_insert_with(|| {
            let build_id = (!build_id.is_empty()).then_some(&build_id[..]);
            let found = locate(sources, path, build_id)?;
            let folder = sources.folder();
            let module = Module::read(found.file, &found.path, &folder).map_err(Missing::Unreadable)?;
            kept.asked(candidates(&module.elf, &found.path, &folder));
            kept.asked(build_id.map(|id| copies(sources, id)).unwrap_or_default());
            Ok(Box::new(module))
        });
        module.as_deref_mut().ok()
    }

    /// Why there are no names, if somebody asked for one and it could not be had.
    pub(crate) fn missing(&self) -> Option<&Missing> {
        self.module.as_ref()?.as_ref().err()
    }

    /// The function at a place in the file.
    pub(crate) fn function(&mut self, offset: u64) -> Option<Named> {
        if let Some(known) = self.kept.function(offset) {
            return known.cloned();
        }
        let elf = &self.module()?.elf;
        let address = elf.bias(offset, offset, true).map(|bias| offset.wrapping_sub(bias));
        let symbol = address.and_then(|address| Some((address, elf.symbols.at(address)?)));
        let found = symbol.map(|(address, symbol)| {
            let start = offset.wrapping_sub(address - symbol.address);
            let raw = elf.symbols.name(symbol).to_vec();
            (start, raw)
        });
        let named = found.map(|(start, raw)| {
            let name = self.names.entry(start).or_insert_with(|| names::short(&raw).into());
            Named { start, name: Arc::clone(name) }
        });
        self.kept.set_function(offset, named.clone());
        named
    }

    /// The functions at a place in the file, the innermost inlined one first, as debugging information has them.
    pub(crate) fn lines(&mut self, offset: u64) -> Arc<[Frame]> {
        if let Some(known) = self.kept.lines(offset) {
            return Arc::clone(known);
        }
        let Some(module) = self.module() else { return Arc::default() };
        let address = module.elf.bias(offset, offset, true).map(|bias| offset.wrapping_sub(bias));
        let mut frames = address.map(|address| module.frames(address)).unwrap_or_default();
        // Places are told apart by their lines, not by where in a function they are.
        frames.iter_mut().for_each(|frame| frame.offset = None);
        let frames: Arc<[Frame]> = frames.into();
        self.kept.set_lines(offset, Arc::clone(&frames));
        frames
    }
}

impl Drop for FileCode {
    fn drop(&mut self) {
        if let Some(cache) = self.sources.cache.as_deref().filter(|_| !self.build_id.is_empty()) {
            self.kept.save(cache, &self.build_id);
        }
    }
}

/// The kernel's own code in each process.
pub(crate) struct VdsoCode(Elf);

impl VdsoCode {
    /// This machine's.
    pub(crate) fn of_this_machine() -> Option<Self> {
        own_vdso(&Proc::system(), &ProcessImage::read(std::process::id().cast_signed()).ok()?).map(Self)
    }

    /// Where the function begins that is so many bytes from the beginning.
    pub(crate) fn start(&self, address: u64) -> Option<u64> {
        self.0.symbols.at(address).map(|symbol| symbol.address)
    }

    /// Its name.
    pub(crate) fn name(&self, address: u64) -> Option<String> {
        self.0.symbols.at(address).map(|symbol| names::short(self.0.symbols.name(symbol)))
    }
}

/// The kernel of a recording.
pub(crate) struct KernelCode {
    kernel: Kernel,
    /// What is added to a recorded address: a kernel begins somewhere else each time it starts.
    shift: u64,
}

impl KernelCode {
    /// Finds the names of a kernel. `release` and `build_id` are what was recorded of it, `text` is where its symbol `_text` was.
    pub(crate) fn find(release: Option<&str>, build_id: Option<&[u8]>, text: Option<u64>) -> Result<Self, String> {
        let machine = Machine::this();
        let is_this = match (build_id, machine.kernel_build_id()) {
            (Some(wanted), Some(here)) => wanted.starts_with(&here),
            _ => release.is_none() || machine.kernel_release().as_deref() == release,
        };
        let kernel = if is_this {
            let kernel = Kernel::read(&Proc::system()).map_err(|error| error.to_string())?;
            if kernel.hidden.is_some() {
                return Err(
                    "this kernel hides its addresses: `sysctl kernel.kptr_restrict=0`, or root, shows them".to_owned()
                );
            }
            kernel
        } else {
            let copy = build_id.and_then(|id| copy_of_perf(id, "kallsyms")).and_then(|path| std::fs::read(path).ok());
            let release = release.unwrap_or("another kernel");
            let kernel = copy.map(Kernel::parse).filter(|kernel| kernel.hidden.is_none());
            kernel.ok_or_else(|| format!("it is not the one that runs here, but {release}"))?
        };
        let here = kernel.address_of_text();
        let shift = match (here, text.filter(|&text| text != 0)) {
            (Some(here), Some(recorded)) => here.wrapping_sub(recorded),
            _ => 0,
        };
        Ok(Self { kernel, shift })
    }

    /// Where the function at an address begins.
    pub(crate) fn start(&self, address: u64) -> Option<u64> {
        let symbol = self.kernel.at(address.wrapping_add(self.shift))?;
        Some(symbol.address.wrapping_sub(self.shift))
    }

    /// Its name.
    pub(crate) fn name(&self, address: u64) -> Option<String> {
        let symbol = self.kernel.at(address.wrapping_add(self.shift))?;
        Some(names::short(symbol.name.as_bytes()))
    }
}

/// What a program has told of the code that it made.
#[derive(Default)]
pub(crate) struct JitCode {
    /// Beginning, end and name, by the beginning.
    functions: Vec<(u64, u64, String)>,
}

impl JitCode {
    /// Reads a `perf-PID.map`: a function a line, beginning and length in hexadecimal, and the name.
    pub(crate) fn read(path: &Path) -> Result<Self, Missing> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_file() => {}
            _ => return Err(Missing::Gone),
        }
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| Missing::Unreadable(error.to_string()))?;
        file.take(LARGEST_LIST_BYTES).read_to_end(&mut text).map_err(|error| Missing::Unreadable(error.to_string()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Self {
        let line = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (start, length) = (number()?, number()?);
            Some((start, start.checked_add(length)?, words.next()?.trim().to_owned()))
        };
        let mut functions: Vec<_> = text.split(|&byte| byte == b'\n').filter_map(line).collect();
        // Code that was made anew at the same place stands later in the list: it is the one that is found.
        functions.sort_by_key(|(start, ..)| *start);
        Self { functions }
    }

    fn at(&self, address: u64) -> Option<&(u64, u64, String)> {
        let behind = self.functions.partition_point(|(start, ..)| *start <= address);
        self.functions.get(behind.checked_sub(1)?).filter(|(_, end, _)| address < *end)
    }

    /// Where the function at an address begins.
    pub(crate) fn start(&self, address: u64) -> Option<u64> {
        self.at(address).map(|(start, ..)| *start)
    }

    /// Its name.
    pub(crate) fn name(&self, address: u64) -> Option<String> {
        self.at(address).map(|(.., name)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lists_of_made_code() {
        let code =
            JitCode::parse(b"2000 10 late\n1000 20 Lfoo;bar baz\nnonsense\n0x1000 30 again\nffffffffffffffff 2 x\n");
        assert_eq!((code.name(0x1025).as_deref(), code.start(0x1025)), (Some("again"), Some(0x1000)));
        assert_eq!(code.name(0x2000).as_deref(), Some("late"));
        assert_eq!((code.name(0x2010), code.start(0xfff)), (None, None));
    }

    #[test]
    fn another_build_is_not_used() {
        let sources = Sources::default();
        let me = std::env::current_exe().unwrap();
        let own = pmux_linux::build_id::of_file(&File::open(&me).unwrap());
        let missing = |path: &Path, id: Option<&[u8]>| {
            let mut code = FileCode::new(&sources, path, id);
            code.function(0);
            code.missing().cloned()
        };
        assert_eq!(missing(&me, own.as_deref()), None);
        let other = [0x5a; 20];
        assert_eq!(missing(&me, Some(&other)), Some(Missing::Changed));
        assert_eq!(missing(Path::new("/nonexistent/x"), None), Some(Missing::Gone));
        assert!(matches!(missing(Path::new("/dev/null"), None), Some(Missing::Unreadable(_))));
    }

    #[test]
    fn a_kernel_from_elsewhere_has_no_names() {
        let other = KernelCode::find(Some("0.0.1-none"), Some(&[1; 20]), None).err().unwrap();
        assert!(other.contains("0.0.1-none"), "{other}");
    }
}
