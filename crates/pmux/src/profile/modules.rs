//! Programs, libraries, and whatever else holds code.
//!
//! What it is: [`Module`] is a file as it was when it was mapped, the kernel, one of its modules, or code without a file. Read first:
//! [`ModuleKind`].
//!
//! **Invariant:** it opens no file: what is known is what the recording says.

use super::build_ids::BuildIds;
use super::names::{Name, Names};
use pmux_abi::record::BuildId;
use std::collections::HashMap;

number! {
    /// A module of [`Modules`].
    ModuleId, "Its place in [`Modules`]."
}

impl ModuleId {
    /// Where nothing is known to be mapped, in user mode.
    pub const UNKNOWN: Self = Self(0);
    /// The same in the kernel.
    pub const UNKNOWN_KERNEL: Self = Self(1);
    /// Whatever is in a guest.
    pub const GUEST: Self = Self(2);
    /// The kernel.
    pub const KERNEL: Self = Self(3);
}

/// What a module is, and so how its addresses count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ModuleKind {
    /// Nothing is known.
    Unknown,
    /// The kernel.
    Kernel,
    /// A module of the kernel.
    KernelModule,
    /// Code that the kernel made while it ran: a BPF program.
    KernelSymbol,
    /// A program or library.
    File,
    /// The kernel's own code in each process.
    Vdso,
    /// Code without a file, made by a process while it ran; its number is needed to find its list of names.
    Jit {
        /// The process.
        pid: i32,
    },
    /// Memory without a name.
    Memory,
    /// No code: a thread waits ([`super::WaitKind`]).
    Wait,
}

impl ModuleKind {
    /// Whether it belongs to the kernel.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::KernelModule | Self::KernelSymbol)
    }
}

/// Something that holds code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// What it is.
    pub kind: ModuleKind,
    /// Its path, or what stands for one.
    pub path: Name,
    /// What it is called in a table: the last part of the path, or a name in brackets.
    pub short: Name,
    /// What tells its build from all others, if the recording says so.
    pub build_id: Option<BuildId>,
    /// Where it begins; only of [`ModuleKind::KernelSymbol`] and [`ModuleKind::KernelModule`].
    pub start: u64,
    /// A process that had mapped it, if it is one's.
    pub pid: Option<i32>,
}

/// The modules of a recording.
#[derive(Debug)]
pub struct Modules {
    list: Vec<Module>,
    known: HashMap<(ModuleKind, Name, Option<BuildId>, u64), ModuleId>,
}

impl Modules {
    /// What is there in each recording: the constants of [`ModuleId`], in their order.
    pub(super) fn new(names: &mut Names) -> Self {
        let mut modules = Self { list: Vec::new(), known: HashMap::new() };
        for (kind, text) in [
            (ModuleKind::Unknown, "[unknown]"),
            (ModuleKind::Unknown, "[unknown] "),
            (ModuleKind::Unknown, "[guest]"),
            (ModuleKind::Kernel, "[kernel.kallsyms]"),
        ] {
            let short = names.intern(text.trim_end().as_bytes());
            let path = names.intern(text.as_bytes());
            modules.add(Module { kind, path, short, build_id: None, start: 0, pid: None });
        }
        modules
    }

    /// The number of a module, which is added if it is not known.
    pub(super) fn add(&mut self, module: Module) -> ModuleId {
        let next = ModuleId(self.list.len() as u32);
        let key = (module.kind, module.path, module.build_id, module.start);
        let id = *self.known.entry(key).or_insert(next);
        if id == next {
            self.list.push(module);
        }
        id
    }

    /// Takes in the build ids that stand beside the records. What was mapped with one keeps its own.
    pub(super) fn set_build_ids(&mut self, names: &Names, build_ids: &BuildIds) {
        for (place, module) in self.list.iter_mut().enumerate() {
            let id = match ModuleId(place as u32) {
                ModuleId::KERNEL => build_ids.kernel,
                _ => build_ids.of(names.get(module.path).as_bytes()),
            };
            module.build_id = module.build_id.or(id);
        }
    }

    /// The kernel's build id was told.
    pub(super) fn set_kernel_build_id(&mut self, build_id: BuildId) {
        if let Some(kernel) = self.list.get_mut(ModuleId::KERNEL.index()) {
            kernel.build_id.get_or_insert(build_id);
        }
    }

    /// A module.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn get(&self, id: ModuleId) -> &Module {
        &self.list[id.index()]
    }

    /// All modules, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ModuleId, &Module)> {
        self.list.iter().enumerate().map(|(index, module)| (ModuleId(index as u32), module))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Never: some are in each recording.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
