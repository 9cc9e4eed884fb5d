//! How the functions of a file are left: the tables that say where a return address is at each instruction.
//!
//! What it is: [`CallFrames`] has the sections of one program or library that an unwinder needs, without its symbols. Read first:
//! [`CallFrames::open`].
//!
//! **Invariant:** as with all that is read of files: no number in them is believed.
//!
//! Source: `.eh_frame` of the Linux Standard Base, call frame information of DWARF 5.

use super::elf::{ElfSection, Segment, bias, loaded};
use super::sources::{Missing, Recorded, Sources, locate};
use super::symbolizer::vdso_bytes;
use object::read::ReadCache;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const SECTIONS: [&str; 5] = [".eh_frame", ".eh_frame_hdr", ".debug_frame", ".text", ".got"];
/// What returns from a signal handler, as the kernel and debuggers know it: `mov $15,%rax; syscall`, and `mov x8,#139; svc #0`.
const TRAMPOLINES: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4]];

type NamedSections = [Option<ElfSection>; SECTIONS.len()];

/// How the functions of a file are left.
pub(crate) struct CallFrames {
    segments: Vec<Segment>,
    sections: NamedSections,
    code: InstructionSource,
}

enum InstructionSource {
    File(File),
    Memory(Vec<u8>),
}

impl CallFrames {
    /// Finds a file as it was recorded.
    pub(crate) fn open(sources: &Sources, recorded: Recorded<'_>) -> Result<Self, Missing> {
        let unreadable = |error: std::io::Error| Missing::Unreadable(error.to_string());
        let file = locate(sources, recorded)?.file;
        let again = file.try_clone().map_err(unreadable)?;
        let loaded = loaded(&ReadCache::new(file), SECTIONS).map_err(Missing::Unreadable)?;
        Ok(Self::of(loaded, InstructionSource::File(again)))
    }

    /// The kernel's own code in each process of this machine.
    pub(crate) fn of_vdso() -> Option<Self> {
        let bytes = vdso_bytes()?;
        let loaded = loaded(&bytes[..], SECTIONS).ok()?;
        Some(Self::of(loaded, InstructionSource::Memory(bytes)))
    }

    fn of((segments, mut sections): (Vec<Segment>, NamedSections), code: InstructionSource) -> Self {
        // What is there only for debuggers is not needed where there is the other.
        if sections[0].is_some() {
            sections[2] = None;
        }
        // Of the code only its address is needed.
        if let Some(text) = &mut sections[3] {
            text.bytes = Arc::default();
        }
        Self { segments, sections, code }
    }

    /// How much memory its tables take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.sections.iter().flatten().map(|section| section.bytes.len() as u64).sum()
    }

    pub(crate) fn has_tables(&self) -> bool {
        self.sections[0].is_some() || self.sections[2].is_some()
    }

    /// A section: its addresses, as the file counts, and what is in it.
    pub(crate) fn section(&self, name: &[u8]) -> Option<(u64, Arc<[u8]>)> {
        let at = SECTIONS.iter().position(|known| known.as_bytes() == name)?;
        self.sections[at].as_ref().map(|section| (section.address, Arc::clone(&section.bytes)))
    }

    /// The address that the file's own tables have for a place in it.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        bias(&self.segments, offset, offset, true).map(|bias| offset.wrapping_sub(bias))
    }

    /// The addresses that it takes, as the file counts, from a page's beginning.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        const PAGE: u64 = 0xfff;
        let start = self.segments.iter().map(|segment| segment.address & !PAGE).min()?;
        let end = self.segments.iter().map(|segment| segment.address.saturating_add(segment.memory_bytes)).max()?;
        (end > start).then_some((start, end))
    }

    /// Whether the code at a place in the file returns from a signal handler: it was not called, and what it returns to has not called.
    pub(crate) fn is_trampoline(&self, offset: u64) -> bool {
        TRAMPOLINES.iter().any(|wanted| match &self.code {
            InstructionSource::File(file) => {
                let mut found = [0; 16];
                let found = &mut found[..wanted.len()];
                file.read_exact_at(found, offset).is_ok() && found == *wanted
            }
            InstructionSource::Memory(bytes) => {
                let code = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                code.is_some_and(|code| code.starts_with(wanted))
            }
        })
    }
}
