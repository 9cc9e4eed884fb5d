//! Names of this machine that were perhaps meant.
//!
//! **Invariant:** it is called only after a name was not found, so it may look at everything; what it can't read it
//! leaves out.

use pmux_linux::catalog::Catalog;

use super::names;
use super::nearest::{nearest, nearest_by};
use super::probe::ProbeAt;

/// For a name that is no event.
pub(super) fn events(catalog: &Catalog, typed: &str) -> Vec<String> {
    if let Some(at) = ProbeAt::from_word(typed) {
        return vec![format!("{}:PATH:FUNCTION", at.word())];
    }
    // The name of a PMU alone: its events are meant.
    if let Ok(pmu) = catalog.pmu(typed) {
        let aliases = pmu.alias_names().unwrap_or_default();
        let mut offers: Vec<String> = aliases.iter().take(3).map(|alias| format!("{typed}/{alias}/")).collect();
        if offers.is_empty()
            && let Some(field) = pmu.formats().ok().and_then(|formats| formats.keys().next())
        {
            offers.push(format!("{typed}/{field}=0x0/"));
        }
        return offers;
    }
    let mut candidates: Vec<(String, String)> = names::all().map(|name| (name.clone(), name)).collect();
    for pmu in catalog.pmu_names().unwrap_or_default() {
        let Ok(pmu) = catalog.pmu(pmu) else { continue };
        for alias in pmu.alias_names().unwrap_or_default() {
            candidates.push((alias.clone(), format!("{}/{alias}/", pmu.name())));
        }
    }
    // A tracepoint without its system: reading them all is slow, and needless where the name is nearly right anyway.
    if typed.contains('_') {
        candidates.extend(all_tracepoints(catalog).map(|(system, name)| (name.clone(), format!("{system}:{name}"))));
    }
    nearest_by(typed, candidates)
}

/// For a name that is no PMU.
pub(super) fn pmus(catalog: &Catalog, typed: &str) -> Vec<String> {
    let names = catalog.pmu_names().unwrap_or_default();
    nearest_by(typed, names.iter().map(|name| (name.clone(), format!("{name}/"))))
}

/// For a tracepoint or pattern that isn't there.
pub(super) fn tracepoints(catalog: &Catalog, system: &str, name: &str) -> Vec<String> {
    let names = catalog.tracepoint_names(system).unwrap_or_default();
    let within = nearest_by(name, names.into_iter().map(|known| (known.clone(), format!("{system}:{known}"))));
    if !within.is_empty() {
        return within;
    }
    let all = all_tracepoints(catalog).map(|(system, name)| format!("{system}:{name}"));
    let near = nearest(&format!("{system}:{name}"), all);
    if !near.is_empty() {
        return near;
    }
    // Not even the system may be right, or a generic event got a wrong ending.
    let systems = catalog.tracepoint_systems().unwrap_or_default();
    nearest(system, systems.into_iter().map(|system| format!("{system}:*")).chain(names::all()))
}

fn all_tracepoints(catalog: &Catalog) -> impl Iterator<Item = (String, String)> {
    catalog.tracepoints_matching("*", "*").unwrap_or_default().into_iter()
}
