//! Where the names of a module come from.
//!
//! What it is: [`SymbolSource`], by the kind of module. Read first: [`SymbolSource::open`].
//!
//! **Invariant:** who asks the same again gets the same answer.

use crate::profile::{ModuleId, ModuleKind, Profile, WaitKind};
use crate::symbol::{FileCode, JitCode, KernelAnswers, KernelCode, Missing, NamedFunction, ResolvedFrame, VdsoCode};
use std::path::Path;
use std::sync::Arc;

/// Finds the kernel's names, the first time that it is called.
pub(super) type FindKernel<'k> = dyn Fn() -> Option<&'k KernelCode> + 'k;

pub(super) enum SymbolSource {
    File(Box<FileCode>),
    Kernel,
    /// The same, where answers are kept.
    KeptKernel(Box<KernelAnswers>),
    /// A module of the kernel, and where it was.
    KernelModule {
        name: String,
        start: u64,
    },
    Jit(JitCode),
    Vdso(VdsoCode),
    /// What a thread waits for.
    Wait,
    /// The whole module is one function.
    One(NamedFunction),
    None,
}

impl SymbolSource {
    /// Finds what a module's names come from.
    pub(super) fn open(profile: &Profile, id: ModuleId) -> Self {
        let module = profile.modules.get(id);
        let path = profile.names.get(module.path);
        match module.kind {
            ModuleKind::Kernel => {
                let kept = KernelAnswers::of(&profile.sources, profile.kernel_id());
                kept.map_or(Self::Kernel, |kept| Self::KeptKernel(Box::new(kept)))
            }
            ModuleKind::KernelModule => {
                Self::KernelModule { name: profile.names.get(module.short).to_owned(), start: module.start }
            }
            // Addresses that no record has told of are the kernel's own, if it knows them.
            ModuleKind::Unknown if id == ModuleId::UNKNOWN_KERNEL => Self::Kernel,
            ModuleKind::Unknown | ModuleKind::Memory => Self::None,
            ModuleKind::Wait => Self::Wait,
            ModuleKind::KernelSymbol => Self::One(NamedFunction { name: path.into(), start: module.start }),
            ModuleKind::Vdso => {
                let build_id = module.build_id.as_ref().map(|id| id.as_bytes());
                let found = VdsoCode::of_this_machine().filter(|code| match build_id {
                    Some(id) => code.is_build(id),
                    None => profile.kernel_id().is_known_to_be_this(),
                });
                found.map_or(Self::None, Self::Vdso)
            }
            ModuleKind::Jit { pid } => {
                let here = |path: &str| profile.sources.here(Path::new(path));
                let dump = profile.dumps.get(&pid).map(|path| here(profile.names.get(*path)));
                Self::Jit(JitCode::read(&here(path), dump.as_deref()))
            }
            ModuleKind::File => Self::File(Box::new(FileCode::new(&profile.sources, profile.recorded(module)))),
        }
    }

    pub(super) fn function(&mut self, kernel: &FindKernel<'_>, address: u64) -> Option<NamedFunction> {
        match self {
            Self::File(code) => code.function(address),
            Self::Kernel => kernel()?.function(address),
            Self::KeptKernel(kept) => kept.function(kernel, address),
            Self::KernelModule { name, start } => kernel()?.function_of_module(name, *start, address),
            Self::Jit(code) => code.function(address),
            Self::Vdso(code) => code.function(address),
            Self::Wait => WaitKind::at(address).map(|kind| NamedFunction { name: kind.name().into(), start: address }),
            Self::One(function) => Some(function.clone()),
            Self::None => None,
        }
    }

    /// The functions at an address, the innermost inlined one first, with their sources. Empty where nothing is known.
    pub(super) fn lines(&mut self, kernel: &FindKernel<'_>, address: u64) -> Arc<[ResolvedFrame]> {
        match self {
            Self::File(code) => code.lines(address),
            Self::Kernel => kernel().map(|kernel| kernel.lines(address)).unwrap_or_default(),
            Self::Jit(code) => code.lines(address),
            _ => Arc::default(),
        }
    }

    /// The file, where the module is one.
    pub(super) fn file(&mut self) -> Option<&mut FileCode> {
        if let Self::File(code) = self { Some(code) } else { None }
    }

    /// Why there are no names, as a sentence, if a caller asked for one and it could not be had.
    pub(super) fn complaint(&self, profile: &Profile, id: ModuleId) -> Option<String> {
        let Self::File(code) = self else { return None };
        let path = profile.names.get(profile.modules.get(id).path);
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let Some(missing) = code.missing() else { return code.remark.clone() };
        let why = match missing {
            Missing::Gone => "is not there".to_owned(),
            Missing::Changed => "has changed since it was recorded (its build id is another)".to_owned(),
            Missing::Unreadable(why) => format!("can't be read ({why})"),
        };
        Some(format!("{path} {why}: its functions have no names"))
    }
}
