//! The cgroups that a service counts for others.
//!
//! **Invariant:** one cgroup has one number, whichever client named it: otherwise equal questions would not be equal.

use crate::owned_group::Owned;
use crate::session::Session;
use pmux_engine::{CgroupId, LockCell as _};
use pmux_linux::cgroup::{CgroupError, CgroupInode, Mounts, NamedCgroup, ReaderIds};
use pmux_linux::host::SleepLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Those that are in use.
pub struct Cgroups {
    mounts: Mounts,
    known: Arc<SleepLock<HashMap<CgroupInode, KnownCgroup>>>,
    session: Session,
}

struct KnownCgroup {
    id: Owned<CgroupId>,
    name: String,
    users: usize,
}

/// The right to count a cgroup, for as long as it lives.
pub struct CgroupUse {
    inode: CgroupInode,
    pub(super) id: CgroupId,
    name: String,
    known: Arc<SleepLock<HashMap<CgroupInode, KnownCgroup>>>,
}

impl Cgroups {
    /// None yet.
    ///
    /// # Errors
    /// [`CgroupError::Io`] without a mounted `/proc`.
    pub fn new(session: &Session) -> Result<Self, CgroupError> {
        let known = Arc::new(pmux_engine::LockCell::new(HashMap::new()));
        Ok(Self { mounts: Mounts::system()?, known, session: session.clone() })
    }

    /// Opens the folder that another process has named.
    ///
    /// # Errors
    /// As [`Mounts::named`].
    pub fn named(&self, named: &NamedCgroup<'_>, by: ReaderIds<'_>) -> Result<CgroupUse, CgroupError> {
        let (inode, cgroup) = self.mounts.named(named, by)?;
        let (id, name) = self.known.with(|known| {
            let entry = known.entry(inode).or_insert_with(|| {
                let name = cgroup.name().to_owned();
                KnownCgroup { id: self.session.hold_cgroup(cgroup), name, users: 0 }
            });
            entry.users += 1;
            (*entry.id, entry.name.clone())
        });
        Ok(CgroupUse { inode, id, name, known: Arc::clone(&self.known) })
    }

    /// How many are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.with(|known| known.len())
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl CgroupUse {
    /// Its path below the mount.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for CgroupUse {
    fn drop(&mut self) {
        self.known.with(|known| {
            let Some(entry) = known.get_mut(&self.inode) else { return };
            entry.users -= 1;
            if entry.users == 0 {
                known.remove(&self.inode);
            }
        });
    }
}
