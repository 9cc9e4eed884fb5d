//! What frames look like to people: functions with their sources, inlined ones included.
//!
//! What it is: [`SourceLines`] turns each frame of a recording into one function or several, each kept once, whatever draws them. Read
//! first: [`SourceLine`], then [`SourceLines::of_stack`].
//!
//! **Invariant:** each frame has at least one place, and each place a name: where no function is known it is that of the program.

use super::{FrameId, Module, ModuleId, ModuleKind, Profile, StackId, Symbols};
use hashbrown::HashMap;
use std::sync::Arc;

number! {
    /// A place of [`SourceLines`].
    SourceLineId, "Its place in [`SourceLines::all`]."
}

/// What kind of code it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CodeKind {
    /// The kernel, its modules, and what it made while it ran.
    Kernel,
    /// A library.
    Library,
    /// A program.
    Program,
    /// Made by a process while it ran.
    Jit,
    /// No code: a thread waits.
    Wait,
    /// Nothing is known.
    Unknown,
}

/// Whether a function has a frame of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Inlining {
    /// It has.
    Called,
    /// The compiler put it into its caller.
    Inlined,
}

/// A line of a function, or the function where lines are not known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SourceLine {
    /// The function, or `[program]` where it is not known.
    pub function: Arc<str>,
    /// The program or library that it is in.
    pub module: ModuleId,
    /// What kind of code that is.
    pub kind: CodeKind,
    /// Whether it was inlined.
    pub inlining: Inlining,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
}

/// How much is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LookupDetail {
    /// Functions only.
    Functions,
    /// Inlined functions too, and lines of source.
    #[default]
    Lines,
}

/// The places of a recording.
#[derive(Debug)]
pub struct SourceLines {
    all: Vec<SourceLine>,
    known: HashMap<SourceLine, u32>,
    /// By frame: the innermost first.
    by_frame: Vec<Option<Box<[SourceLineId]>>>,
}

impl SourceLines {
    /// Looks up the frames of some stacks.
    #[must_use]
    pub fn of(
        profile: &Profile,
        symbols: &mut Symbols,
        stacks: impl IntoIterator<Item = StackId>,
        look: LookupDetail,
    ) -> Self {
        let mut places =
            Self { all: Vec::new(), known: HashMap::new(), by_frame: vec![None; profile.stacks.frames().len()] };
        let mut is_done = vec![false; profile.stacks.len()];
        let mut is_wanted = vec![false; profile.stacks.frames().len()];
        let mut wanted = Vec::new();
        for stack in stacks {
            let mut at = stack;
            while let Some(frame) = profile.stacks.innermost(at) {
                if std::mem::replace(&mut is_done[at.index()], true) {
                    break;
                }
                if !std::mem::replace(&mut is_wanted[frame.index()], true) {
                    wanted.push(frame);
                }
                at = profile.stacks.caller(at);
            }
        }
        if look == LookupDetail::Lines {
            symbols.resolve_lines(profile, wanted.iter().copied());
        }
        for frame in wanted {
            places.by_frame[frame.index()] = Some(places.look_up(profile, symbols, frame, look));
        }
        places
    }

    fn look_up(
        &mut self,
        profile: &Profile,
        symbols: &mut Symbols,
        frame: FrameId,
        look: LookupDetail,
    ) -> Box<[SourceLineId]> {
        let module = profile.stacks.frame(frame).module;
        let name = symbols.function_of(profile, frame).name.clone();
        let about = profile.modules.get(module);
        let outer = if name.is_empty() {
            let short = profile.names.get(about.short);
            if short.starts_with('[') { short.into() } else { format!("[{short}]").into() }
        } else {
            name
        };
        let kind = kind_of(profile, about);
        let lines = if look == LookupDetail::Lines { symbols.lines_of(profile, frame) } else { Arc::default() };
        let (last, inlined) = lines.split_last().unzip();
        let inlined = inlined.into_iter().flatten().map(|line| {
            let function = line.function.as_deref().map_or_else(|| Arc::clone(&outer), Arc::from);
            SourceLine { function, module, kind, inlining: Inlining::Inlined, file: line.file.clone(), line: line.line }
        });
        let (file, line) = last.map(|last| (last.file.clone(), last.line)).unwrap_or_default();
        let last = SourceLine { function: Arc::clone(&outer), module, kind, inlining: Inlining::Called, file, line };
        inlined.chain([last]).map(|place| self.id(place)).collect()
    }

    fn id(&mut self, place: SourceLine) -> SourceLineId {
        let next = self.all.len() as u32;
        let id = *self.known.entry(place.clone()).or_insert(next);
        if id == next {
            self.all.push(place);
        }
        SourceLineId(id)
    }

    /// All places, by number.
    #[must_use]
    pub fn all(&self) -> &[SourceLine] {
        &self.all
    }

    /// A place by its number.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn get(&self, id: SourceLineId) -> &SourceLine {
        &self.all[id.index()]
    }

    /// The places of a frame, the innermost first; empty of a frame that was not looked up.
    #[must_use]
    pub fn of_frame(&self, frame: FrameId) -> &[SourceLineId] {
        self.by_frame.get(frame.index()).and_then(Option::as_deref).unwrap_or_default()
    }

    /// The places of a stack, the innermost first.
    pub fn of_stack<'a>(&'a self, profile: &'a Profile, stack: StackId) -> impl Iterator<Item = SourceLineId> + 'a {
        profile.stacks.walk(stack).flat_map(|frame| self.of_frame(frame).iter().copied())
    }
}

fn kind_of(profile: &Profile, module: &Module) -> CodeKind {
    match module.kind {
        kind if kind.is_kernel() => CodeKind::Kernel,
        ModuleKind::Jit { .. } => CodeKind::Jit,
        ModuleKind::Vdso => CodeKind::Library,
        ModuleKind::Wait => CodeKind::Wait,
        ModuleKind::File if is_library(profile.names.get(module.path)) => CodeKind::Library,
        ModuleKind::File => CodeKind::Program,
        _ => CodeKind::Unknown,
    }
}

/// `libc.so.6`, `libm-2.36.so`.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_their_names() {
        for (path, is) in [
            ("/usr/lib/libc.so.6", true),
            ("/usr/lib/libm-2.36.so", true),
            ("/tmp/x.so (deleted)", true),
            ("/usr/bin/ls", false),
            ("/usr/lib.so.d/ls", false),
        ] {
            assert_eq!(is_library(path), is, "{path}");
        }
    }
}
