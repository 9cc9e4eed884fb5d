//! What functions the frames of a recording are.
//!
//! What it is: [`Symbols`] looks each distinct frame up once, all together on all CPUs ([`Symbols::resolve_all`]) or when it is asked for
//! ([`Symbols::function_of`]); `code` is where names come from. Read first: [`Function`].
//!
//! **Invariant:** names come from the very files that were recorded. Where these are not to be had frames stay addresses, and
//! [`Symbols::notes`] says why.

mod code;

use super::{DataPlace, Frame, FrameId, Inlining, ModuleId, ModuleKind, Profile};
use crate::symbol::{CodeRange, KernelCode, NamedFunction};
use code::{FindKernel, SymbolSource};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

number! {
    /// A function of [`Symbols`].
    FunctionId, "Its place in [`Symbols::functions`]."
}

/// A function, or an address of which nothing is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Its name: readable, without parameters; empty where it is not known.
    pub name: Arc<str>,
    /// The program that it is in.
    pub module: ModuleId,
    /// Where it begins, as the module counts; the address itself where no name is known, and 0 of what was inlined.
    pub start: u64,
    /// Whether it has frames of its own.
    pub inlining: Inlining,
}

/// The functions of a recording.
pub struct Symbols {
    functions: Vec<Function>,
    by_start: HashMap<(ModuleId, u64, bool), FunctionId>,
    /// The function of each, and how many bytes behind its beginning it is.
    by_frame: Vec<Option<(FunctionId, u32)>>,
    /// By frame; only of those that a caller asked for.
    lines: Vec<Option<Arc<[crate::symbol::ResolvedFrame]>>>,
    /// By frame: what was inlined there, the innermost first.
    inlined: HashMap<usize, Box<[FunctionId]>>,
    inlined_ids: HashMap<(ModuleId, Arc<str>), FunctionId>,
    /// So many frames were asked for what was inlined there.
    looked_into: usize,
    /// By module; `None` until it is needed. No thread waits for these locks: they let names be read side by side.
    codes: Vec<Mutex<Option<SymbolSource>>>,
    kernel: OnceLock<Result<KernelCode, String>>,
    /// Of which modules was said what they lack.
    complained: HashSet<Option<ModuleId>>,
    notes: Vec<String>,
}

struct ModuleBatch {
    module: ModuleId,
    /// By their places in the list of all frames.
    frames: Vec<usize>,
}

impl Symbols {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self {
            functions: Vec::new(),
            by_start: HashMap::new(),
            by_frame: vec![None; profile.stacks.frames().len()],
            lines: Vec::new(),
            inlined: HashMap::new(),
            inlined_ids: HashMap::new(),
            looked_into: 0,
            codes: (0..profile.modules.len()).map(|_| Mutex::default()).collect(),
            kernel: OnceLock::new(),
            complained: HashSet::new(),
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
        self.resolve(profile, (0..profile.stacks.frames().len()).map(FrameId::at));
    }

    /// Looks some frames up that were not looked up before, on as many CPUs as there are.
    pub fn resolve(&mut self, profile: &Profile, wanted: impl IntoIterator<Item = FrameId>) {
        let frames = profile.stacks.frames();
        self.by_frame.resize(frames.len(), None);
        let batches = batches(frames, &self.by_frame, wanted);
        let found = self.ask(profile, &batches, |code, kernel, frames| {
            frames.iter().map(|&frame| function_at(code, kernel, frame)).collect()
        });
        for (batch, found) in batches.iter().zip(found) {
            self.take(batch, frames, found);
        }
    }

    /// Looks up the lines of some frames that were not looked up before, on as many CPUs as there are.
    pub fn resolve_lines(&mut self, profile: &Profile, frames: impl IntoIterator<Item = FrameId>) {
        let all = profile.stacks.frames();
        self.lines.resize(all.len(), None);
        let batches = batches(all, &self.lines, frames);
        let found = self.ask(profile, &batches, |code, kernel, frames| {
            if let Some(file) = code.file() {
                file.find_lines(frames.iter().map(|frame| frame.lookup()));
            }
            frames.iter().map(|frame| code.lines(kernel, frame.lookup())).collect()
        });
        for (batch, found) in batches.iter().zip(found) {
            for (&index, lines) in batch.frames.iter().zip(found) {
                self.lines[index] = Some(lines);
            }
        }
    }

    /// Looks up what was inlined in all frames that were not asked for it before, on as many CPUs as there are. Returns whether there is
    /// more than before.
    pub fn resolve_inlined(&mut self, profile: &Profile) -> bool {
        let frames = profile.stacks.frames();
        let from = std::mem::replace(&mut self.looked_into, frames.len());
        let has_sources = |index: &usize| {
            matches!(profile.modules.get(frames[*index].module).kind, ModuleKind::File | ModuleKind::Kernel)
        };
        let wanted: Vec<usize> = (from..frames.len()).filter(has_sources).collect();
        self.resolve_lines(profile, wanted.iter().map(|&index| FrameId::at(index)));
        let before = self.inlined.len();
        for index in wanted {
            let Some(Some(lines)) = self.lines.get(index) else { continue };
            let Some((_, inlined @ [_, ..])) = lines.split_last() else { continue };
            let module = frames[index].module;
            let functions = &mut self.functions;
            let ids = inlined.iter().map(|line| {
                let name = line.function.clone().unwrap_or_else(|| "?".into());
                *self.inlined_ids.entry((module, name)).or_insert_with_key(|(_, name)| {
                    let name = Arc::clone(name);
                    functions.push(Function { name, module, start: 0, inlining: Inlining::Inlined });
                    FunctionId(functions.len() as u32 - 1)
                })
            });
            let ids = ids.collect();
            self.inlined.insert(index, ids);
        }
        self.inlined.len() > before
    }

    /// What was inlined where a frame is, the innermost first; empty before [`Symbols::resolve_inlined`].
    #[must_use]
    pub fn inlined_in(&self, frame: FrameId) -> &[FunctionId] {
        self.inlined.get(&frame.index()).map_or(&[], |inlined| inlined)
    }

    /// Asks for the frames of each module, side by side. Answers are in the order of the frames.
    fn ask<T: Send>(
        &mut self,
        profile: &Profile,
        batches: &[ModuleBatch],
        question: impl Fn(&mut SymbolSource, &FindKernel<'_>, &[Frame]) -> Vec<T> + Sync,
    ) -> Vec<Vec<T>> {
        self.codes.resize_with(profile.modules.len().max(self.codes.len()), Mutex::default);
        let codes = &mut self.codes;
        let mut job = |batch: &ModuleBatch| Mutex::new((code_of(codes, batch.module).take(), Vec::new()));
        let jobs: Vec<Mutex<(Option<SymbolSource>, Vec<T>)>> = batches.iter().map(&mut job).collect();
        let frames = profile.stacks.frames();
        let (kernel, next) = (&self.kernel, AtomicUsize::new(0));
        let work = || {
            // Each job is taken by one thread: the counter alone says which.
            while let Some((job, batch)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(at).zip(batches.get(at))
            } {
                let Ok(mut job) = job.lock() else { continue };
                let (code, found) = &mut *job;
                let code = code.get_or_insert_with(|| SymbolSource::open(profile, batch.module));
                let find = || find_kernel(kernel, profile).as_ref().ok();
                let asked: Vec<Frame> = batch.frames.iter().map(|&index| frames[index]).collect();
                *found = question(code, &find, &asked);
            }
        };
        // To ask how many CPUs there are means to read files of cgroups: not for each frame that is met by itself.
        let threads = match batches.len() {
            0 | 1 => 1,
            jobs => std::thread::available_parallelism().map_or(1, usize::from).min(jobs),
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let mut answers = Vec::with_capacity(jobs.len());
        for (job, batch) in jobs.into_iter().zip(batches) {
            let (code, found) = job.into_inner().unwrap_or_else(PoisonError::into_inner);
            *code_of(&mut self.codes, batch.module) = code;
            self.complain(profile, batch.module);
            answers.push(found);
        }
        crate::order::sort(&mut self.notes);
        answers
    }

    /// Says once what a module lacks, and the kernel.
    fn complain(&mut self, profile: &Profile, module: ModuleId) {
        if let Some(code) = code_of(&mut self.codes, module)
            && let Some(why) = code.complaint(profile, module)
            && self.complained.insert(Some(module))
        {
            self.notes.push(why);
        }
        let about_kernel = self.kernel.get().and_then(|kernel| match kernel {
            Ok(kernel) => kernel.remark.clone(),
            Err(why) => Some(format!("the kernel's functions have no names: {why}")),
        });
        if let Some(remark) = about_kernel
            && self.complained.insert(None)
        {
            self.notes.push(remark);
        }
    }

    fn take(&mut self, batch: &ModuleBatch, frames: &[Frame], found: Vec<Option<NamedFunction>>) {
        let module = batch.module;
        for (&index, found) in batch.frames.iter().zip(found) {
            let is_known = found.is_some();
            let (start, name) = match found {
                Some(named) => (named.start, named.name),
                None => (frames[index].address, Arc::default()),
            };
            let functions = &mut self.functions;
            let function = *self.by_start.entry((module, start, is_known)).or_insert_with(|| {
                functions.push(Function { name, module, start, inlining: Inlining::Called });
                FunctionId(functions.len() as u32 - 1)
            });
            let offset = frames[index].address.wrapping_sub(start).min(u64::from(u32::MAX)) as u32;
            self.by_frame[index] = Some((function, offset));
        }
    }

    /// The function of a frame.
    pub fn function_of(&mut self, profile: &Profile, frame: FrameId) -> &Function {
        let (function, _) = self.id_of(profile, frame);
        self.function(function)
    }

    /// The number of the function of a frame, and how many bytes behind its beginning the frame is.
    pub fn id_of(&mut self, profile: &Profile, frame: FrameId) -> (FunctionId, u32) {
        let index = frame.index();
        if let Some(&Some(known)) = self.by_frame.get(index) {
            return known;
        }
        self.resolve(profile, [frame]);
        self.by_frame[index].unwrap_or((FunctionId(0), 0))
    }

    /// Where the code of a function is, of a program or library whose file is here and whose symbol table has it.
    pub fn code_range(&mut self, profile: &Profile, id: FunctionId) -> Option<CodeRange> {
        let Function { module, start, inlining: Inlining::Called, .. } = *self.functions.get(id.index())? else {
            return None;
        };
        code_of(&mut self.codes, module).get_or_insert_with(|| SymbolSource::open(profile, module)).file()?.range(start)
    }

    /// The variable that is there, by the symbol table of its program: its name, and how many bytes behind its beginning the place is.
    pub fn variable_of(&mut self, profile: &Profile, place: DataPlace) -> Option<(String, u64)> {
        let code =
            code_of(&mut self.codes, place.module).get_or_insert_with(|| SymbolSource::open(profile, place.module));
        code.file()?.variable(place.offset, place.distance)
    }

    /// The number of the function of a frame that was looked up before.
    #[must_use]
    pub fn known_id_of(&self, frame: FrameId) -> Option<FunctionId> {
        self.known_id_at(frame.index())
    }

    pub(super) fn known_id_at(&self, frame: usize) -> Option<FunctionId> {
        self.by_frame.get(frame).copied().flatten().map(|(function, _)| function)
    }

    /// A function of the kernel by its address: its name, and how many bytes behind its beginning the address is.
    pub fn kernel_function(&mut self, profile: &Profile, address: u64) -> Option<(String, u64)> {
        let function = find_kernel(&self.kernel, profile).as_ref().ok()?.function(address)?;
        Some((function.name.to_string(), address - function.start))
    }

    /// The functions that a frame is in, the innermost inlined one first, each with its source where there is debugging information.
    /// Empty where none is known. A caller that asks for many calls [`Symbols::resolve_lines`] before.
    pub fn lines_of(&mut self, profile: &Profile, frame: FrameId) -> Arc<[crate::symbol::ResolvedFrame]> {
        if !matches!(self.lines.get(frame.index()), Some(Some(_))) {
            self.resolve_lines(profile, [frame]);
        }
        self.lines.get(frame.index()).cloned().flatten().unwrap_or_default()
    }
}

fn function_at(code: &mut SymbolSource, kernel: &FindKernel<'_>, frame: Frame) -> Option<NamedFunction> {
    // A signal handler returns to the very beginning of a function that no call comes before.
    let begins =
        |code: &mut SymbolSource| code.function(kernel, frame.address).filter(|named| named.start == frame.address);
    code.function(kernel, frame.lookup()).or_else(|| (frame.lookup() != frame.address).then(|| begins(code)).flatten())
}

fn code_of(codes: &mut [Mutex<Option<SymbolSource>>], module: ModuleId) -> &mut Option<SymbolSource> {
    codes[module.index()].get_mut().unwrap_or_else(PoisonError::into_inner)
}

fn find_kernel<'a>(
    kernel: &'a OnceLock<Result<KernelCode, String>>,
    profile: &Profile,
) -> &'a Result<KernelCode, String> {
    kernel.get_or_init(|| KernelCode::find(&profile.sources, profile.kernel_id()))
}

/// The wanted frames of which nothing is known, by their modules: what takes longest comes first.
fn batches<T>(frames: &[Frame], known: &[Option<T>], wanted: impl IntoIterator<Item = FrameId>) -> Vec<ModuleBatch> {
    let is_unknown = |&place: &usize| known.get(place).is_some_and(Option::is_none);
    let mut unknown: Vec<usize> = wanted.into_iter().map(FrameId::index).filter(is_unknown).collect();
    unknown.sort_unstable();
    unknown.dedup();
    let mut batches: Vec<ModuleBatch> = Vec::new();
    let mut place: HashMap<ModuleId, usize> = HashMap::new();
    for index in unknown {
        let module = frames[index].module;
        let at = *place.entry(module).or_insert_with(|| {
            batches.push(ModuleBatch { module, frames: Vec::new() });
            batches.len() - 1
        });
        batches[at].frames.push(index);
    }
    crate::order::sort_by_key(&mut batches, |batch| std::cmp::Reverse(batch.frames.len()));
    batches
}
