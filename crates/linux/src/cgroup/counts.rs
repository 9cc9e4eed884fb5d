//! What the files of a cgroup count without any event.
//!
//! **Invariant:** a count that the cgroup does not keep is [`CgroupError::NoCount`], never 0.

use std::io;

use super::{Cgroup, CgroupError, open_error};
use crate::procfs::keyed;

/// The CPU time of a cgroup and all below it, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuUsage {
    /// In total, ns.
    pub total_ns: u64,
    /// In user mode, ns.
    pub user_ns: u64,
    /// In the kernel, ns.
    pub system_ns: u64,
}

impl Cgroup {
    /// Reads the CPU time: `cpu.stat` of v2, otherwise `cpuacct` of v1.
    ///
    /// # Errors
    /// [`CgroupError::NotFound`] once it has been removed, [`CgroupError::NoCount`], [`CgroupError::Denied`].
    pub fn cpu_usage(&self) -> Result<CpuUsage, CgroupError> {
        if let Some(text) = self.read(None, "cpu.stat")? {
            let value = |key| keyed(&text, key).map(|usec: u64| usec.saturating_mul(1000));
            if let (Some(total_ns), Some(user_ns), Some(system_ns)) =
                (value("usage_usec"), value("user_usec"), value("system_usec"))
            {
                return Ok(CpuUsage { total_ns, user_ns, system_ns });
            }
        }
        let value = |file| Ok(self.read(Some("cpuacct"), file)?.and_then(|text| text.trim().parse().ok()));
        let (total, user, system) =
            (value("cpuacct.usage")?, value("cpuacct.usage_user")?, value("cpuacct.usage_sys")?);
        match (total, user, system) {
            (Some(total_ns), Some(user_ns), Some(system_ns)) => Ok(CpuUsage { total_ns, user_ns, system_ns }),
            _ => Err(self.no_count("CPU time")),
        }
    }

    /// Reads the most memory that it ever held, in bytes, where its memory controller is on.
    ///
    /// # Errors
    /// As [`Cgroup::cpu_usage`].
    pub fn memory_peak_bytes(&self) -> Result<u64, CgroupError> {
        let text = match self.read(None, "memory.peak")? {
            Some(text) => Some(text),
            None => self.read(Some("memory"), "memory.max_usage_in_bytes")?,
        };
        text.and_then(|text| text.trim().parse().ok()).ok_or_else(|| self.no_count("memory"))
    }

    /// Reads all page faults and the major ones, where its memory controller is on.
    ///
    /// # Errors
    /// As [`Cgroup::cpu_usage`].
    pub fn page_faults(&self) -> Result<(u64, u64), CgroupError> {
        let both = |text: String, all: &str, major: &str| keyed(&text, all).zip(keyed(&text, major));
        let own = self.read(None, "memory.stat")?;
        let found = match own.and_then(|text| both(text, "pgfault", "pgmajfault")) {
            Some(found) => Some(found),
            // v1 states the sum over the cgroups below under names of their own.
            None => self
                .read(Some("memory"), "memory.stat")?
                .and_then(|text| both(text, "total_pgfault", "total_pgmajfault")),
        };
        found.ok_or_else(|| self.no_count("page faults"))
    }

    fn no_count(&self, count: &'static str) -> CgroupError {
        CgroupError::NoCount { name: self.name.clone(), count }
    }

    /// Reads a file of its own folder, or of the folder with the same path under a v1 controller. A file that is not
    /// there is `None` for as long as the cgroup is.
    fn read(&self, controller: Option<&str>, file: &str) -> Result<Option<String>, CgroupError> {
        let folder = match controller {
            None => self.path.clone(),
            Some(controller) => match self.mounts.v1(controller) {
                Some(mount) => mount.path.join(&self.relative),
                None => return Ok(None),
            },
        };
        let path = folder.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.exists() => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                Err(CgroupError::NotFound { name: self.name.clone(), path: self.path.clone() })
            }
            Err(error) => Err(open_error(self.name.clone(), path, &error)),
        }
    }
}
