//! Build ids of what is mapped.
//!
//! What it is: a list that grows as mappings are told. Read first: [`BuildIds`].
//!
//! **Invariant:** a file is looked into once.

use crate::perf_data::feature::{Space, build_id};
use pmux_abi::record::{
    MapKind, MapSource, Mmap2, Record, RecordHeader, RecordKind, Records, SampleLayout, decode_record,
};
use pmux_linux::build_id::of_file;
use pmux_linux::machine::Machine;
use pmux_linux::procfs::{Mapping, Proc};
use pmux_linux::ring::Peek;
use std::collections::HashMap;

/// What is known of files that are mapped.
#[derive(Default)]
pub(crate) struct BuildIds {
    /// Ids by the path of the file, as the kernel tells it; empty where there is none.
    by_path: HashMap<Vec<u8>, Vec<u8>>,
    /// The same, by file system and number.
    by_file: HashMap<((u32, u32), u64), Vec<u8>>,
    /// Kept for its memory.
    record: Vec<u8>,
}

impl BuildIds {
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
            self.take(&mapping);
        }
    }

    /// Takes in what records tell about mappings.
    pub(crate) fn note_all(&mut self, records: &[u8], layout: &SampleLayout) {
        let is_mapping = |record: &&[u8]| RecordHeader::decode(record).is_ok_and(|head| head.kind == RecordKind::MMAP2);
        for record in Records::new(records).flatten().filter(is_mapping) {
            if let Ok((Record::Mmap2(mapping), _)) = decode_record(record, layout) {
                self.take(&mapping);
            }
        }
    }

    fn take(&mut self, mapping: &Mmap2<'_>) {
        if let (MapSource::BuildId(id), MapKind::Code) = (mapping.source, mapping.kind)
            && !self.by_path.contains_key(mapping.filename)
        {
            self.by_path.insert(mapping.filename.to_vec(), id.as_bytes().to_vec());
        }
    }

    /// The build id of a file that a process has mapped; empty where it has none or can't be read.
    pub(super) fn of(&mut self, proc: &Proc, pid: i32, mapping: &Mapping) -> &[u8] {
        let Some(file) = mapping.file() else { return &[] };
        let path = file.path.as_os_str().as_encoded_bytes();
        self.by_file.entry((file.device, file.inode)).or_insert_with(|| {
            let id = proc.open_mapped(pid, mapping).ok().and_then(|file| of_file(&file)).unwrap_or_default();
            if !id.is_empty() {
                self.by_path.insert(path.to_vec(), id.clone());
            }
            id
        })
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
        files.sort();
        files.into_iter().for_each(|(path, id)| out.extend(build_id(Space::User, id, path)));
        out
    }
}
