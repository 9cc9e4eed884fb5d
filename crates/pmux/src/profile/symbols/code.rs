//! Where the names of a module come from.
//!
//! What it is: [`Code`], by the kind of module. Read first: [`Code::open`].
//!
//! **Invariant:** who asks the same again gets the same answer.

use crate::profile::{ModuleId, ModuleKind, Profile};
use crate::symbol::{FileCode, Frame, JitCode, KernelCode, Missing, Named, VdsoCode};
use std::path::Path;
use std::sync::Arc;

/// Where the names of a module come from.
pub(super) enum Code {
    File(Box<FileCode>),
    Kernel,
    Jit(JitCode),
    Vdso(VdsoCode),
    /// The whole module is one function.
    One(Named),
    None,
}

impl Code {
    /// Finds what a module's names come from.
    pub(super) fn open(profile: &Profile, id: ModuleId) -> Self {
        let module = profile.modules.get(id);
        let path = profile.names.get(module.path);
        match module.kind {
            ModuleKind::Kernel | ModuleKind::KernelModule => Self::Kernel,
            // Addresses that nobody has told of are the kernel's own, if it knows them.
            ModuleKind::Unknown if id == ModuleId::UNKNOWN_KERNEL => Self::Kernel,
            ModuleKind::Unknown | ModuleKind::Memory => Self::None,
            ModuleKind::KernelSymbol => Self::One(Named { name: path.into(), start: module.start }),
            ModuleKind::Vdso => VdsoCode::of_this_machine().map_or(Self::None, Self::Vdso),
            ModuleKind::Jit { .. } => JitCode::read(Path::new(path)).map_or(Self::None, Self::Jit),
            ModuleKind::File => {
                let plain = Path::new(path.strip_suffix(" (deleted)").unwrap_or(path));
                let build_id = module.build_id;
                let build_id = build_id.as_ref().map(|id| id.as_bytes());
                Self::File(Box::new(FileCode::new(&profile.sources, plain, build_id)))
            }
        }
    }

    /// The function at an address.
    pub(super) fn function(&mut self, kernel: Option<&KernelCode>, address: u64) -> Option<Named> {
        let named = |start: Option<u64>, name: Option<String>| Some(Named { start: start?, name: name?.into() });
        match self {
            Self::File(code) => code.function(address),
            Self::Kernel => named(kernel?.start(address), kernel?.name(address)),
            Self::Jit(code) => named(code.start(address), code.name(address)),
            Self::Vdso(code) => named(code.start(address), code.name(address)),
            Self::One(function) => Some(function.clone()),
            Self::None => None,
        }
    }

    /// The functions at an address, the innermost inlined one first, with their sources. Empty where nothing is known.
    pub(super) fn lines(&mut self, address: u64) -> Arc<[Frame]> {
        match self {
            Self::File(code) => code.lines(address),
            _ => Arc::default(),
        }
    }

    /// Why there are no names, as a sentence, if somebody asked for one and it could not be had.
    pub(super) fn complaint(&self, profile: &Profile, id: ModuleId) -> Option<String> {
        let Self::File(code) = self else { return None };
        let path = profile.names.get(profile.modules.get(id).path);
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        Some(match code.missing()? {
            Missing::Gone => format!("{path} is not there: its functions have no names"),
            Missing::Changed => {
                format!(
                    "{path} has changed since it was recorded (its build id is another): its functions have no names"
                )
            }
            Missing::Unreadable(why) => format!("{path} can't be read ({why}): its functions have no names"),
        })
    }
}
