//! How an event is asked of the kernel, in words.
//!
//! **Invariant:** it shows what is in the event; all that it looks up is what the PMU of the cores is called here.

use std::fmt::Write;

use pmux_abi::attr::{AttrFlags, EventType};
use pmux_linux::catalog::{Catalog, PmuRole};

use super::{Event, EventSource, Generic};

const FLAGS: [(AttrFlags, &str); 8] = [
    (AttrFlags::EXCLUDE_USER, "exclude_user"),
    (AttrFlags::EXCLUDE_KERNEL, "exclude_kernel"),
    (AttrFlags::EXCLUDE_HV, "exclude_hv"),
    (AttrFlags::EXCLUDE_HOST, "exclude_host"),
    (AttrFlags::EXCLUDE_GUEST, "exclude_guest"),
    (AttrFlags::EXCLUDE_IDLE, "exclude_idle"),
    (AttrFlags::PINNED, "pinned"),
    (AttrFlags::EXCLUSIVE, "exclusive"),
];

/// What generic events call the PMU of the cores, whatever its name on a machine.
const CORE: &str = "cpu";

impl Event {
    /// Says in one line how the event is encoded: `cpu/event=0x3c,umask=0x0/  type 4, config 0x3c, exclude_guest`.
    #[must_use]
    pub fn encoding(&self) -> String {
        match &self.source {
            EventSource::Tool(_) => "measured by pmux itself, without an event of the kernel".to_owned(),
            EventSource::Kernel { pmu } => self.encoding_of(pmu),
        }
    }

    /// The same with the names that PMUs have on this machine: [`Event::counted_by`].
    #[must_use]
    pub fn encoding_on(&self, catalog: &Catalog) -> String {
        self.counted_by(catalog).map_or_else(|| self.encoding(), |pmus| self.encoding_of(&pmus.join("|")))
    }

    /// The PMUs that count it on this machine, as sysfs calls them; `None` for what pmux measures itself.
    ///
    /// Generic events are counted by the PMU of the cores. That is `cpu` on most machines, and otherwise `armv8_pmuv3_0`,
    /// or `cpu_core` and `cpu_atom`. Where sysfs shows none, it is called `cpu`.
    #[must_use]
    pub fn counted_by(&self, catalog: &Catalog) -> Option<Vec<String>> {
        let EventSource::Kernel { pmu } = &self.source else { return None };
        if pmu != CORE || catalog.pmu(CORE).is_ok() {
            return Some(vec![pmu.clone()]);
        }
        let names = catalog.pmu_names().map(<[String]>::to_vec).unwrap_or_default();
        let is_core =
            |name: &String| catalog.pmu(name).is_ok_and(|pmu| pmu.role().is_ok_and(|role| role == PmuRole::Core));
        let cores: Vec<String> = names.into_iter().filter(is_core).collect();
        Some(if cores.is_empty() { vec![pmu.clone()] } else { cores })
    }

    fn encoding_of(&self, pmu: &str) -> String {
        let attr = &self.attr;
        let mut text = format!("{pmu}/{}/  type {}", self.fields, attr.kind.0);
        // A write to a String can't fail.
        if let Some(constant) = type_constant(attr.kind) {
            let _ = write!(text, " ({constant})");
        }
        if attr.kind == EventType::BREAKPOINT {
            let (address, len, access) = (attr.config1, attr.config2, attr.bp_type);
            let _ = write!(text, ", bp_addr {address:#x}, bp_len {len}, bp_type {access}");
        } else {
            let _ = write!(text, ", config {:#x}", attr.config);
            if let Some(constant) = config_constant(attr.kind, attr.config) {
                let _ = write!(text, " ({constant})");
            }
            let words = [attr.config1, attr.config2, attr.config3, attr.config4];
            for (i, word) in words.into_iter().enumerate().filter(|(_, word)| *word != 0) {
                let _ = write!(text, ", config{} {word:#x}", i + 1);
            }
        }
        for (flag, name) in FLAGS {
            if attr.flags.contains(flag) {
                let _ = write!(text, ", {name}");
            }
        }
        let precise = attr.precise.bits();
        if precise > 0 {
            let _ = write!(text, ", precise_ip {precise}");
        }
        text
    }
}

fn type_constant(kind: EventType) -> Option<&'static str> {
    Some(match kind {
        EventType::HARDWARE => "PERF_TYPE_HARDWARE",
        EventType::SOFTWARE => "PERF_TYPE_SOFTWARE",
        EventType::TRACEPOINT => "PERF_TYPE_TRACEPOINT",
        EventType::HW_CACHE => "PERF_TYPE_HW_CACHE",
        EventType::RAW => "PERF_TYPE_RAW",
        EventType::BREAKPOINT => "PERF_TYPE_BREAKPOINT",
        _ => return None,
    })
}

fn config_constant(kind: EventType, config: u64) -> Option<&'static str> {
    match Generic::from_config(kind, config)? {
        Generic::Hardware(event) => Some(event.constant()),
        Generic::Software(event) => Some(event.constant()),
        Generic::Cache(_) | Generic::Raw(_) | Generic::Tool(_) => None,
    }
}
