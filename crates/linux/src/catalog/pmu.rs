//! One PMU as sysfs shows it.
//!
//! What it is: its type number, its CPUs, its format files and its named events (*aliases*).
//! Read first: [`Pmu`].
//!
//! **Invariant:** nothing is read before it is asked for, and the formats are read once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{CatalogError, Format, files};
use crate::cpus::CpuList;

/// The CPUs on which an event of a PMU can be opened.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum PmuCpus {
    /// All of them; the PMU says nothing.
    #[default]
    Any,
    /// One CPU for each package or die (file `cpumask`): where an uncore PMU wants its events, and no task.
    OnePerPackage(Vec<u32>),
    /// The CPUs that have this PMU (file `cpus`): core PMUs of machines with several kinds of core.
    Only(Vec<u32>),
}

impl PmuCpus {
    /// The CPUs, if the PMU names any.
    #[must_use]
    pub fn list(&self) -> Option<&[u32]> {
        match self {
            Self::Any => None,
            Self::OnePerPackage(cpus) | Self::Only(cpus) => Some(cpus),
        }
    }
}

/// Whether a PMU counts in the cores, or somewhere else in the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PmuRole {
    /// The PMU of the CPU cores: it can follow tasks and tell user from kernel.
    Core,
    /// Any other.
    Other,
}

/// The value of a term in an alias file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AliasValue {
    /// A number; a term without a value has 1.
    Number(u64),
    /// `?`: the user has to give it.
    Asked,
}

/// A named event of a PMU: a file in its `events/` directory, and the files beside it.
#[derive(Clone, PartialEq, Debug)]
pub struct Alias {
    /// Its name, as the file has it.
    pub name: String,
    /// The terms that it stands for, in their order.
    pub terms: Vec<(String, AliasValue)>,
    /// What the count has to be multiplied by (file `.scale`).
    pub scale: Option<f64>,
    /// The unit after scaling (file `.unit`).
    pub unit: Option<String>,
    /// Whether it shows a level instead of a sum (file `.snapshot`).
    pub kind: AliasKind,
    /// Whether it counts once for a package (file `.per-pkg`).
    pub extent: AliasExtent,
}

/// Whether an alias adds up over time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AliasKind {
    /// It counts up: intervals show differences.
    #[default]
    Sum,
    /// It shows a level: intervals show the value as it is.
    Snapshot,
}

/// How much of the machine one count covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AliasExtent {
    /// The CPU that it is opened on.
    #[default]
    Cpu,
    /// The whole package of that CPU: it must be counted on one CPU of each package only.
    Package,
}

type Cached<T> = OnceLock<Result<T, CatalogError>>;

/// A PMU in `bus/event_source/devices/`.
#[derive(Debug)]
pub struct Pmu {
    name: String,
    dir: PathBuf,
    kind: u32,
    cpus: Cached<PmuCpus>,
    formats: Cached<BTreeMap<String, Format>>,
    aliases: Cached<Vec<String>>,
}

impl Pmu {
    /// Opens the directory of a PMU: reads its type and nothing else. `None` if there is no such PMU.
    pub(super) fn open(devices: &Path, name: &str) -> Result<Option<Self>, CatalogError> {
        if !files::is_plain_name(name) {
            return Ok(None);
        }
        let dir = devices.join(name);
        let Some(kind) = files::read_number(&dir.join("type"))? else { return Ok(None) };
        let (cpus, formats, aliases) = Default::default();
        Ok(Some(Self { name: name.to_owned(), dir, kind, cpus, formats, aliases }))
    }

    /// Its name: `cpu`, `msr`, `uncore_imc_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, for the `type` of an attribute.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// The CPUs on which its events open.
    ///
    /// # Errors
    /// [`CatalogError`] if the file can't be read or holds no list.
    pub fn cpus(&self) -> Result<&PmuCpus, CatalogError> {
        let found = self.cpus.get_or_init(|| {
            for (file, make) in [("cpumask", PmuCpus::OnePerPackage as fn(_) -> _), ("cpus", PmuCpus::Only)] {
                let path = self.dir.join(file);
                if let Some(text) = files::read(&path)? {
                    let cpus = CpuList::parse_kernel(&text).map_err(|_| CatalogError::malformed(&path, &text))?;
                    return Ok(make(cpus.as_slice().to_vec()));
                }
            }
            Ok(PmuCpus::Any)
        });
        found.as_ref().map_err(Clone::clone)
    }

    /// Whether it counts in the CPU cores.
    ///
    /// # Errors
    /// As [`Self::cpus`].
    pub fn role(&self) -> Result<PmuRole, CatalogError> {
        // `PERF_TYPE_RAW` belongs to the first core PMU; the other core PMUs show their CPUs.
        let core = self.kind == 4 || self.name == "cpu" || matches!(self.cpus()?, PmuCpus::Only(_));
        Ok(if core { PmuRole::Core } else { PmuRole::Other })
    }

    /// Its fields by name; all format files are read at the first call.
    ///
    /// # Errors
    /// [`CatalogError`] if a file can't be read or isn't a format.
    pub fn formats(&self) -> Result<&BTreeMap<String, Format>, CatalogError> {
        let found = self.formats.get_or_init(|| {
            let dir = self.dir.join("format");
            let mut formats = BTreeMap::new();
            for name in files::names(&dir)?.unwrap_or_default() {
                let path = dir.join(&name);
                if let Some(text) = files::read(&path)? {
                    let format = Format::parse(&text).ok_or_else(|| CatalogError::malformed(&path, &text))?;
                    formats.insert(name, format);
                }
            }
            Ok(formats)
        });
        found.as_ref().map_err(Clone::clone)
    }

    /// The names of its aliases, sorted; none of their files is read.
    ///
    /// # Errors
    /// [`CatalogError`] if the directory can't be read.
    pub fn alias_names(&self) -> Result<&[String], CatalogError> {
        let found = self.aliases.get_or_init(|| {
            let mut names = files::names(&self.dir.join("events"))?.unwrap_or_default();
            // The files beside an alias say more about it.
            let beside = [".scale", ".unit", ".snapshot", ".per-pkg"];
            names.retain(|name| !beside.iter().any(|suffix| name.ends_with(suffix)));
            Ok(names)
        });
        found.as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    /// Reads one alias and the files beside it. Upper and lower case are the same.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchEvent`] if there is none, or what was wrong with a file.
    pub fn alias(&self, name: &str) -> Result<Alias, CatalogError> {
        let absent = || CatalogError::NoSuchEvent { pmu: self.name.clone(), event: name.to_owned() };
        let name = self.alias_names()?.iter().find(|known| known.eq_ignore_ascii_case(name)).ok_or_else(absent)?;
        let dir = self.dir.join("events");
        let path = dir.join(name);
        let text = files::read(&path)?.ok_or_else(absent)?;
        let terms = parse_terms(&text).ok_or_else(|| CatalogError::malformed(&path, &text))?;

        let beside = |suffix: &str| dir.join(format!("{name}{suffix}"));
        let scaled = |text: String| parse_scale(&text).ok_or_else(|| CatalogError::malformed(&beside(".scale"), &text));
        let scale = files::read(&beside(".scale"))?.map(scaled).transpose()?;
        let unit = files::read(&beside(".unit"))?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let is_set =
            |suffix: &str| Ok::<_, CatalogError>(files::read(&beside(suffix))?.is_some_and(|t| t.trim() != "0"));
        let kind = if is_set(".snapshot")? { AliasKind::Snapshot } else { AliasKind::Sum };
        let extent = if is_set(".per-pkg")? { AliasExtent::Package } else { AliasExtent::Cpu };
        Ok(Alias { name: name.clone(), terms, scale, unit, kind, extent })
    }
}

/// Reads `event=0x3c,umask=0x00,edge,core=?`.
fn parse_terms(text: &str) -> Option<Vec<(String, AliasValue)>> {
    let text = text.trim();
    let mut terms = Vec::new();
    for term in text.split(',') {
        let (name, value) = match term.split_once('=') {
            Some((name, "?")) => (name, AliasValue::Asked),
            Some((name, number)) => (name, AliasValue::Number(parse_number(number)?)),
            None => (term, AliasValue::Number(1)),
        };
        if name.trim().is_empty() {
            return None;
        }
        terms.push((name.trim().to_owned(), value));
    }
    Some(terms)
}

fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((text, 10), |hex| (hex, 16));
    // `from_str_radix` would take a sign.
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

fn parse_scale(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|scale| scale.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_of_an_alias_file() {
        let number = |name: &str, value| (name.to_owned(), AliasValue::Number(value));
        assert_eq!(parse_terms("event=0x3c,umask=0x00\n"), Some(vec![number("event", 0x3c), number("umask", 0)]));
        assert_eq!(parse_terms("event=12,edge"), Some(vec![number("event", 12), number("edge", 1)]));
        assert_eq!(parse_terms("core=?"), Some(vec![("core".to_owned(), AliasValue::Asked)]));
        for text in ["", "event=", "event=zz", "=1", "a,,b", "event=-1", "event=0x", "event=+1"] {
            assert_eq!(parse_terms(text), None, "{text}");
        }
    }

    #[test]
    fn scales() {
        assert_eq!(parse_scale("2.3283064365386962890625e-10\n"), Some(2.328_306_436_538_696_3e-10));
        assert_eq!(parse_scale("nan"), None);
        assert_eq!(parse_scale("x"), None);
    }
}
