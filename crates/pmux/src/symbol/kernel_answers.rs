//! Functions of the kernel that runs here, kept on disk: the kernel makes its list anew each time that it is read, which takes longer than
//! to read a recording of a second.
//!
//! What it is: [`KernelAnswers`] has functions by their distance from a symbol that the recording names, which is the same each time that
//! this build runs. Read first: [`KernelAnswers::of`].
//!
//! **Invariant:** what is kept is what the list would tell: nothing is used while the kernel hides its addresses, nothing is kept of
//! modules or of code that the kernel made while it ran.

use super::kept::{FileAnswers, NamedFunction};
use super::recorded_kernel::{KernelCode, KernelId};
use super::sources::Sources;
use pmux_linux::procfs::Proc;
use std::path::PathBuf;

/// Names of symbols that kernels begin with are short.
const LONGEST_NAME: usize = 32;

/// What is known of the kernel's functions.
pub(crate) struct KernelAnswers {
    cache: PathBuf,
    key: Vec<u8>,
    /// Where the symbol was that addresses count from.
    from: u64,
    kept: FileAnswers,
}

impl KernelAnswers {
    /// Those of a recording's kernel. `None` where names may come from elsewhere than the list of this kernel, or nothing can be kept.
    pub(crate) fn of(sources: &Sources, id: KernelId<'_>) -> Option<Self> {
        let cache = sources.cache.clone().filter(|_| sources.vmlinux.is_none())?;
        let (name, from) = id.text.filter(|(name, from)| *from != 0 && name.len() <= LONGEST_NAME)?;
        let build_id = id.build_id.filter(|_| id.is_this() && Proc::system().shows_kernel_addresses())?;
        let key = [build_id, name.as_bytes()].concat();
        let kept = FileAnswers::load(&cache, &key);
        Some(Self { cache, key, from, kept })
    }

    /// The function at an address; `kernel` is asked for what is not kept.
    pub(crate) fn function<'k>(
        &mut self,
        kernel: impl FnOnce() -> Option<&'k KernelCode>,
        address: u64,
    ) -> Option<NamedFunction> {
        let place = address.wrapping_sub(self.from);
        if let Some(Some(known)) = self.kept.function(place) {
            return Some(NamedFunction { start: known.start.wrapping_add(self.from), name: known.name.clone() });
        }
        let kernel = kernel()?;
        let named = kernel.function(address)?;
        if kernel.is_always_there(address) {
            let start = named.start.wrapping_sub(self.from);
            self.kept.set_function(place, Some(NamedFunction { start, name: named.name.clone() }));
        }
        Some(named)
    }
}

impl Drop for KernelAnswers {
    fn drop(&mut self) {
        self.kept.save(&self.cache, &self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_linux::machine::Machine;

    #[test]
    fn what_is_kept_is_what_the_list_tells() {
        let machine = Machine::this();
        let cache = tempfile::tempdir().unwrap();
        let sources = Sources { cache: Some(cache.path().to_owned()), ..Sources::default() };
        let build_id = machine.kernel_build_id();
        let (Some(id), Some(text)) = (build_id.as_deref(), machine.kernel_text()) else {
            println!("skipped: needs the kernel's addresses");
            return;
        };
        let name = text.name.as_str();
        // Where it began when it was recorded, and here.
        let recorded = 0xffff_ffff_9000_0000_u64;
        let id = KernelId { release: None, build_id: Some(id), text: Some((name, recorded)) };
        let list = KernelCode::find(&sources, id).unwrap();
        let places: Vec<u64> = (0..2000).map(|at| recorded + 0x1_0000 + 977 * at).collect();
        let listed: Vec<Option<NamedFunction>> = places.iter().map(|&address| list.function(address)).collect();
        let known = listed.iter().flatten().count();
        assert!(known > 100, "{known}");
        let mut first = KernelAnswers::of(&sources, id).unwrap();
        let asked: Vec<_> = places.iter().map(|&address| first.function(|| Some(&list), address)).collect();
        assert_eq!(asked, listed);
        drop(first);
        // The next time the list is not read, also where the kernel began somewhere else.
        let moved = 0x60_0000;
        let later = KernelId { text: Some((name, recorded + moved)), ..id };
        let mut second = KernelAnswers::of(&sources, later).unwrap();
        for (place, listed) in places.iter().zip(listed) {
            let listed = listed.map(|named| NamedFunction { start: named.start + moved, ..named });
            assert_eq!(second.function(|| None, place + moved), listed, "{place:#x}");
        }
        // Of another symbol, another kernel, or with an image that was asked for, nothing is known.
        let other = KernelId { text: Some(("_other", recorded)), ..id };
        assert_eq!(KernelAnswers::of(&sources, other).unwrap().function(|| None, places[0]), None);
        assert!(KernelAnswers::of(&sources, KernelId { build_id: Some(&[1; 20]), ..id }).is_none());
        assert!(KernelAnswers::of(&sources, KernelId { text: None, ..id }).is_none());
        assert!(KernelAnswers::of(&Sources { vmlinux: Some("/x".into()), ..sources }, id).is_none());
    }
}
