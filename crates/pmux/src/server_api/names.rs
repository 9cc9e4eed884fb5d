//! An attribute in words, for lists of what others have asked.
//!
//! **Invariant:** [`describe`] looks at nothing but the attribute; what has no name that is the same on every machine is a number.

use crate::event::Generic;
use crate::refusal::breakpoint_name;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use std::collections::HashMap;
use std::fmt::Write as _;

impl Session {
    /// As [`describe`], with the names that tracepoints have on this machine.
    #[must_use]
    pub fn describe(&self, attr: &Attr) -> String {
        let known = |number| self.inner.tracepoints.get_or_init(|| self.tracepoint_names()).get(&number).cloned();
        describe_with(attr, known)
    }

    /// None where tracefs can't be read.
    fn tracepoint_names(&self) -> HashMap<u64, String> {
        let catalog = self.catalog();
        let names = |system: String| {
            let names = catalog.tracepoint_names(&system).unwrap_or_default();
            names.into_iter().filter_map(move |name| {
                let number = catalog.tracepoint(&system, &name).ok()?;
                Some((number, format!("{system}:{name}")))
            })
        };
        catalog.tracepoint_systems().unwrap_or_default().into_iter().flat_map(names).collect()
    }
}

/// The event that an attribute asks for, as it would be written on a command line, where that can be said.
#[must_use]
pub fn describe(attr: &Attr) -> String {
    describe_with(attr, |_| None)
}

fn describe_with(attr: &Attr, tracepoint: impl FnOnce(u64) -> Option<String>) -> String {
    let Attr { kind, config, config1, config2, .. } = *attr;
    let generic = Generic::from_config(kind, config & 0xffff_ffff);
    let mut name = match (generic, kind) {
        (Some(Generic::Hardware(event)), _) => event.canonical().to_owned(),
        (Some(Generic::Software(event)), _) => event.canonical().to_owned(),
        (Some(Generic::Cache(event)), _) => event.name(),
        (_, EventType::RAW) => format!("r{config:x}"),
        (_, EventType::TRACEPOINT) => tracepoint(config).unwrap_or_else(|| format!("tracepoint {config}")),
        (_, EventType::BREAKPOINT) => breakpoint_name(attr),
        _ => {
            let mut name = format!("PMU {} config={config:#x}", kind.0);
            for (word, value) in [("config1", config1), ("config2", config2), ("config3", attr.config3)] {
                if value != 0 {
                    // Writing into a string can't fail.
                    let _ = write!(name, ",{word}={value:#x}");
                }
            }
            name
        }
    };
    let left_out = |flag| attr.flags.contains(flag);
    let modes = match (left_out(AttrFlags::EXCLUDE_USER), left_out(AttrFlags::EXCLUDE_KERNEL)) {
        (false, true) => ":u",
        (true, false) => ":k",
        _ => "",
    };
    name.push_str(modes);
    if left_out(AttrFlags::PINNED) {
        name.push_str(if modes.is_empty() { ":D" } else { "D" });
    }
    if left_out(AttrFlags::INHERIT) {
        name.push_str(" +children");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::attr::breakpoint;

    #[test]
    fn what_has_a_name_gets_it() {
        let attr = |kind, config, flags| describe(&Attr { kind, config, flags, ..Attr::default() });
        let none = AttrFlags::empty();
        assert_eq!(attr(EventType::HARDWARE, 0, none), "cycles");
        assert_eq!(attr(EventType::HARDWARE, 1 | 10 << 32, AttrFlags::EXCLUDE_KERNEL), "instructions:u");
        assert_eq!(attr(EventType::SOFTWARE, 2, AttrFlags::EXCLUDE_USER | AttrFlags::PINNED), "page-faults:kD");
        assert_eq!(attr(EventType::RAW, 0x1a8, AttrFlags::INHERIT), "r1a8 +children");
        assert_eq!(attr(EventType::TRACEPOINT, 317, none), "tracepoint 317");
        let named =
            Attr { kind: EventType::TRACEPOINT, config: 317, flags: AttrFlags::EXCLUDE_KERNEL, ..Attr::default() };
        let known = |number| (number == 317).then(|| "sched:sched_switch".to_owned());
        assert_eq!(describe_with(&named, known), "sched:sched_switch:u");
        assert_eq!(attr(EventType(9), 0x22, none), "PMU 9 config=0x22");
        let watch = Attr {
            kind: EventType::BREAKPOINT,
            bp_type: breakpoint::R | breakpoint::W,
            config1: 0x1000,
            config2: 4,
            ..Attr::default()
        };
        assert_eq!(describe(&watch), "mem:0x1000/4:rw");
    }
}
