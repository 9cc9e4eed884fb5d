//! What stands for the frames of a line.
//!
//! What it is: text of lines is gathered with gaps where a frame is not known yet; [`FrameTexts::write`] looks all of them up together, on
//! as many CPUs as there are, and puts them in. Read first: [`FrameTexts::push`].
//!
//! **Invariant:** the text of a frame is made once for each choice of fields, but for the vDSO, which is elsewhere in each process.

use super::Out;
use super::fields::{Field, Fields};
use super::lines::hex16;
use crate::stderr::{push_visible, visible};
use pmux::profile::{CodeFrame, FrameId, ModuleKind, Profile, Symbols};
use std::fmt::Write;
use std::ops::ControlFlow;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A line of a call chain, behind those of what was inlined there.
    Call,
    /// At the end of a sample's line.
    Own,
}

/// A place in the text that a frame belongs to.
struct Gap {
    at: usize,
    /// Its place in `caches`.
    cache: usize,
    frame: FrameId,
    /// As it is shown.
    address: u64,
}

struct Cache {
    fields: Fields,
    form: Form,
    /// By frame; nothing for frames that have other addresses in each process.
    texts: Vec<Option<Box<str>>>,
}

pub(super) struct FrameTexts {
    shows_inlined: bool,
    caches: Vec<Cache>,
    gaps: Vec<Gap>,
    /// The frames of the gaps, each once; and those of which lines are shown.
    unknown: Vec<FrameId>,
    without_lines: Vec<FrameId>,
    /// By frame: whether it was in the one list, and in the other one.
    was_asked: Vec<[bool; 2]>,
}

/// What a gap is counted as: the text that is missing is about as long.
const GAP_BYTES: usize = 64;

impl FrameTexts {
    pub(super) fn new(shows_inlined: bool) -> Self {
        let (caches, gaps, unknown, without_lines, was_asked) = Default::default();
        Self { shows_inlined, caches, gaps, unknown, without_lines, was_asked }
    }

    /// How many frames of the text are not known yet.
    pub(super) fn unknown(&self) -> usize {
        self.unknown.len()
    }

    /// About how many bytes are missing in the text.
    pub(super) fn missing_bytes(&self) -> usize {
        self.gaps.len() * GAP_BYTES
    }

    /// Appends a frame, or leaves a gap for it.
    pub(super) fn push(
        &mut self,
        profile: &Profile,
        (fields, form): (Fields, Form),
        (address, frame): (u64, FrameId),
        out: &mut String,
    ) {
        let is_same = |cache: &Cache| cache.fields == fields && cache.form == form;
        let cache = self.caches.iter().position(is_same).unwrap_or_else(|| {
            self.caches.push(Cache { fields, form, texts: Vec::new() });
            self.caches.len() - 1
        });
        if let Some(Some(text)) = self.caches[cache].texts.get(frame.index()) {
            out.push_str(text);
            return;
        }
        if self.was_asked.len() <= frame.index() {
            self.was_asked.resize(profile.stacks.frames().len(), [false; 2]);
        }
        let [asked, lines_asked] = &mut self.was_asked[frame.index()];
        if !std::mem::replace(asked, true) {
            self.unknown.push(frame);
        }
        if self.caches[cache].has_lines(self.shows_inlined) && !std::mem::replace(lines_asked, true) {
            self.without_lines.push(frame);
        }
        self.gaps.push(Gap { at: out.len(), cache, frame, address });
    }

    /// Puts in what is missing in the text, and writes all of it.
    pub(super) fn write(&mut self, profile: &Profile, symbols: &mut Symbols, out: &mut Out) -> ControlFlow<()> {
        symbols.resolve(profile, self.unknown.drain(..));
        symbols.resolve_lines(profile, self.without_lines.drain(..));
        let gaps = std::mem::take(&mut self.gaps);
        if gaps.is_empty() {
            return out.write();
        }
        let bare = std::mem::take(&mut out.text);
        let (mut from, inlined) = (0, self.shows_inlined);
        for Gap { at, cache, frame, address } in gaps {
            out.pass_on()?;
            let out = &mut out.text;
            out.push_str(&bare[from..at]);
            from = at;
            let cache = &mut self.caches[cache];
            if let Some(Some(text)) = cache.texts.get(frame.index()) {
                out.push_str(text);
                continue;
            }
            let begin = out.len();
            cache.write(profile, symbols, (address, frame), inlined, out);
            // The same code is somewhere else in each process.
            if profile.modules.get(profile.stacks.frame(frame).module).kind != ModuleKind::Vdso {
                if cache.texts.len() <= frame.index() {
                    cache.texts.resize(profile.stacks.frames().len(), None);
                }
                cache.texts[frame.index()] = Some(out[begin..].into());
            }
        }
        out.text.push_str(&bare[from..]);
        out.write()
    }
}

impl Cache {
    /// Whether more is shown than the symbol table has.
    fn has_lines(&self, shows_inlined: bool) -> bool {
        self.fields.has(Field::SourceLine) || self.has_inlined(shows_inlined)
    }

    /// Whether functions are shown that were inlined.
    fn has_inlined(&self, shows_inlined: bool) -> bool {
        shows_inlined && self.form == Form::Call && self.fields.has(Field::Symbol)
    }

    fn write(
        &self,
        profile: &Profile,
        symbols: &mut Symbols,
        (address, frame): (u64, FrameId),
        shows_inlined: bool,
        out: &mut String,
    ) {
        let Self { fields, form, .. } = *self;
        if self.has_inlined(shows_inlined) {
            // A line for each function that was inlined there, the innermost first, with the address of the frame.
            let places = symbols.lines_of(profile, frame);
            for place in places.split_last().map_or(&[][..], |(_, inlined)| inlined) {
                out.push('\t');
                hex16(out, address);
                out.push(' ');
                push_visible(out, place.function.as_deref().unwrap_or("?"));
                out.push_str(" (inlined)");
                if fields.has(Field::SourceLine) {
                    push_line(place, out);
                }
                out.push('\n');
            }
        }
        if form == Form::Call {
            out.push('\t');
            hex16(out, address);
        }
        push_function(profile, symbols, frame, fields, out);
        if fields.has(Field::SourceLine) {
            let places = symbols.lines_of(profile, frame);
            // Where what was inlined has lines of its own, that of the function that the frame is named by; otherwise the innermost one.
            let place = if form == Form::Call && shows_inlined { places.last() } else { places.first() };
            push_source(profile, frame, place, out);
        }
        if form == Form::Call {
            out.push('\n');
        }
    }
}

/// Appends what stands behind an address.
fn push_function(profile: &Profile, symbols: &mut Symbols, frame: FrameId, fields: Fields, text: &mut String) {
    let (id, offset) = symbols.id_of(profile, frame);
    let function = symbols.function(id);
    if fields.has(Field::Symbol) {
        if function.name.is_empty() {
            text.push_str(" [unknown]");
        } else {
            text.push(' ');
            push_visible(text, &function.name);
            if fields.has(Field::Offset) {
                let _ = write!(text, "+{offset:#x}");
            }
        }
    }
    if fields.has(Field::Dso) {
        let module = profile.modules.get(function.module);
        let name = if module.kind.is_kernel() { module.short } else { module.path };
        text.push_str(" (");
        push_visible(text, profile.names.get(name).trim_end());
        text.push(')');
    }
}

/// Appends the source of a frame, in a line of its own; where it is not known, the program and the address.
fn push_source(profile: &Profile, frame: FrameId, place: Option<&CodeFrame>, out: &mut String) {
    if place.is_some_and(|place| push_line(place, out)) {
        return;
    }
    let place = profile.stacks.frame(frame);
    let short = profile.names.get(profile.modules.get(place.module).short);
    let _ = write!(out, "\n  {}[{:x}]", visible(short.trim_end()), place.address);
}

/// Appends the source of a function, in a line of its own. Returns whether it is known.
fn push_line(place: &CodeFrame, out: &mut String) -> bool {
    let (Some(file), Some(line)) = (place.file.as_deref(), place.line) else { return false };
    out.push_str("\n  ");
    push_visible(out, file.rsplit_once('/').map_or(file, |(_, name)| name));
    let _ = write!(out, ":{line}");
    true
}
