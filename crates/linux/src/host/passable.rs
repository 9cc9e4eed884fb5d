//! Files of events that other processes may be given.
//!
//! What it is: which file tells of a slot, and where in what it says. Only a host that serves others keeps account of that:
//! [`super::LinuxHost::let_files_be_passed`].
//!
//! **Invariant:** who may be given one is not decided here. A process that has such a file can stop and reset its event.

use super::opener::EventFile;
use super::{LinuxHost, lock};
use crate::shared::page::FIRST_FILE;
use pmux_engine::pmu::Lease;
use pmux_engine::target::ContextKey;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

/// A file of the kernel that tells of a slot.
#[derive(Clone)]
pub struct PassableFile {
    file: Arc<EventFile>,
    beside: Option<Arc<EventFile>>,
    /// A number that this host gives to no other file, from [`FIRST_FILE`] on.
    pub number: u64,
    /// The bits of `read_format` that it was opened with.
    pub read_format: u64,
    /// How many values a read brings.
    pub values: usize,
    /// Which of them is the slot's.
    pub place: usize,
}

impl PassableFile {
    /// The slot's own file, where it is read with its leader's: a process that wants its event to live on when this process
    /// dies has to hold it as well.
    #[must_use]
    pub fn own(&self) -> Option<BorrowedFd<'_>> {
        self.beside.as_ref().map(|file| file.as_fd())
    }
}

impl AsFd for PassableFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The files of all slots that are open.
#[derive(Default)]
pub(super) struct PassableFiles(HashMap<(ContextKey, Lease), PassableFile>);

impl PassableFiles {
    /// A slot that is read alone, or as the leader of so many.
    pub(super) fn add(&mut self, of: (ContextKey, Lease), file: &Arc<EventFile>, read_format: u64, values: usize) {
        let number = file.number + FIRST_FILE;
        self.0.insert(of, PassableFile { file: Arc::clone(file), beside: None, number, read_format, values, place: 0 });
    }

    /// A slot that is read with its leader, as that one's value number `place`.
    pub(super) fn add_beside(
        &mut self,
        of: (ContextKey, Lease),
        own: &Arc<EventFile>,
        (leader, place): ((ContextKey, Lease), usize),
    ) {
        if let Some(file) = self.0.get(&leader).cloned() {
            self.0.insert(of, PassableFile { beside: Some(Arc::clone(own)), place, ..file });
        }
    }

    pub(super) fn remove(&mut self, of: (ContextKey, Lease)) {
        self.0.remove(&of);
    }
}

impl LinuxHost {
    /// From now on keeps account of the files of what is opened of [`super::KERNEL`], so that others can be given them.
    pub fn let_files_be_passed(&self) {
        self.shared.passable.get_or_init(Mutex::default);
    }

    /// The file that tells of a slot of [`super::KERNEL`]; `None` where that isn't open, or no account is kept.
    ///
    /// A process that gets it can also stop and reset the event: it is for those that could have opened it themselves.
    pub fn passable(&self, of: (ContextKey, Lease)) -> Option<PassableFile> {
        lock(self.shared.passable.get()?).0.get(&of).cloned()
    }

    /// Its number alone.
    pub fn passable_number(&self, of: (ContextKey, Lease)) -> Option<u64> {
        lock(self.shared.passable.get()?).0.get(&of).map(|file| file.number)
    }
}
