//! What functions the frames of a recording are.
//!
//! What it is: [`Symbols`] looks each distinct frame up once, all together on all CPUs ([`Symbols::resolve_all`]) or when it is asked for
//! ([`Symbols::function_of`]). Read first: [`Function`].
//!
//! **Invariant:** names come from the very files that were recorded. Where these are not to be had frames stay addresses, and
//! [`Symbols::notes`] says why.

use super::{Frame, FrameId, Module, ModuleId, ModuleKind, Profile};
use crate::symbol::{FileCode, JitCode, KernelCode, Missing, VdsoCode};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function of [`Symbols`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionId(u32);

impl FunctionId {
    /// Its place in [`Symbols::functions`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A function, or an address of which nothing is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name: readable, without parameters; empty where it is not known.
    pub name: Box<str>,
    /// The program that it is in.
    pub module: ModuleId,
    /// Where it begins, as the module counts; the address itself where no name is known.
    pub start: u64,
}

/// A function that was found.
struct Named {
    name: String,
    start: u64,
}

/// What one look-up came to.
#[derive(Clone, Copy)]
struct Known {
    function: u32,
    offset: u32,
}

/// Where the names of a module come from.
enum Code {
    File(Box<FileCode>),
    Kernel,
    Jit(JitCode),
    Vdso(VdsoCode),
    /// The whole module is one function.
    One(Named),
    None,
}

impl Code {
    /// Where the function at an address begins.
    fn start(&self, kernel: Option<&KernelCode>, address: u64) -> Option<u64> {
        match self {
            Self::File(code) => code.start(address),
            Self::Kernel => kernel?.start(address),
            Self::Jit(code) => code.start(address),
            Self::Vdso(code) => code.start(address),
            Self::One(function) => Some(function.start),
            Self::None => None,
        }
    }

    /// What the function at an address is called.
    fn name(&self, kernel: Option<&KernelCode>, address: u64) -> Option<String> {
        match self {
            Self::File(code) => code.name(address),
            Self::Kernel => kernel?.name(address),
            Self::Jit(code) => code.name(address),
            Self::Vdso(code) => code.name(address),
            Self::One(function) => Some(function.name.clone()),
            Self::None => None,
        }
    }
}

/// The functions of a recording.
pub struct Symbols {
    functions: Vec<Function>,
    by_start: HashMap<(ModuleId, u64, bool), u32>,
    by_frame: Vec<Option<Known>>,
    /// By module; `None` until it is needed.
    codes: Vec<Option<Code>>,
    kernel: Option<Result<KernelCode, String>>,
    notes: Vec<String>,
}

impl Symbols {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self {
            functions: Vec::new(),
            by_start: HashMap::new(),
            by_frame: vec![None; profile.stacks.frames().len()],
            codes: (0..profile.modules.len()).map(|_| None).collect(),
            kernel: None,
            notes: Vec::new(),
        }
    }

    /// All functions that were found.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// A function by its number.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// What could not be found out, in sentences.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Looks all frames up that were not looked up before, on as many CPUs as there are.
    pub fn resolve_all(&mut self, profile: &Profile) {
        let frames = profile.stacks.frames();
        self.by_frame.resize(frames.len(), None);
        let mut wanted: Vec<(ModuleId, Vec<usize>)> = Vec::new();
        let mut place: HashMap<ModuleId, usize> = HashMap::new();
        for (index, frame) in frames.iter().enumerate().filter(|(index, _)| self.by_frame[*index].is_none()) {
            let at = *place.entry(frame.module).or_insert_with(|| {
                wanted.push((frame.module, Vec::new()));
                wanted.len() - 1
            });
            wanted[at].1.push(index);
        }
        // What takes longest comes first.
        wanted.sort_by_key(|(_, frames)| std::cmp::Reverse(frames.len()));
        self.codes.resize_with(profile.modules.len(), || None);
        let codes: Vec<_> = wanted.iter().map(|(module, _)| self.codes[module.index()].take()).collect();
        if wanted.iter().any(|(module, _)| needs_kernel(profile.modules.get(*module))) {
            self.find_kernel(profile);
        }
        let kernel = self.kernel.as_ref().and_then(|kernel| kernel.as_ref().ok());
        type Done = (Code, Vec<Found>, Option<String>);
        let jobs: Vec<Mutex<(Option<Code>, Option<Done>)>> =
            codes.into_iter().map(|code| Mutex::new((code, None))).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            // Each job is taken by one thread: the counter alone says which.
            while let Some((job, (module, indices))) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(at).zip(wanted.get(at))
            } {
                let Ok(mut job) = job.lock() else { continue };
                let (code, note) = match job.0.take() {
                    Some(code) => (code, None),
                    None => open(profile, *module),
                };
                let found = look_up(&code, kernel, frames, indices);
                job.1 = Some((code, found, note));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(wanted.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        for (job, (module, indices)) in jobs.into_iter().zip(&wanted) {
            let Ok((_, Some((code, found, note)))) = job.into_inner() else { continue };
            self.codes[module.index()] = Some(code);
            self.notes.extend(note);
            self.take(*module, frames, indices, found);
        }
        self.notes.sort();
    }

    /// Gives the frames their functions.
    fn take(&mut self, module: ModuleId, frames: &[Frame], indices: &[usize], found: Vec<Found>) {
        let mut names: Vec<Option<String>> = Vec::new();
        for (&index, found) in indices.iter().zip(found) {
            let (start, is_known) = match &found {
                Found::Nothing => (frames[index].address, false),
                Found::First(named) => (named.start, true),
                Found::Again(start) => (*start, true),
            };
            if let Found::First(named) = found {
                names.push(Some(named.name));
            }
            let functions = &mut self.functions;
            let function = *self.by_start.entry((module, start, is_known)).or_insert_with(|| {
                let name =
                    if is_known { names.last_mut().and_then(Option::take).unwrap_or_default() } else { String::new() };
                functions.push(Function { name: name.into(), module, start });
                functions.len() as u32 - 1
            });
            let offset = frames[index].address.wrapping_sub(start).min(u64::from(u32::MAX)) as u32;
            self.by_frame[index] = Some(Known { function, offset });
        }
    }

    fn find_kernel(&mut self, profile: &Profile) {
        if self.kernel.is_some() {
            return;
        }
        let about = &profile.about;
        let id = profile.modules.get(ModuleId::KERNEL).build_id;
        let id = id.as_ref().map(|id| id.as_bytes());
        let found = KernelCode::find(about.kernel.as_deref(), id, about.kernel_text);
        if let Err(why) = &found {
            self.notes.push(format!("the kernel's functions have no names: {why}"));
        }
        self.kernel = Some(found);
    }

    fn known(&mut self, profile: &Profile, frame: FrameId) -> Known {
        let index = frame.index();
        if self.by_frame.len() <= index {
            self.by_frame.resize(profile.stacks.frames().len(), None);
        }
        if let Some(known) = self.by_frame[index] {
            return known;
        }
        let frames = profile.stacks.frames();
        let module = frames[index].module;
        self.load(profile, module);
        let kernel = self.kernel.as_ref().and_then(|kernel| kernel.as_ref().ok());
        let code = self.codes[module.index()].as_ref().unwrap_or(&Code::None);
        let found = look_up(code, kernel, frames, &[index]);
        self.take(module, frames, &[index], found);
        self.by_frame[index].unwrap_or(Known { function: 0, offset: 0 })
    }

    fn load(&mut self, profile: &Profile, module: ModuleId) {
        self.codes.resize_with(profile.modules.len().max(self.codes.len()), || None);
        if self.codes[module.index()].is_none() {
            if needs_kernel(profile.modules.get(module)) {
                self.find_kernel(profile);
            }
            let (code, note) = open(profile, module);
            self.codes[module.index()] = Some(code);
            self.notes.extend(note);
        }
    }

    /// The function of a frame.
    pub fn function_of(&mut self, profile: &Profile, frame: FrameId) -> &Function {
        let function = self.known(profile, frame).function;
        &self.functions[function as usize]
    }

    /// The number of the function of a frame, and how many bytes behind its beginning the frame is.
    pub fn id_of(&mut self, profile: &Profile, frame: FrameId) -> (FunctionId, u32) {
        let known = self.known(profile, frame);
        (FunctionId(known.function), known.offset)
    }

    /// The number of the function of a frame that was looked up before.
    #[must_use]
    pub fn known_id_of(&self, frame: FrameId) -> Option<FunctionId> {
        self.known_id_at(frame.index())
    }

    pub(super) fn known_id_at(&self, frame: usize) -> Option<FunctionId> {
        self.by_frame.get(frame).copied().flatten().map(|known| FunctionId(known.function))
    }

    /// A function of the kernel by its address: its name, and how many bytes behind its beginning the address is.
    pub fn kernel_function(&mut self, profile: &Profile, address: u64) -> Option<(String, u64)> {
        self.find_kernel(profile);
        let kernel = self.kernel.as_ref()?.as_ref().ok()?;
        Some((kernel.name(address)?, address - kernel.start(address)?))
    }

    /// The functions that a frame is in, the innermost inlined one first, each with its source where there is debugging information.
    /// Empty where none is known.
    pub fn lines_of(&mut self, profile: &Profile, frame: FrameId) -> Vec<crate::symbol::Frame> {
        let frame = profile.stacks.frame(frame);
        self.load(profile, frame.module);
        match &mut self.codes[frame.module.index()] {
            Some(Code::File(code)) => code.frames(frame.lookup()),
            _ => Vec::new(),
        }
    }
}

/// What was found at an address.
enum Found {
    Nothing,
    /// A function that is met for the first time.
    First(Named),
    /// One that was met before, by where it begins.
    Again(u64),
}

/// Whether the kernel's names are needed: unknown places may be in it as well.
fn needs_kernel(module: &Module) -> bool {
    matches!(module.kind, ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::Unknown)
}

fn look_up(code: &Code, kernel: Option<&KernelCode>, frames: &[Frame], indices: &[usize]) -> Vec<Found> {
    let mut met = std::collections::HashSet::new();
    let one = |&index: &usize| {
        let address = frames[index].lookup();
        match code.start(kernel, address) {
            None => Found::Nothing,
            Some(start) if met.insert(start) => {
                Found::First(Named { name: code.name(kernel, address).unwrap_or_default(), start })
            }
            Some(start) => Found::Again(start),
        }
    };
    indices.iter().map(one).collect()
}

/// Opens what the names of a module come from. With a sentence where that fails.
fn open(profile: &Profile, id: ModuleId) -> (Code, Option<String>) {
    let module = profile.modules.get(id);
    let path = profile.names.get(module.path);
    match module.kind {
        ModuleKind::Kernel | ModuleKind::KernelModule => (Code::Kernel, None),
        // Addresses that nobody has told of are the kernel's own, if it knows them.
        ModuleKind::Unknown if id == ModuleId::UNKNOWN_KERNEL => (Code::Kernel, None),
        ModuleKind::Unknown | ModuleKind::Memory => (Code::None, None),
        ModuleKind::KernelSymbol => (Code::One(Named { name: path.to_owned(), start: module.start }), None),
        ModuleKind::Vdso => (VdsoCode::of_this_machine().map_or(Code::None, Code::Vdso), None),
        ModuleKind::Jit { .. } => (JitCode::read(Path::new(path)).map_or(Code::None, Code::Jit), None),
        ModuleKind::File => {
            let plain = path.strip_suffix(" (deleted)").unwrap_or(path);
            let build_id = module.build_id;
            match FileCode::open(&profile.sources, Path::new(plain), build_id.as_ref().map(|id| id.as_bytes())) {
                Ok(code) => (Code::File(Box::new(code)), None),
                Err(missing) => (Code::None, Some(why_not(plain, &missing))),
            }
        }
    }
}

fn why_not(path: &str, missing: &Missing) -> String {
    match missing {
        Missing::Gone => format!("{path} is not there: its functions have no names"),
        Missing::Changed => {
            format!("{path} has changed since it was recorded (its build id is another): its functions have no names")
        }
        Missing::Unreadable(why) => format!("{path} can't be read ({why}): its functions have no names"),
    }
}
