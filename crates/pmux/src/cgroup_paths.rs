//! Whether the cgroups of a target are still there.
//!
//! **Invariant:** it only looks.

use crate::target::Target;
use pmux_linux::cgroup::{Cgroup, Mounts};

/// The cgroups of a target, by their number there.
pub(crate) struct CgroupPaths(Vec<(Option<Cgroup>, String)>);

impl CgroupPaths {
    pub(crate) fn of(target: &Target<'_>) -> Self {
        let Target::Cgroups { names, .. } = target else { return Self(Vec::new()) };
        let mounts = Mounts::system().unwrap_or_default();
        Self(names.iter().map(|name| (mounts.open(name).ok(), name.clone())).collect())
    }

    /// Whether a cgroup was there, and is no more, as of the last [`CgroupPaths::newly_gone`].
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|(cgroup, _)| cgroup.is_none())
    }

    pub(crate) fn newly_gone(&mut self) -> Vec<(usize, String)> {
        let mut gone = Vec::new();
        for (index, (cgroup, name)) in self.0.iter_mut().enumerate() {
            if cgroup.as_ref().is_some_and(|cgroup| !cgroup.exists()) {
                *cgroup = None;
                gone.push((index, name.clone()));
            }
        }
        gone
    }
}
