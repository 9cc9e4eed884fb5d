//! Build ids that stand beside the records: of the files and of the kernel that were recorded.
//!
//! What it is: [`BuildIds`] takes the feature of a file, or the records of a pipe. Read first: [`BuildIds::take_all`].
//!
//! **Invariant:** a path has one build id, the first that was told.
//!
//! Source: `struct perf_record_header_build_id`, `write_buildid` (tools/perf/util/build-id.c, 6.1).

use crate::bytes::{Fields, until_zero};
use pmux_abi::record::{BuildId, CpuMode, Misc, RecordHeader};
use std::collections::HashMap;

/// The process and the id, in front of the path.
const FIXED_BYTES: usize = 28;
/// What the kernel is called in the records that map it.
pub(super) const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// Build ids by the paths of the recorded machine.
#[derive(Default, Debug)]
pub(super) struct BuildIds {
    by_path: HashMap<Vec<u8>, BuildId>,
    /// The kernel's, which `perf` files under the path of its image where it knows that.
    pub(super) kernel: Option<BuildId>,
}

impl BuildIds {
    /// Takes the feature: records whose headers state a size and no kind. `perf` fills paths up to 64 bytes, behind 36: these records
    /// are not whole words. `None` if the bytes end within a record.
    pub(super) fn take_all(&mut self, mut rest: &[u8]) -> Option<()> {
        while !rest.is_empty() {
            let mut header = Fields(rest);
            let (_kind, word) = (header.u32()?, header.u32()?);
            let (misc, size) = (word as u16, (word >> 16) as usize);
            let (record, behind) = rest.split_at_checked(size)?;
            self.take(Misc(misc), record.get(RecordHeader::SIZE..)?)?;
            rest = behind;
        }
        Some(())
    }

    /// Takes the payload of one record. `None` if it is too short.
    pub(super) fn take(&mut self, misc: Misc, payload: &[u8]) -> Option<()> {
        /// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the byte behind the id is its size.
        const HAS_SIZE: u16 = 1 << 15;
        let (fixed, path) = payload.split_at_checked(FIXED_BYTES)?;
        let id = fixed.get(4..)?;
        let length = if misc.0 & HAS_SIZE != 0 { usize::from(*id.get(20)?).min(20) } else { 20 };
        let id = BuildId::new(id.get(..length)?)?;
        let path = until_zero(path).into_bytes();
        // In kernel mode stand the kernel and its modules: one is in brackets or ends in `.ko`.
        let is_module = path.windows(3).any(|part| part == b".ko") || path.starts_with(b"[");
        if path.starts_with(KERNEL) || misc.cpu_mode() == CpuMode::Kernel && !is_module {
            self.kernel.get_or_insert(id);
        }
        self.by_path.entry(path).or_insert(id);
        Some(())
    }

    pub(super) fn of(&self, path: &[u8]) -> Option<BuildId> {
        self.by_path.get(path).copied()
    }

    /// Takes those of another recording of the same machine.
    pub(super) fn join(&mut self, others: Self) {
        for (path, id) in others.by_path {
            self.by_path.entry(path).or_insert(id);
        }
        self.kernel = self.kernel.or(others.kernel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as `perf record` writes it.
    fn record(misc: u16, id: &[u8], path: &str) -> Vec<u8> {
        let mut out = vec![0; 36 + (path.len() + 1).next_multiple_of(64)];
        let size = out.len() as u16;
        out[4..6].copy_from_slice(&misc.to_ne_bytes());
        out[6..8].copy_from_slice(&size.to_ne_bytes());
        out[8..12].fill(0xff);
        out[12..12 + id.len()].copy_from_slice(id);
        out[32] = id.len() as u8;
        out[36..36 + path.len()].copy_from_slice(path.as_bytes());
        out
    }

    #[test]
    fn records_of_perf_are_no_whole_words() {
        let (user, kernel) = (0x8002, 0x8001);
        let all = [
            record(user, &[1; 20], "/bin/a"),
            record(kernel, &[2; 20], "/lib/modules/6.1/kernel/fs/xfs.ko.xz"),
            record(kernel, &[3; 20], "/usr/lib/debug/boot/vmlinux-6.1"),
            record(user, &[4; 16], &format!("/{}", "b".repeat(80))),
            record(2, &[5; 20], "/bin/a"),
        ];
        assert!(all.iter().any(|record| !record.len().is_multiple_of(8)));
        let (all, mut ids) = (all.concat(), BuildIds::default());
        assert_eq!(ids.take_all(&all), Some(()));
        let of = |path: &[u8]| ids.of(path).map(|id| id.as_bytes().to_vec());
        assert_eq!(of(b"/bin/a"), Some(vec![1; 20]), "the first one counts");
        assert_eq!(of(format!("/{}", "b".repeat(80)).as_bytes()), Some(vec![4; 16]));
        assert_eq!(ids.kernel, BuildId::new(&[3; 20]));
        // Cut off anywhere: what is whole in front of it.
        for length in 1..all.len() {
            let mut some = BuildIds::default();
            let whole = [100, 200, 300, 464].contains(&length);
            assert_eq!(some.take_all(&all[..length]).is_some(), whole, "{length} of {}", all.len());
            assert_eq!(some.of(b"/bin/a").is_some(), length >= 100);
        }
        assert_eq!(ids.take_all(&[0; 16]), None, "a size of 0");
    }
}
