//! From what was typed to spots.
//!
//! What it is: each target is looked for in a program as it is mapped, until it is found; what can't be found there is a
//! sentence.
//!
//! **Invariant:** nothing is opened here.

use pmux::event::Access;
use pmux::symbol::{AddressSpec, FindError, Finding, FoundAddress, FoundKind, SearchScope, Symbolizer};
use pmux::watch::WatchTarget;

#[derive(Clone, Debug)]
pub(super) struct TargetArg {
    /// As it was typed.
    pub(super) text: String,
    /// What it means.
    pub(super) wanted: AddressSpec,
    pub(super) found: bool,
    /// Why it was not found, the last time.
    pub(super) problem: Option<String>,
}

/// Takes the targets apart.
pub(super) fn parse(texts: &[String]) -> Result<Vec<TargetArg>, String> {
    let target = |text: &String| {
        let wanted = text.parse::<AddressSpec>().map_err(|error| error.to_string())?;
        Ok(TargetArg { text: text.clone(), wanted, found: false, problem: None })
    };
    texts.iter().map(target).collect()
}

/// A spot, and which target it belongs to.
#[derive(Clone, Debug)]
pub(super) struct ResolvedTarget {
    pub(super) target: usize,
    pub(super) watch_target: WatchTarget,
    /// What the user has to know about it.
    pub(super) notes: Vec<String>,
    /// What of that is said at once, because it may be that nothing is ever hit there.
    pub(super) doubt: Option<String>,
}

/// What is done with a target that isn't there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing {
    /// It is an error, unless something that the program is linked with has still to be mapped.
    Error,
    /// It is an error: the program runs, and what it is linked with is there.
    Final,
    /// It may come later.
    Later,
}

/// Looks for those of the targets that `wants` names.
pub(super) fn find(
    targets: &mut [TargetArg],
    wants: impl Fn(usize) -> bool,
    symbolizer: &mut Symbolizer,
    place: SearchScope<'_>,
    missing: Missing,
) -> Result<Vec<ResolvedTarget>, String> {
    let mut places = Vec::new();
    for (index, target) in targets.iter_mut().enumerate().filter(|(index, _)| wants(*index)) {
        match symbolizer.find(&target.wanted, place) {
            Ok(Finding::Found(found)) => {
                target.found = true;
                target.problem = None;
                places.extend(found.into_iter().map(|found| as_place(index, found)));
            }
            // Something that is no access is hardly a symbol of a library that is still to come.
            Ok(Finding::NotYet(why @ FindError::UnknownModule { letter: Some(_), .. }))
                if missing == Missing::Error =>
            {
                return Err(why.to_string());
            }
            Ok(Finding::NotYet(why)) if missing == Missing::Final => return Err(advised(&why, place, missing)),
            Ok(Finding::NotYet(why)) => target.problem = Some(why.to_string()),
            Err(error) if missing == Missing::Later && error.may_come() => target.problem = Some(error.to_string()),
            Err(error) => return Err(advised(&error, place, missing)),
        }
    }
    Ok(places)
}

/// Why something isn't there, and what else could be done, where that may help.
fn advised(error: &FindError, place: SearchScope<'_>, missing: Missing) -> String {
    let advice = match (place, missing) {
        (SearchScope::Kernel, _) => "if it is in a program: name a command, or a process with -p",
        (_, Missing::Error) => "where a program that it starts has it, or a plugin: --later",
        (_, Missing::Final) => "where a library has it that is loaded later: --later",
        (_, Missing::Later) => return error.to_string(),
    };
    let could_be_there = match (place, error) {
        (SearchScope::Kernel, FindError::UnknownSymbol { .. } | FindError::NoKernelData { .. }) => true,
        _ => error.may_come() && !error.has_better_advice(),
    };
    if could_be_there { format!("{error}\n  {advice}") } else { error.to_string() }
}

fn as_place(target: usize, found: FoundAddress) -> ResolvedTarget {
    let FoundAddress { address, mut len, access, kind, name, mut notes, module } = found;
    if kind == FoundKind::Code && access == Access::EXECUTE {
        len = Access::EXECUTE.default_len();
    }
    // The kernel has addresses of which nothing is known as well.
    let doubt = notes.first().filter(|_| kind == FoundKind::Unknown && module.is_none()).cloned();
    let watch_target = WatchTarget { name, address, len, access };
    if let Ok(pieces) = watch_target.pieces(0)
        && pieces.len() > 1
    {
        let lens: Vec<_> = pieces.iter().map(|piece| piece.len.to_string()).collect();
        notes.push(format!(
            "{} takes {} debug registers ({} bytes): an access that touches two of them is two hits",
            watch_target.name,
            pieces.len(),
            lens.join(" + ")
        ));
    }
    ResolvedTarget { target, watch_target, notes, doubt }
}

/// Where it is and what is waited for, in a few words.
pub(super) fn about(watch_target: &WatchTarget) -> String {
    let bytes = if watch_target.len == 1 { "1 byte".to_owned() } else { format!("{} bytes", watch_target.len) };
    let access = match watch_target.access {
        Access::WRITE => "writes",
        Access::READ => "reads",
        Access::READ_WRITE => "reads and writes",
        Access::EXECUTE => return format!("{:#x}, executions", watch_target.address),
        other => return format!("{:#x}, {bytes}, {other}", watch_target.address),
    };
    format!("{:#x}, {bytes}, {access}", watch_target.address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_in_words() {
        let watch_target = |len, access| WatchTarget { name: "x".to_owned(), address: 0x40, len, access };
        assert_eq!(about(&watch_target(8, Access::WRITE)), "0x40, 8 bytes, writes");
        assert_eq!(about(&watch_target(1, Access::READ_WRITE)), "0x40, 1 byte, reads and writes");
        assert_eq!(about(&watch_target(8, Access::EXECUTE)), "0x40, executions");
    }

    #[test]
    fn bad_targets_are_pointed_at() {
        let error = parse(&["ok".to_owned(), "x/0y".to_owned()]).unwrap_err();
        assert!(error.contains('^'), "{error}");
    }
}
