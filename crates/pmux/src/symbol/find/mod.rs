//! From what was typed to addresses.
//!
//! What it is: [`Symbolizer::find`], which looks in the program first, then in its libraries, then in the kernel. Read
//! first: [`Finding`].
//!
//! **Invariant:** a name that means several things is never taken for one of them; a name that nothing has is unknown
//! only once everything is mapped that the program is linked with.

mod error;
mod kernel;
mod line;
mod symbol;

pub use error::{Candidate, FindError, Others, Stripped};

use super::image::ProcessImage;
use super::kernel as names_of_kernel;
use super::module::{LoadedModule, is_called};
use super::symbolizer::Symbolizer;
use super::wanted::{AddressForm, AddressSpec, KERNEL};
use crate::event::Access;
use crate::text::printable;
use pmux_linux::procfs::Proc;
use std::sync::Arc;

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub enum SearchScope<'i> {
    /// In a process, and for names that it doesn't have in the kernel.
    Process(&'i ProcessImage),
    /// In the kernel only.
    Kernel,
}

/// What came of a search.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It is here: usually in one place, a line of inlined code in several.
    Found(Vec<FoundAddress>),
    /// It isn't here, but something may be mapped later that has it. What to say if nothing comes.
    NotYet(FindError),
}

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundAddress {
    /// Its address in the process, or in the kernel.
    pub address: u64,
    /// How many bytes: as many as were asked for, or as many as the variable has, which may be more than one
    /// breakpoint can watch, and at any address. For executions what the kernel asks for.
    pub len: u64,
    /// Which accesses: those that were asked for, or what is usual for this.
    pub access: Access,
    /// What is there.
    pub kind: FoundKind,
    /// What to call it: `writer::COUNTER`, `table+0x8`, `writer.rs:120`, `0x7ffd0010`.
    pub name: String,
    /// The path of its file, `[kernel]` or a kernel module in brackets; `None` for a plain address outside of files.
    pub module: Option<Arc<str>>,
    /// What the user should know, as sentences without a capital letter and a full stop.
    pub notes: Vec<String>,
}

/// What is at an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FoundKind {
    /// Instructions.
    Code,
    /// Data.
    Data,
    /// Nothing that is known.
    Unknown,
}

impl FoundKind {
    fn of(code: bool) -> Self {
        if code { Self::Code } else { Self::Data }
    }

    /// What is watched where nothing else is said.
    fn usual_access(self) -> Access {
        match self {
            Self::Code => Access::EXECUTE,
            Self::Data | Self::Unknown => Access::WRITE,
        }
    }
}

/// A file whose code is mapped: which, and where.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    module: usize,
    /// What to add to the file's addresses.
    bias: u64,
    /// Whether it is the program, and no library.
    is_program: bool,
}

impl Symbolizer {
    /// Looks for what was typed.
    ///
    /// Where no access is given, data are watched for writes and code for executions. A symbol without a module is
    /// looked for in the program, then in its libraries, then in the kernel.
    ///
    /// # Errors
    /// [`FindError`], whose text is meant for the user. [`Finding::NotYet`] is none, as long as the process may map
    /// more.
    pub fn find(&mut self, wanted: &AddressSpec, scope: SearchScope<'_>) -> Result<Finding, FindError> {
        match (&wanted.what, scope) {
            (AddressForm::Address(address), scope) => Ok(Finding::Found(vec![self.plain(*address, wanted, scope)?])),
            (AddressForm::Symbol { module: Some(module), name, offset }, _) if self.is_kernel(module, scope) => {
                let module = (module != KERNEL).then_some(module.as_str());
                self.in_kernel(name, module, *offset, wanted)
            }
            (AddressForm::InModule { module, address }, _) if module == KERNEL => {
                Ok(Finding::Found(vec![self.plain(*address, wanted, SearchScope::Kernel)?]))
            }
            (AddressForm::Symbol { module: None, name, offset }, SearchScope::Kernel) => {
                self.in_kernel(name, None, *offset, wanted)
            }
            (AddressForm::Line { module: Some(module), .. }, _) if module == KERNEL => {
                Err(FindError::NoLines { place: "the kernel".to_owned() })
            }
            (_, SearchScope::Kernel) => Err(FindError::Other(format!(
                "'{}' is in a program, and each process has its own addresses: name a command, or a process with -p",
                printable(&wanted.to_string())
            ))),
            (AddressForm::InModule { module, address }, SearchScope::Process(image)) => {
                self.in_module(module, *address, wanted, image)
            }
            (AddressForm::Symbol { module, name, offset }, SearchScope::Process(image)) => {
                self.symbol(module.as_deref(), name, *offset, wanted, image)
            }
            (AddressForm::Line { module, file, line }, SearchScope::Process(image)) => {
                self.line(module.as_deref(), file, *line, wanted, image)
            }
        }
    }

    /// Whether a module is the kernel or one of its own.
    fn is_kernel(&mut self, module: &str, scope: SearchScope<'_>) -> bool {
        module == KERNEL
            || module.starts_with('[')
            || matches!(scope, SearchScope::Kernel) && self.kernel().is_ok_and(|kernel| kernel.has_module(module))
    }

    fn plain(&mut self, address: u64, wanted: &AddressSpec, scope: SearchScope<'_>) -> Result<FoundAddress, FindError> {
        let mut notes = Vec::new();
        let mut module = None;
        let kind = if address >= names_of_kernel::LOWEST {
            module = Some("[kernel]".into());
            match self.kernel().ok().and_then(|kernel| kernel.at(address).map(|symbol| symbol.kind)) {
                Some(kind) => FoundKind::of(symbol::is_code(kind)),
                None => FoundKind::Unknown,
            }
        } else if let SearchScope::Process(image) = scope {
            match image.mapping(address) {
                Some(mapping) => {
                    module = mapping.file().map(|file| file.path.to_string_lossy().into());
                    FoundKind::of(mapping.rights.execute)
                }
                None => {
                    let place = image.program_name();
                    let in_file = self.in_program_file(address, image);
                    let lowest = Proc::system().lowest_mapping();
                    if address < lowest {
                        let hint = in_file.map(|target| format!("\n  {}", error::file_address(&target)));
                        return Err(FindError::Other(format!(
                            "nothing is mapped at {address:#x} of {}, and nothing will be: addresses begin at {lowest:#x} \
                             (vm.mmap_min_addr){}",
                            printable(&place),
                            hint.unwrap_or_default()
                        )));
                    }
                    let hint = in_file.map(|target| format!("; {}", error::file_address(&target))).unwrap_or_default();
                    notes.push(format!("nothing is mapped at {address:#x} of {place} yet{hint}"));
                    FoundKind::Unknown
                }
            }
        } else {
            notes.push(format!("{address:#x} is another place in each process"));
            FoundKind::Unknown
        };
        let name = format!("{address:#x}");
        let (access, len) = measure(kind, wanted, &name)?;
        Ok(FoundAddress { address, len, access, kind, name, module, notes })
    }

    /// What to write for an address that the file of the program has, and that the program has somewhere else.
    fn in_program_file(&mut self, address: u64, image: &ProcessImage) -> Option<String> {
        let mapped = self.mapped(image).ok()?;
        let program = mapped.iter().find(|one| one.is_program && one.bias != 0)?;
        let module = &self.modules[program.module];
        module.elf.segments.iter().any(|segment| segment.holds(address)).then(|| module.target(address))
    }

    /// An address as the file counts.
    fn in_module(
        &mut self,
        called: &str,
        address: u64,
        wanted: &AddressSpec,
        image: &ProcessImage,
    ) -> Result<Finding, FindError> {
        let mapped = self.mapped(image)?;
        let Some(found) = mapped.iter().find(|one| self.modules[one.module].is_called(called)) else {
            return Ok(Finding::NotYet(self.unknown_module(called, "", &mapped, image)));
        };
        let module = &self.modules[found.module];
        if !module.elf.segments.iter().any(|segment| segment.holds(address)) {
            return Err(FindError::Other(format!(
                "{} has no address {address:#x}: its own addresses are meant, as nm and objdump show them",
                printable(module.name())
            )));
        }
        let kind = FoundKind::of(module.elf.is_code(address));
        let name = format!("{}:{address:#x}", module.name());
        let (access, len) = measure(kind, wanted, &name)?;
        let address = address.wrapping_add(found.bias);
        let (module, notes) = (Some(Arc::clone(&module.path)), Vec::new());
        Ok(Finding::Found(vec![FoundAddress { address, len, access, kind, name, module, notes }]))
    }

    /// The files whose code is mapped into a process, the program first. Libraries that can't be read are left out.
    ///
    /// # Errors
    /// Where the program can't be read.
    fn mapped(&mut self, image: &ProcessImage) -> Result<Vec<Mapped>, FindError> {
        let mut found = Vec::new();
        for (file, mapping) in image.files() {
            let is_program = image.is_program(file);
            match self.module(image.pid(), mapping) {
                Ok(module) => {
                    if let Some(bias) = self.modules[module].elf.bias(mapping.start, mapping.offset, true) {
                        found.push(Mapped { module, bias, is_program });
                    }
                }
                Err(reason) if is_program => {
                    let (path, reason) = (printable(&file.path.to_string_lossy()), printable(&reason));
                    return Err(FindError::Other(format!("the symbols of {path} can't be read: {reason}")));
                }
                Err(_) => {}
            }
        }
        Ok(found)
    }

    /// Whether everything is mapped that the files in a process say they are linked with.
    fn is_complete(&self, mapped: &[Mapped], image: &ProcessImage) -> bool {
        let modules = || mapped.iter().map(|one| &self.modules[one.module]);
        // The loader of musl is its C library as well.
        let musl = modules().any(|module| module.name().starts_with("ld-musl-"));
        let is_there = |name: &str| {
            modules().any(|module| {
                module.name() == name || module.elf.own_name.as_deref() == Some(name) || *module.path == *name
            }) || musl && (name.starts_with("libc.musl-") || name == "libc.so")
        };
        modules().flat_map(|module| &module.elf.needed).all(|needed| is_there(needed) || image.has_file(needed))
    }

    fn unknown_module(&self, called: &str, behind: &str, mapped: &[Mapped], image: &ProcessImage) -> FindError {
        let mut names: Vec<String> = mapped.iter().map(|one| self.modules[one.module].name().to_owned()).collect();
        let near = crate::event::nearest::nearest(called, names.iter().cloned());
        // Those that are alike first, the others as they are.
        crate::order::sort_by_key(&mut names, |name| near.iter().position(|other| other == name).unwrap_or(usize::MAX));
        FindError::UnknownModule {
            module: called.to_owned(),
            place: image.program_name(),
            mapped: names,
            // Variables have no names like those of libraries.
            letter: not_an_access(behind).filter(|_| !called.contains('.')),
        }
    }

    /// Names of what was looked through, for people.
    fn described(&self, mapped: &[Mapped], image: &ProcessImage) -> String {
        match mapped {
            [one] => self.modules[one.module].name().to_owned(),
            _ => format!("{} and its libraries", image.program_name()),
        }
    }
}

/// The access, and how many bytes, of what has no symbol that says its size.
fn measure(kind: FoundKind, wanted: &AddressSpec, name: &str) -> Result<(Access, u64), FindError> {
    let access = wanted.access.unwrap_or(kind.usual_access());
    match wanted.len {
        Some(_) if access == Access::EXECUTE => Err(error::code_length(name)),
        len => Ok((access, len.unwrap_or(access.default_len()))),
    }
}

/// Whether a path that a process has mapped is meant by a name. For [`ProcessImage`]s without a look at files.
impl ProcessImage {
    /// Whether a program or library of this name is mapped.
    #[must_use]
    pub fn has_module(&self, called: &str) -> bool {
        self.files().any(|(file, _)| is_called(&file.path.to_string_lossy(), called))
    }
}

/// The letter that is none of an access, where a text is so short that it was perhaps meant as one.
fn not_an_access(text: &str) -> Option<char> {
    let is_short = text.len() <= 4 && text.chars().all(|c| c.is_ascii_alphabetic());
    let mut letters = text.chars().filter(|c| !matches!(c, 'r' | 'w' | 'x'));
    letters.next().filter(|_| is_short && letters.next().is_none())
}

impl LoadedModule {
    /// What to write for an address of this file.
    fn target(&self, address: u64) -> String {
        format!("{}:{address:#x}", self.name())
    }
}
