//! What is known about files, processes and the kernel, kept between questions.
//!
//! What it is: [`Symbolizer`], which answers both kinds: where is what was typed, and what stands at this address. Read
//! first: [`Symbolizer::place`]; the other way is in `find/mod.rs`.
//!
//! **Invariant:** an answer that was given stays the same until [`Symbolizer::forget`]; what is kept is bounded.

use super::debug::files::FOLDER;
use super::elf::{Elf, Symbol};
use super::image::ProcessImage;
use super::kernel::{self, Kernel};
use super::module::LoadedModule;
use super::names;
use super::place::{ResolvedAddress, ResolvedFrame};
use crate::error::Error;
use pmux_linux::procfs::{MappedFile, Mapping, Proc};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// How many places are kept: programs touch an address from a handful.
const PLACES: usize = 1 << 16;
/// No kernel has a larger one.
const LARGEST_VDSO_BYTES: u64 = 1 << 20;

/// Finds addresses for names, and names for addresses.
///
/// The first question about a file reads it, which takes milliseconds for a large program, and much longer where it has
/// debugging information by the gigabyte; later ones are fast. It needs the right to read the files, and
/// `/proc/PID/maps` of the processes.
#[derive(Debug)]
pub struct Symbolizer {
    pub(super) proc: Proc,
    folder: PathBuf,
    /// By the file as it is mapped. An error is kept too.
    files: HashMap<MappedFile, Result<usize, String>>,
    pub(super) modules: Vec<LoadedModule>,
    images: HashMap<i32, ProcessImage>,
    places: HashMap<(i32, u64), Arc<ResolvedAddress>>,
    kernel: Option<Result<Kernel, String>>,
    /// What looks like a name that was not found, by the name and the module: it is asked for at each stop of a program.
    pub(super) near: HashMap<(String, usize), Vec<Symbol>>,
    /// The kernel's own code in each process.
    vdso: Option<Option<Elf>>,
}

impl Default for Symbolizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbolizer {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_debug_folder(FOLDER)
    }

    /// One that looks for separate debugging information below another folder than `/usr/lib/debug`.
    #[must_use]
    pub fn with_debug_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            proc: Proc::system(),
            folder: folder.into(),
            files: HashMap::new(),
            modules: Vec::new(),
            images: HashMap::new(),
            places: HashMap::new(),
            kernel: None,
            near: HashMap::new(),
            vdso: None,
        }
    }

    /// Keeps what is mapped into a process, so that its places are known after its end.
    ///
    /// # Errors
    /// As [`ProcessImage::read`].
    pub fn remember(&mut self, pid: i32) -> Result<(), Error> {
        let image = ProcessImage::read(pid)?;
        // Opened now: later they may be gone.
        let files: Vec<Mapping> = image.files().map(|(_, mapping)| mapping.clone()).collect();
        for mapping in files {
            let _ = self.module(pid, &mapping);
        }
        self.images.insert(pid, image);
        Ok(())
    }

    /// Takes in a mapping that was made in a process, as a record of the kernel told: so the places of processes are
    /// known that have ended before they could be looked at.
    ///
    /// A process of which nothing is remembered begins with what is mapped now, or with nothing if it has ended.
    pub fn note(&mut self, pid: i32, mapping: Mapping) {
        let now = || ProcessImage::read(pid).unwrap_or_else(|_| ProcessImage::empty(pid));
        self.images.entry(pid).or_insert_with(now).add(mapping);
    }

    /// Forgets what was mapped into a process: it has executed another program, or its number is another's now.
    pub fn forget(&mut self, pid: i32) {
        self.images.remove(&pid);
        self.places.retain(|(of, _), _| *of != pid);
    }

    /// What stands at an address of a process, or of the kernel whatever the process.
    ///
    /// `pid` may be any thread of the process, but is remembered under its own number. Never fails: what can't be found
    /// out is left open.
    pub fn place(&mut self, pid: i32, address: u64) -> Arc<ResolvedAddress> {
        let key = (if address >= kernel::LOWEST { 0 } else { pid }, address);
        if let Some(place) = self.places.get(&key) {
            return Arc::clone(place);
        }
        let place = if address >= kernel::LOWEST { Some(self.kernel_place(address)) } else { self.look(pid, address) };
        // Where nothing is mapped, something may be later.
        let Some(place) = place.map(Arc::new) else { return Arc::new(ResolvedAddress::unknown(address)) };
        if self.places.len() >= PLACES {
            self.places.clear();
        }
        self.places.insert(key, Arc::clone(&place));
        place
    }

    /// What stands before a return address: the call. For all addresses of a call chain but the first.
    pub fn place_of_return(&mut self, pid: i32, address: u64) -> Arc<ResolvedAddress> {
        let call = self.place(pid, address.saturating_sub(1));
        if call.address == address {
            return call;
        }
        let mut place = (*call).clone();
        place.module_address = place.module_address.wrapping_add(address.wrapping_sub(place.address));
        place.address = address;
        if let Some(offset) = place.frames.last_mut().and_then(|frame| frame.offset.as_mut()) {
            *offset += 1;
        }
        Arc::new(place)
    }

    /// Whether a call of a process can return to an address, as far as the process is known: a chain that is followed by frame
    /// pointers through code that has none leads anywhere.
    #[must_use]
    pub fn may_return_to(&self, pid: i32, address: u64) -> bool {
        let call = address.saturating_sub(1);
        let is_code = |image: &ProcessImage| image.mapping(call).is_some_and(|mapping| mapping.rights.execute);
        address >= kernel::LOWEST || self.images.get(&pid).is_none_or(is_code)
    }

    /// What stands at an address of a process; `None` where nothing is mapped.
    fn look(&mut self, pid: i32, address: u64) -> Option<ResolvedAddress> {
        let mut mapping = self.images.get(&pid).and_then(|image| image.mapping(address)).cloned();
        if mapping.is_none()
            && let Ok(image) = ProcessImage::read(pid)
        {
            mapping = image.mapping(address).cloned();
            self.images.insert(pid, image);
        }
        let (mapping, image) = (mapping?, self.images.get(&pid)?);
        let mut place = ResolvedAddress::unknown(address);
        if image.special("[vdso]").is_some_and(|vdso| vdso.holds(address)) {
            place.module = Some("[vdso]".into());
            place.module_address = address - mapping.start;
            self.name_in_vdso(&mut place);
            return Some(place);
        }
        let Some(file) = mapping.file() else { return Some(place) };
        place.module = Some(file.path.to_string_lossy().into());
        place.module_address = (address - mapping.start).wrapping_add(mapping.offset);
        let Some(code) = image.code_of(&mapping).cloned() else { return Some(place) };
        let Ok(index) = self.module(pid, &code) else { return Some(place) };
        let module = &mut self.modules[index];
        let Some(bias) = module.elf.bias(code.start, code.offset, true) else { return Some(place) };
        place.module_address = address.wrapping_sub(bias);
        let frames = module.frames(place.module_address);
        if !frames.is_empty() {
            place.frames = frames;
        }
        Some(place)
    }

    fn kernel_place(&mut self, address: u64) -> ResolvedAddress {
        let mut place = ResolvedAddress::unknown(address);
        place.module = Some("[kernel]".into());
        let Ok(kernel) = self.kernel() else { return place };
        if let Some(symbol) = kernel.at(address) {
            place.frames[0].function = Some(names::readable(symbol.name.as_bytes()).into());
            place.frames[0].offset = Some(address - symbol.address);
            if let Some(module) = symbol.module {
                place.module = Some(format!("[{module}]").into());
            }
        }
        place
    }

    fn name_in_vdso(&mut self, place: &mut ResolvedAddress) {
        if let Some(elf) = self.vdso.get_or_insert_with(own_vdso)
            && let Some(symbol) = elf.symbols.at(place.module_address)
        {
            let function = Some(names::brief(elf.symbols.name(symbol)).into());
            let offset = Some(place.module_address - symbol.address);
            place.frames[0] = ResolvedFrame { function, offset, file: None, line: None };
        }
    }

    /// The program or library of a mapping.
    ///
    /// # Errors
    /// Why it can't be read, as half a sentence.
    pub(super) fn module(&mut self, pid: i32, mapping: &Mapping) -> Result<usize, String> {
        let Some(file) = mapping.file() else { return Err("it is no file".to_owned()) };
        if let Some(known) = self.files.get(file) {
            return known.clone();
        }
        let opened = self.proc.open_mapped(pid, mapping).map_err(|error| error.to_string());
        let read = opened.and_then(|opened| LoadedModule::read(opened, &file.path, &self.folder));
        let known = read.map(|module| {
            self.modules.push(module);
            self.modules.len() - 1
        });
        self.files.insert(file.clone(), known.clone());
        known
    }

    /// The kernel's names.
    ///
    /// # Errors
    /// Why there are none, as a sentence.
    pub(super) fn kernel(&mut self) -> Result<&Kernel, String> {
        let kernel = self.kernel.get_or_insert_with(|| Kernel::read(&self.proc).map_err(|error| error.to_string()));
        kernel.as_ref().map_err(Clone::clone)
    }
}

/// The kernel's own code in each process. It is the same in all of this machine, and this one can always be read.
pub(super) fn own_vdso() -> Option<Elf> {
    Elf::parse(&vdso_bytes()?[..]).ok()
}

/// The same, as the file that it is.
pub(super) fn vdso_bytes() -> Option<Vec<u8>> {
    let own = ProcessImage::read(std::process::id().cast_signed()).ok()?;
    let vdso = own.special("[vdso]")?;
    let bytes = usize::try_from((vdso.end - vdso.start).min(LARGEST_VDSO_BYTES)).ok()?;
    Proc::system().memory(own.pid(), vdso.start, bytes).ok()
}
