//! The kernel of a recording: this one, or another one that is described somewhere.
//!
//! What it is: [`KernelCode`] has names by the kernel's own list, or by its image with debugging information, which knows lines too. Read
//! first: [`KernelCode::find`].
//!
//! The kernel makes its list anew each time that it is read (5 MB of text). Where `perf record` has kept one of this build, functions
//! of the kernel itself are looked up there; what was added while it ran, modules and programs, is not.
//!
//! **Invariant:** a list or an image of another build is never used; that is said.

use super::debug::files::FOLDER;
use super::kept::NamedFunction;
use super::kernel::Kernel;
use super::module::LoadedModule;
use super::names;
use super::place::ResolvedFrame;
use super::sources::{Missing, Sources, copies, copy_of_perf, is_same, open};
use pmux_linux::machine::Machine;
use pmux_linux::procfs::Proc;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelId<'a> {
    pub(crate) release: Option<&'a str>,
    pub(crate) build_id: Option<&'a [u8]>,
    /// A symbol of it, and where that was.
    pub(crate) text: Option<(&'a str, u64)>,
}

impl KernelId<'_> {
    /// Whether the recording says so much of it that it can be told from others, and it is the one that runs here.
    pub(crate) fn is_known_to_be_this(&self) -> bool {
        (self.build_id.is_some() || self.release.is_some()) && self.is_this()
    }

    /// Whether it is the one that runs here, or may be: of some recordings nothing is known.
    pub(crate) fn is_this(&self) -> bool {
        let machine = Machine::this();
        match (self.build_id, machine.kernel_build_id()) {
            (Some(wanted), Some(here)) => is_same(wanted, &here),
            _ => self.release.is_none() || machine.kernel_release().as_deref() == self.release,
        }
    }
}

pub(crate) struct KernelCode {
    names: KernelNames,
    /// What is added to a recorded address: a kernel begins somewhere else each time it starts.
    shift: u64,
    /// Whether that is known, by a symbol that both have.
    is_placed: bool,
    /// Where its modules are now, if it runs here.
    modules: Vec<(String, u64)>,
    /// The list of this kernel, where `names` is a copy of one that was made earlier.
    current: Option<Current>,
    /// What should be said although there are names.
    pub(crate) remark: Option<String>,
}

/// The list of the kernel that runs here, read when it is needed.
struct Current {
    /// As [`KernelId::text`].
    text: (String, u64),
    list: OnceLock<Option<(Kernel, u64)>>,
}

impl Current {
    fn of(id: KernelId<'_>) -> Option<Self> {
        let (name, recorded) = id.text.filter(|(_, recorded)| *recorded != 0)?;
        Some(Self { text: (name.to_owned(), recorded), list: OnceLock::new() })
    }

    /// The list, and what is added to a recorded address. `None` where the kernel hides its addresses.
    fn list(&self) -> Option<&(Kernel, u64)> {
        let read = || {
            let kernel = Kernel::read(&Proc::system()).ok().filter(|kernel| kernel.hidden.is_none())?;
            let shift = kernel.address_of(&self.text.0)?.wrapping_sub(self.text.1);
            Some((kernel, shift))
        };
        self.list.get_or_init(read).as_ref()
    }
}

enum KernelNames {
    Listed(Kernel),
    Image(Box<Mutex<LoadedModule>>),
}

impl KernelCode {
    /// Finds the names of a kernel.
    ///
    /// # Errors
    /// Why there are none, as half a sentence.
    pub(crate) fn find(sources: &Sources, id: KernelId<'_>) -> Result<Self, String> {
        let (mut remark, mut current) = (None, None);
        let asked = sources.vmlinux.as_deref().map(|path| image(path, id.build_id).map_err(|why| (path, why)));
        let names = match asked {
            Some(Ok(image)) => image,
            Some(Err((path, why))) => {
                let path = path.display();
                remark = Some(match why {
                    Missing::Gone => format!("{path} is not there"),
                    Missing::Changed => {
                        format!("{path} is another build than the kernel that was recorded, and not used")
                    }
                    Missing::Unreadable(why) => format!("{path} can't be used: {why}"),
                });
                elsewhere(sources, id)?
            }
            None => match kept_of_this(id) {
                Some((kernel, list)) => {
                    current = Some(list);
                    KernelNames::Listed(kernel)
                }
                None => elsewhere(sources, id)?,
            },
        };
        let address = |name: &str| match &names {
            KernelNames::Listed(kernel) => kernel.address_of(name),
            KernelNames::Image(image) => image.lock().ok().and_then(|image| {
                let symbols = &image.elf.symbols;
                symbols.iter().find(|symbol| symbols.name(symbol) == name.as_bytes()).map(|symbol| symbol.address)
            }),
        };
        let text = id.text.filter(|(_, recorded)| *recorded != 0);
        let shift = text.and_then(|(name, recorded)| Some(address(name)?.wrapping_sub(recorded)));
        if matches!(names, KernelNames::Listed(_)) && id.is_this() && !id.is_known_to_be_this() {
            const UNKNOWN: &str = "the recording does not say which kernel it was made on: the kernel's functions have the names of this \
                                   one, which may be wrong; `-k FILE` names another one's image (vmlinux)";
            remark = Some(remark.map_or(UNKNOWN.to_owned(), |other: String| format!("{other}; {UNKNOWN}")));
        }
        let modules = if id.is_this() { Machine::this().modules() } else { Vec::new() };
        let modules = modules.into_iter().map(|module| (module.name, module.start)).collect();
        Ok(Self { names, shift: shift.unwrap_or(0), is_placed: shift.is_some(), modules, current, remark })
    }

    pub(crate) fn function(&self, address: u64) -> Option<NamedFunction> {
        self.at(address, self.shift)
    }

    /// Whether the function at an address is the same each time that this build runs.
    pub(crate) fn is_always_there(&self, address: u64) -> bool {
        let is_inside = |kernel: &Kernel| kernel.is_inside(address.wrapping_add(self.shift));
        self.is_placed && matches!(&self.names, KernelNames::Listed(kernel) if is_inside(kernel))
    }

    /// The function at an address of a module, which was loaded at `start`.
    pub(crate) fn function_of_module(&self, name: &str, start: u64, address: u64) -> Option<NamedFunction> {
        let here = self.modules.iter().find(|(known, _)| known == name.trim_matches(['[', ']']));
        // A list that was kept beside a recording has its modules where they were.
        let shift = here.map_or(self.shift, |(_, here)| here.wrapping_sub(start));
        match here.and(self.current.as_ref()) {
            Some(current) => listed(&current.list()?.0, address, shift),
            None => self.at(address, shift),
        }
    }

    fn at(&self, address: u64, shift: u64) -> Option<NamedFunction> {
        let here = address.wrapping_add(shift);
        match (&self.names, &self.current) {
            (KernelNames::Listed(kernel), Some(current)) if !kernel.is_inside(here) => {
                let (kernel, shift) = current.list()?;
                listed(kernel, address, *shift)
            }
            (KernelNames::Listed(kernel), _) => listed(kernel, address, shift),
            (KernelNames::Image(image), _) => {
                let image = image.lock().ok()?;
                let symbol = image.elf.symbols.at(here)?;
                Some(named(symbol.address.wrapping_sub(shift), image.elf.symbols.name(symbol)))
            }
        }
    }

    /// The functions at an address, the innermost inlined one first, with their sources. Empty where no image tells.
    pub(crate) fn lines(&self, address: u64) -> Arc<[ResolvedFrame]> {
        let KernelNames::Image(image) = &self.names else { return Arc::default() };
        let Ok(mut image) = image.lock() else { return Arc::default() };
        let mut frames = image.frames(address.wrapping_add(self.shift));
        frames.iter_mut().for_each(|frame| frame.offset = None);
        frames.into()
    }
}

fn listed(kernel: &Kernel, address: u64, shift: u64) -> Option<NamedFunction> {
    let symbol = kernel.at(address.wrapping_add(shift))?;
    Some(named(symbol.address.wrapping_sub(shift), symbol.name.as_bytes()))
}

fn named(start: u64, raw: &[u8]) -> NamedFunction {
    NamedFunction { start, name: names::short(raw).into() }
}

fn image(path: &Path, build_id: Option<&[u8]>) -> Result<KernelNames, Missing> {
    let found = open(path, build_id)?;
    let module = LoadedModule::read(found.file, &found.path, Path::new(FOLDER)).map_err(Missing::Unreadable)?;
    if module.elf.symbols.iter().len() == 0 {
        return Err(Missing::Unreadable("it has no symbols".to_owned()));
    }
    Ok(KernelNames::Image(Box::new(Mutex::new(module))))
}

/// The names of a kernel where the user has not said where they are.
fn elsewhere(sources: &Sources, id: KernelId<'_>) -> Result<KernelNames, String> {
    let why = if id.is_this() {
        let kernel = Kernel::read(&Proc::system()).map_err(|error| error.to_string())?;
        if kernel.hidden.is_none() {
            return Ok(KernelNames::Listed(kernel));
        }
        "this kernel hides its addresses: `sysctl kernel.kptr_restrict=0`, or root, shows them; `-k FILE` names its image".to_owned()
    } else {
        let release = id.release.unwrap_or("another kernel");
        format!("it is not the one that runs here, but {release}; `-k FILE` names its image (vmlinux)")
    };
    // By its name alone it can't be told from another build.
    let Some(build_id) = id.build_id else { return Err(why) };
    if let Some(kernel) = kept(build_id) {
        return Ok(KernelNames::Listed(kernel));
    }
    images(sources, id.release, build_id).iter().find_map(|path| image(path, Some(build_id)).ok()).ok_or(why)
}

/// A list of this kernel that perf has kept, where it can be told how far the kernel has moved since.
fn kept_of_this(id: KernelId<'_>) -> Option<(Kernel, Current)> {
    let build_id = id.build_id.filter(|_| id.is_this())?;
    let current = Current::of(id)?;
    let kernel = kept(build_id)?;
    kernel.address_of(&current.text.0)?;
    Some((kernel, current))
}

/// A list of a kernel that perf has kept.
fn kept(build_id: &[u8]) -> Option<Kernel> {
    /// No list is larger.
    const LARGEST_BYTES: u64 = 256 << 20;
    let path = copy_of_perf(build_id, "kallsyms")?;
    // Neither a pipe nor a device is opened.
    std::fs::metadata(&path).ok().filter(|found| found.is_file() && found.len() <= LARGEST_BYTES)?;
    Some(Kernel::parse(std::fs::read(path).ok()?)).filter(|kernel| kernel.hidden.is_none())
}

/// Where distributions put the image of a kernel with its debugging information.
fn images(sources: &Sources, release: Option<&str>, build_id: &[u8]) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = copy_of_perf(build_id, "vmlinux").into_iter().collect();
    places.extend(copies(sources, build_id));
    // A release that is a path leads anywhere.
    for release in release.into_iter().filter(|release| !release.contains('/')) {
        let named = [
            format!("/usr/lib/debug/boot/vmlinux-{release}"),
            format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
            format!("/lib/modules/{release}/build/vmlinux"),
            format!("/lib/modules/{release}/vmlinux"),
            format!("/boot/vmlinux-{release}"),
        ];
        places.extend(named.iter().map(|path| sources.here(Path::new(path))));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_from_elsewhere_has_no_names() {
        let id = KernelId { release: Some("0.0.1-none"), build_id: Some(&[1; 20]), text: None };
        let other = KernelCode::find(&Sources::default(), id).err().unwrap();
        assert!(other.contains("0.0.1-none") && other.contains("vmlinux"), "{other}");
    }

    #[test]
    fn an_unknown_kernel_gets_no_names_without_a_word() {
        let id = KernelId { release: None, build_id: None, text: None };
        assert!(id.is_this() && !id.is_known_to_be_this());
        // Where this kernel hides its addresses there are none at all, and that is said.
        let said = KernelCode::find(&Sources::default(), id).map_or_else(Some, |code| code.remark);
        assert!(said.as_ref().is_some_and(|said| said.contains("-k FILE")), "{said:?}");
        let release = Machine::this().kernel_release();
        let own = KernelId { release: release.as_deref(), ..id };
        assert_eq!(KernelCode::find(&Sources::default(), own).ok().and_then(|code| code.remark), None);
    }

    #[test]
    fn a_kept_list_has_the_functions_of_the_kernel_itself_and_the_present_one_the_others() {
        let (machine, present) = (Machine::this(), Kernel::read(&Proc::system()));
        let present = present.ok().filter(|kernel| kernel.hidden.is_none());
        let (Some(present), Some(text)) = (present, machine.kernel_text()) else {
            println!("skipped: needs the kernel's addresses");
            return;
        };
        // As it was when the kernel began elsewhere, and with names that show where they are from.
        let (moved, recorded) = (0x60_0000, 0xffff_ffff_9000_0000);
        let first = present.address_of(&text.name).unwrap();
        let mut all: Vec<_> = (0..2000).map(|at| first + 977 * at).filter_map(|at| present.at(at)).collect();
        all.dedup();
        let mark = format!("{:x} T {}\n", first + moved, text.name);
        let lines = all.iter().map(|symbol| format!("{:x} t kept_{}\n", symbol.address + moved, symbol.name));
        let kept = Kernel::parse([mark].into_iter().chain(lines).collect::<String>().into_bytes());
        let id = KernelId { release: None, build_id: None, text: Some((&text.name, recorded)) };
        let kernel = KernelCode {
            names: KernelNames::Listed(kept),
            shift: (first + moved).wrapping_sub(recorded),
            is_placed: true,
            modules: Vec::new(),
            current: Current::of(id),
            remark: None,
        };
        let name = |symbol: &super::super::kernel::KernelSymbol<'_>| {
            let found = kernel.function(symbol.address - first + recorded).unwrap();
            (found.start, found.name.to_string())
        };
        let inside = &all[all.len() / 2];
        let (start, from_kept) = name(inside);
        assert!(start == inside.address - first + recorded && from_kept.starts_with("kept_"), "{from_kept}");
        let behind = present.at(all.last().unwrap().address + 0x10_0000).unwrap();
        assert_eq!(name(&behind), (behind.address - first + recorded, behind.name.to_owned()));
    }

    #[test]
    fn an_image_is_used_where_its_symbol_says_that_it_is() {
        // Any program will do: it is its symbols that count.
        let Some((me, own)) = crate::symbol::sources::tests::own_build() else { return };
        let sources = Sources { vmlinux: Some(me.clone()), ..Sources::default() };
        let Ok(KernelNames::Image(image)) = image(&me, None) else { panic!("{me:?}") };
        let symbols = &image.lock().unwrap().elf.symbols;
        let main = symbols.iter().find(|symbol| symbols.name(symbol) == b"main").unwrap().address;
        let recorded = 0xffff_ffff_8100_0000;
        let id = |build_id| KernelId { release: Some("x"), build_id, text: Some(("main", recorded)) };
        let kernel = KernelCode::find(&sources, id(Some(&own))).unwrap();
        assert_eq!(kernel.function(recorded + 1).unwrap(), NamedFunction { start: recorded, name: "main".into() });
        assert_eq!((kernel.remark.as_deref(), main != 0), (None, true));
        assert!(KernelCode::find(&sources, id(Some(&[7; 20]))).is_err());
    }
}
