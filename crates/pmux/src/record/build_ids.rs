//! Build ids of what is mapped.
//!
//! What it is: a list that grows as mappings are told. Read first: [`MappedBuildIds`].
//!
//! **Invariant:** a file is looked into once.

use crate::perf_data::feature::{Space, build_id};
use pmux_abi::record::{
    MapKind, MapSource, Mmap2, Record, RecordHeader, RecordKind, Records, SampleLayout, decode_record,
};
use pmux_linux::build_id::of_file;
use pmux_linux::machine::Machine;
use pmux_linux::procfs::{Backing, MappedFile, Mapping, MappingPerms, Presence, Proc};
use pmux_linux::ring::Peek;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[derive(Default)]
pub(crate) struct MappedBuildIds {
    /// Ids by the path of the file, as the kernel tells it.
    by_path: HashMap<Vec<u8>, Vec<u8>>,
    /// Which files were looked into, by file system and number.
    by_file: HashSet<((u32, u32), u64)>,
    /// Kept for its memory.
    record: Vec<u8>,
}

impl MappedBuildIds {
    /// Takes in a record about a mapping, as it lies in a ring.
    pub(super) fn note(&mut self, peek: &Peek<'_>, layout: &SampleLayout) {
        debug_assert_eq!(peek.kind(), RecordKind::MMAP2.0);
        let mut record = std::mem::take(&mut self.record);
        peek.copy_to(&mut record);
        self.note_whole(&record, layout);
        self.record = record;
    }

    /// The same of a record that was copied.
    pub(super) fn note_whole(&mut self, record: &[u8], layout: &SampleLayout) {
        if let Ok((Record::Mmap2(mapping), _)) = decode_record(record, layout) {
            self.take(&mapping, Presence::Named);
        }
    }

    /// Takes in what records tell about mappings that were made some time ago.
    pub(crate) fn note_all(&mut self, records: &[u8], layout: &SampleLayout) {
        let is_mapping = |record: &&[u8]| RecordHeader::decode(record).is_ok_and(|head| head.kind == RecordKind::MMAP2);
        for record in Records::new(records).flatten().filter(is_mapping) {
            if let Ok((Record::Mmap2(mapping), _)) = decode_record(record, layout) {
                // Since then another file may have taken its place: only the very file will do.
                self.take(&mapping, Presence::Deleted);
            }
        }
    }

    fn take(&mut self, mapping: &Mmap2<'_>, presence: Presence) {
        if mapping.kind != MapKind::Code || !mapping.filename.starts_with(b"/") {
            return;
        }
        match mapping.source {
            MapSource::BuildId(id) => {
                self.by_path.entry(mapping.filename.to_vec()).or_insert_with(|| id.as_bytes().to_vec());
            }
            MapSource::Inode { major, minor, inode, .. } if !self.by_file.contains(&((major, minor), inode)) => {
                let path = PathBuf::from(OsStr::from_bytes(mapping.filename));
                let file = MappedFile { path, inode, device: (major, minor), presence };
                let (start, end) = (mapping.addr, mapping.addr.wrapping_add(mapping.len));
                let rights = MappingPerms { execute: true, ..MappingPerms::default() };
                let mapped = Mapping { start, end, rights, offset: mapping.pgoff, backing: Backing::File(file) };
                self.look_into(&Proc::system(), mapping.pid.cast_signed(), &mapped);
            }
            MapSource::Inode { .. } => {}
        }
    }

    /// Takes in the build id of a file that a process has mapped, or had: it is looked for among the files of that process first.
    pub(super) fn look_into(&mut self, proc: &Proc, pid: i32, mapping: &Mapping) {
        let Some(file) = mapping.file() else { return };
        if !self.by_file.insert((file.device, file.inode)) {
            return;
        }
        if let Some(id) = proc.open_mapped(pid, mapping).ok().and_then(|file| of_file(&file)) {
            self.by_path.insert(file.path.as_os_str().as_encoded_bytes().to_vec(), id);
        }
    }

    /// All of them, and the kernel's, as records.
    pub(crate) fn records(&self) -> Vec<u8> {
        let machine = Machine::this();
        let mut out = Vec::new();
        if let Some(id) = machine.kernel_build_id() {
            out.extend(build_id(Space::Kernel, &id, b"[kernel.kallsyms]"));
        }
        for module in machine.modules() {
            if let Some(id) = machine.module_build_id(&module.name) {
                out.extend(build_id(Space::Kernel, &id, format!("[{}]", module.name).as_bytes()));
            }
        }
        let mut files: Vec<_> =
            self.by_path.iter().filter(|(path, id)| path.starts_with(b"/") && !id.is_empty()).collect();
        crate::order::sort(&mut files);
        files.into_iter().for_each(|(path, id)| out.extend(build_id(Space::User, id, path)));
        out
    }
}
