//! Debugging information: which line of which file an address comes from, and the other way round.
//!
//! What it is: the DWARF of one program or library. Read first: [`Debug::frames`]; the way from lines to addresses is in
//! `lines.rs`.
//!
//! **Invariant:** what is broken in it is left out: a wrong answer is worse than none, and none is always possible.
//!
//! Source: DWARF 5, as the `gimli` and `addr2line` crates read it.

pub(super) mod files;
mod inlined;
mod lines;

pub(super) use lines::LineHit;
use lines::LineTable;

use super::elf::Sections;
use super::names;
use super::place::ResolvedFrame;
use gimli::{EndianArcSlice, Reader as _, RunTimeEndian, Section, SectionId};
use object::Endianness;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::Builder;

/// How many functions may be inlined into each other: more is broken information.
const DEEPEST: usize = 256;

/// So many addresses for each thread, or it is not worth what it takes: each finds the units of the file for itself.
const WORTH_A_THREAD: usize = 200;
/// What each has found stays in memory.
const MOST_THREADS: usize = 8;

type Reader = EndianArcSlice<RunTimeEndian>;
type Context = addr2line::Context<Reader>;

/// What another thread has read of a file: it is asked for the same part of the addresses each time.
struct OtherThread {
    /// Its first address.
    from: u64,
    /// `None` until it begins.
    context: Option<Context>,
}

/// The debugging information of a file.
pub(super) struct Debug {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    context: Context,
    /// Empty until many addresses are asked for together.
    others: Vec<OtherThread>,
}

impl std::fmt::Debug for Debug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Debug").finish_non_exhaustive()
    }
}

impl Debug {
    /// Reads what a file has; `None` where there is no line in it. `shared` is the file with what several files share.
    pub(super) fn read(sections: &Sections, shared: Option<&Sections>) -> Option<Self> {
        let mut dwarf = load(sections)?;
        if dwarf.debug_line.reader().is_empty() {
            return None;
        }
        if let Some(shared) = shared.and_then(load) {
            dwarf.set_sup(shared);
        }
        let dwarf = Arc::new(dwarf);
        let context = Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?;
        Some(Self { dwarf, context, others: Vec::new() })
    }

    /// The functions that an address belongs to, the innermost inlined one first. Empty where nothing is known.
    ///
    /// The address is as the file counts.
    pub(super) fn frames(&self, address: u64) -> Vec<ResolvedFrame> {
        frames(&self.context, address)
    }

    /// As [`Debug::frames`] for each of many, which are in their order, on several CPUs.
    pub(super) fn frames_of_each(&mut self, addresses: &[u64]) -> Vec<Vec<ResolvedFrame>> {
        if self.others.is_empty() {
            let worth = (addresses.len() / WORTH_A_THREAD).min(MOST_THREADS);
            let threads =
                if worth < 2 { 1 } else { std::thread::available_parallelism().map_or(1, usize::from).min(worth) };
            let parts = addresses.chunks(addresses.len().div_ceil(threads).max(1)).skip(1);
            self.others.extend(parts.map(|part| OtherThread { from: part[0], context: None }));
        }
        let each = |context: &Context, part: &[u64]| part.iter().map(|&at| frames(context, at)).collect::<Vec<_>>();
        let (dwarf, context) = (&self.dwarf, &self.context);
        let (first, mut rest) = addresses.split_at(
            self.others
                .first()
                .map_or(addresses.len(), |other| addresses.partition_point(|&address| address < other.from)),
        );
        let ends: Vec<u64> = self.others.iter().skip(1).map(|other| other.from).chain([u64::MAX]).collect();
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            for (OtherThread { context, .. }, end) in self.others.iter_mut().zip(ends) {
                let part;
                (part, rest) = rest.split_at(rest.partition_point(|&address| address < end || end == u64::MAX));
                if part.is_empty() {
                    continue;
                }
                let work = move || {
                    if context.is_none() {
                        *context = Context::from_arc_dwarf(Arc::clone(dwarf)).ok();
                    }
                    context.as_ref().map(|context| each(context, part))
                };
                others.push((part, Builder::new().spawn_scoped(scope, work).ok()));
            }
            let mut all = each(context, first);
            for (part, other) in others {
                let found = other.and_then(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
                // Where no thread could be had.
                all.extend(found.unwrap_or_else(|| each(context, part)));
            }
            all
        })
    }

    pub(super) fn lines(&self) -> LineTable<'_> {
        LineTable { dwarf: &self.dwarf }
    }
}

fn frames(context: &Context, address: u64) -> Vec<ResolvedFrame> {
    let mut found = Vec::new();
    // Parts in yet other files (split DWARF) are left out: the lines are in this one.
    let Ok(mut frames) = context.find_frames(address).skip_all_loads() else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
        let function = name.map(|name| names::brief(name.as_bytes()).into());
        let (file, line) = shown(frame.location.as_ref());
        found.push(ResolvedFrame { function, offset: None, file, line });
        if found.len() >= DEEPEST {
            break;
        }
    }
    if found.is_empty()
        && let Ok(Some(location)) = context.find_location(address)
    {
        let (file, line) = shown(Some(&location));
        found.push(ResolvedFrame { function: None, offset: None, file, line });
    }
    found
}

fn shown(location: Option<&addr2line::Location<'_>>) -> (Option<Arc<str>>, Option<u32>) {
    let file = location.and_then(|location| location.file).map(Arc::from);
    (file, location.and_then(|location| location.line).filter(|&line| line > 0))
}

fn load(sections: &Sections) -> Option<gimli::Dwarf<Reader>> {
    sections.with(|section, endian| {
        let endian = match endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let one = |id: SectionId| -> Result<Reader, gimli::Error> {
            // Where variables are and what macros mean isn't asked for, and is large.
            let bytes = match id {
                SectionId::DebugLoc
                | SectionId::DebugLocLists
                | SectionId::DebugMacro
                | SectionId::DebugMacinfo
                | SectionId::DebugTypes => Arc::default(),
                id => section(id.name()),
            };
            Ok(Reader::new(bytes, endian))
        };
        gimli::Dwarf::load(one).ok()
    })?
}
