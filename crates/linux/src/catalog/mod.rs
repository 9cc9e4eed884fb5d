//! What this machine can count, as its sysfs and tracefs say.
//!
//! What it is: the PMUs under `bus/event_source/devices`, and the tracepoints of tracefs.
//! Read first: [`Catalog`].
//!
//! **Invariant:** it knows no event syntax and opens no event. It reads a file only when a caller asks for what is in
//! it, so a command that names only generic events touches no file here at all.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-*` and `Documentation/trace/events.rst`.

mod error;
mod files;
mod format;
pub mod glob;
mod pmu;
#[cfg(test)]
mod tests;
mod tracepoint;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub use error::CatalogError;
pub use format::{ConfigWord, Format, ValueTooLarge};
pub use pmu::{Alias, AliasExtent, AliasKind, AliasValue, Pmu, PmuCpus, PmuRole};
pub use tracepoint::TracingFiles;
use tracepoint::{Mount, Tracefs};

/// The PMUs and tracepoints of a machine, read as they are asked for and kept.
///
/// What it has read it keeps: a PMU that is loaded later is not seen by an old catalog. It can be shared by threads.
#[derive(Debug)]
pub struct Catalog {
    devices: PathBuf,
    names: OnceLock<Result<Vec<String>, CatalogError>>,
    // Only PMUs that exist: a name that is wrong once costs a look each time, and nothing piles up.
    pmus: Mutex<BTreeMap<String, Arc<Pmu>>>,
    tracefs: Tracefs,
}

impl Catalog {
    /// The catalog of this machine. Reads nothing yet. Where no tracefs is mounted when tracepoints are asked for, it mounts it at
    /// `/sys/kernel/tracing`, if this process may.
    #[must_use]
    pub fn system() -> Self {
        Self::new(Path::new("/sys"), Mount::IfMissing)
    }

    /// A catalog of the tree at `root`, which stands for `/sys`. Reads nothing yet.
    ///
    /// Tracefs is looked for at `kernel/tracing`, then at `kernel/debug/tracing`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self::new(root, Mount::Never)
    }

    fn new(root: &Path, mount: Mount) -> Self {
        let places = vec![root.join("kernel/tracing"), root.join("kernel/debug/tracing")];
        let (devices, tracefs) = (root.join("bus/event_source/devices"), Tracefs::new(places, mount));
        Self { devices, names: OnceLock::new(), pmus: Mutex::default(), tracefs }
    }

    /// The names of all PMUs, sorted.
    ///
    /// # Errors
    /// [`CatalogError::NoSysfs`] or [`CatalogError::Denied`].
    pub fn pmu_names(&self) -> Result<&[String], CatalogError> {
        let found = self.names.get_or_init(|| {
            files::names(&self.devices)?.ok_or_else(|| CatalogError::NoSysfs { path: self.devices.clone() })
        });
        found.as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    /// The PMU of exactly that name.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchPmu`], or what was wrong with its files.
    pub fn pmu(&self, name: &str) -> Result<Arc<Pmu>, CatalogError> {
        let mut pmus = self.pmus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pmu) = pmus.get(name) {
            return Ok(Arc::clone(pmu));
        }
        let pmu = Pmu::open(&self.devices, name)?.ok_or_else(|| CatalogError::NoSuchPmu { pmu: name.to_owned() })?;
        let pmu = Arc::new(pmu);
        pmus.insert(name.to_owned(), Arc::clone(&pmu));
        Ok(pmu)
    }

    /// The PMUs that a name stands for: the one of exactly that name; else those that match it as a pattern; else those
    /// that are numbered parts of it, as `uncore_imc` (or `imc`) stands for `uncore_imc_0` and `uncore_imc_1`.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchPmu`] if there is none at all, or what was wrong with their files.
    pub fn pmus_named(&self, name: &str) -> Result<Vec<Arc<Pmu>>, CatalogError> {
        match self.pmu(name) {
            Err(CatalogError::NoSuchPmu { .. }) => {}
            found => return found.map(|pmu| vec![pmu]),
        }
        let mut found = Vec::new();
        for known in self.pmu_names()?.iter().filter(|known| stands_for(name, known)) {
            found.push(self.pmu(known)?);
        }
        // `uncore_imc_10` comes after `uncore_imc_9`.
        crate::order::sort_by_key(&mut found, |pmu| (pmu.name().len(), pmu.name().to_owned()));
        if found.is_empty() { Err(CatalogError::NoSuchPmu { pmu: name.to_owned() }) } else { Ok(found) }
    }

    /// The PMUs that have an alias of that name.
    ///
    /// # Errors
    /// What was wrong with a file. None found is an empty list; a machine without sysfs has none.
    pub fn pmus_with_alias(&self, alias: &str) -> Result<Vec<Arc<Pmu>>, CatalogError> {
        let names = match self.pmu_names() {
            Err(CatalogError::NoSysfs { .. }) => &[],
            other => other?,
        };
        let mut found = Vec::new();
        for name in names {
            // A PMU that goes away between the two looks is no reason to fail.
            let Ok(pmu) = self.pmu(name) else { continue };
            if pmu.alias_names()?.iter().any(|known| known.eq_ignore_ascii_case(alias)) {
                found.push(pmu);
            }
        }
        Ok(found)
    }

    /// The tracepoints whose system and name match two patterns, as pairs, sorted.
    ///
    /// # Errors
    /// [`CatalogError::NoTracefs`] or [`CatalogError::Denied`]. None found is an empty list.
    pub fn tracepoints_matching(&self, system: &str, name: &str) -> Result<Vec<(String, String)>, CatalogError> {
        let systems = if glob::is_pattern(system) {
            let mut systems = self.tracepoint_systems()?;
            systems.retain(|known| glob::matches(system, known));
            systems
        } else {
            vec![system.to_owned()]
        };
        let mut found = Vec::new();
        for system in systems {
            let names = self.tracepoint_names(&system)?;
            found.extend(names.into_iter().filter(|known| glob::matches(name, known)).map(|n| (system.clone(), n)));
        }
        Ok(found)
    }
}

/// Whether a name given by a user stands for a PMU that has another name.
fn stands_for(given: &str, known: &str) -> bool {
    let short = known.strip_prefix("uncore_").unwrap_or(known);
    [known, short].into_iter().any(|known| {
        if glob::is_pattern(given) {
            return glob::matches(given, known);
        }
        let Some(rest) = known.strip_prefix(given) else { return false };
        rest.is_empty()
            || rest.strip_prefix('_').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}
