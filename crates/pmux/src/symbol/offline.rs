//! Code by its file, long after it ran: the file may be gone or another one by now.
//!
//! What it is: [`FileCode`] is a program or library of a recording, [`KernelCode`] the kernel, [`JitCode`] what a program has told of
//! the code that it made. Read first: [`FileCode::open`].
//!
//! **Invariant:** a file whose build id is another than the recorded one is never used; that is said.

use super::elf::Elf;
use super::image::ProcessImage;
use super::kernel::Kernel;
use super::module::Module;
use super::names;
use super::place::Frame;
use super::sources::{Missing, Sources, copy_of_perf, locate};
use super::symbolizer::own_vdso;
use pmux_linux::machine::Machine;
use pmux_linux::procfs::Proc;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No list of a program's own code is larger.
const LARGEST_LIST_BYTES: u64 = 1 << 30;

/// A program or library.
pub(crate) struct FileCode(Module);

impl FileCode {
    /// Finds a file as it was recorded.
    pub(crate) fn open(sources: &Sources, path: &Path, build_id: Option<&[u8]>) -> Result<Self, Missing> {
        let found = locate(sources, path, build_id)?;
        Module::read(found.file, &found.path, &sources.folder()).map(Self).map_err(Missing::Unreadable)
    }

    /// The address that the file's own tables have for a place in it.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.0.elf.bias(offset, offset, true).map(|bias| offset.wrapping_sub(bias))
    }

    /// Where in the file the function at a place begins.
    pub(crate) fn start(&self, offset: u64) -> Option<u64> {
        let address = self.address_of(offset)?;
        let symbol = self.0.elf.symbols.at(address)?;
        Some(offset.wrapping_sub(address - symbol.address))
    }

    /// The name of the function at a place in the file.
    pub(crate) fn name(&self, offset: u64) -> Option<String> {
        let symbol = self.0.elf.symbols.at(self.address_of(offset)?)?;
        Some(names::short(self.0.elf.symbols.name(symbol)))
    }

    /// The functions at a place in the file, the innermost inlined one first, as debugging information has them.
    pub(crate) fn frames(&mut self, offset: u64) -> Vec<Frame> {
        self.address_of(offset).map(|address| self.0.frames(address)).unwrap_or_default()
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
        assert!(FileCode::open(&sources, &me, own.as_deref()).is_ok());
        let other = [0x5a; 20];
        assert_eq!(FileCode::open(&sources, &me, Some(&other)).err(), Some(Missing::Changed));
        assert_eq!(FileCode::open(&sources, Path::new("/nonexistent/x"), None).err(), Some(Missing::Gone));
        assert!(matches!(FileCode::open(&sources, Path::new("/dev/null"), None).err(), Some(Missing::Unreadable(_))));
    }

    #[test]
    fn a_kernel_from_elsewhere_has_no_names() {
        let other = KernelCode::find(Some("0.0.1-none"), Some(&[1; 20]), None).err().unwrap();
        assert!(other.contains("0.0.1-none"), "{other}");
    }
}
