//! What a recording lacks, in sentences.
//!
//! **Invariant:** nothing that is missing is left unsaid; many files of one kind are said once.

use crate::stderr::visible;
use pmux::profile::{BrokenChains, Profile};
use serde_json::{Value, json};

/// So many of one kind are named.
const NAMED: usize = 3;

/// What is said of call chains that were cut.
pub(crate) const CUT_CHAINS: &str = "samples have deeper call chains than are read: their outermost frames are left out \
     (--max-stack N reads N frames, 0 all; 127 is usual)";

/// So many of a hundred call chains may break off without a word: of those that a function begins with, no frame is there yet.
const FEW_PERCENT: u64 = 5;

/// What is said of call chains that break off, if many do.
pub(crate) fn broken_chains(profile: &Profile, found: &BrokenChains) -> Option<String> {
    let BrokenChains { broken, chains, modules } = found;
    if broken * 100 <= chains * FEW_PERCENT {
        return None;
    }
    let name = |module| visible(profile.names.get(profile.modules.get(module).short));
    let mut places: Vec<String> =
        modules.iter().take(NAMED).map(|&(module, samples)| format!("{} ({samples})", name(module))).collect();
    if modules.len() > NAMED {
        places.push(format!("{} others", modules.len() - NAMED));
    }
    Some(format!(
        "{broken} of {chains} call chains break off in {}, where frame pointers do not lead to the callers: these are unknown, or made \
         up. What helps: `record --call-graph dwarf`, or building with -fno-omit-frame-pointer",
        places.join(", ")
    ))
}

pub(crate) fn broken_chains_json(profile: &Profile, found: &BrokenChains) -> Value {
    let BrokenChains { broken, chains, modules } = found;
    let path = |module| profile.names.get(profile.modules.get(module).path);
    let modules: Vec<Value> =
        modules.iter().map(|&(module, samples)| json!({ "dso": path(module), "samples": samples })).collect();
    json!({ "samples": broken, "of": chains, "modules": modules })
}

/// The sentences; `symbols` are those about functions without names.
pub(crate) fn notes(profile: &Profile, symbols: &[String]) -> Vec<String> {
    let losses = profile.losses;
    let counted = [
        (losses.lost, "records were lost while recording, for want of room in the rings"),
        (losses.lost_samples, "samples were lost while recording"),
        (losses.broken, "records are not understood and left out"),
        (losses.of_no_event, "records are of events that the recording does not describe, and left out"),
        (losses.late, "records came too late to be put into the order of time"),
        (losses.cut_off_bytes, "bytes at the end are no whole record: the recording is cut off or broken"),
        (losses.cut_chains, CUT_CHAINS),
    ];
    let mut notes: Vec<String> = profile.notes.clone();
    notes.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    notes.extend(symbols.iter().take(NAMED).cloned());
    if let Some(more @ 1..) = symbols.len().checked_sub(NAMED) {
        notes.push(format!("{more} more programs have no names for their functions (-j names all of them)"));
    }
    notes
}
