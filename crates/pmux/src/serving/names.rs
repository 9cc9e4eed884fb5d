//! An attribute in words, for lists of what others have asked.
//!
//! **Invariant:** it looks at nothing but the attribute; what has no name that is the same on every machine is a number.

use crate::event::Generic;
use pmux_abi::attr::{Attr, AttrFlags, EventType, breakpoint};
use std::fmt::Write as _;

/// The event that an attribute asks for, as it would be written on a command line, where that can be said.
#[must_use]
pub fn describe(attr: &Attr) -> String {
    let Attr { kind, config, config1, config2, .. } = *attr;
    let generic = Generic::from_config(kind, config & 0xffff_ffff);
    let mut name = match (generic, kind) {
        (Some(Generic::Hardware(event)), _) => event.canonical().to_owned(),
        (Some(Generic::Software(event)), _) => event.canonical().to_owned(),
        (Some(Generic::Cache(event)), _) => event.name(),
        (_, EventType::RAW) => format!("r{config:x}"),
        (_, EventType::TRACEPOINT) => format!("tracepoint {config}"),
        (_, EventType::BREAKPOINT) => {
            let letters = [(breakpoint::R, 'r'), (breakpoint::W, 'w'), (breakpoint::X, 'x')];
            let access: String =
                letters.iter().filter(|(bit, _)| attr.bp_type & bit != 0).map(|&(_, letter)| letter).collect();
            format!("mem:{config1:#x}/{config2}:{access}")
        }
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

    #[test]
    fn what_has_a_name_gets_it() {
        let attr = |kind, config, flags| describe(&Attr { kind, config, flags, ..Attr::default() });
        let none = AttrFlags::empty();
        assert_eq!(attr(EventType::HARDWARE, 0, none), "cycles");
        assert_eq!(attr(EventType::HARDWARE, 1 | 10 << 32, AttrFlags::EXCLUDE_KERNEL), "instructions:u");
        assert_eq!(attr(EventType::SOFTWARE, 2, AttrFlags::EXCLUDE_USER | AttrFlags::PINNED), "page-faults:kD");
        assert_eq!(attr(EventType::RAW, 0x1a8, AttrFlags::INHERIT), "r1a8 +children");
        assert_eq!(attr(EventType::TRACEPOINT, 317, none), "tracepoint 317");
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
