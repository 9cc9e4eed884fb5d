//! What a sample tells of a memory access: `PERF_SAMPLE_DATA_SRC`, in the words of `perf script`.
//!
//! **Invariant:** pure. A part that says nothing is `N/A`.

use std::fmt::Write;

/// Levels that the older bits name, from the fourth bit of the level on.
const LEVELS: [&str; 11] = [
    "L1",
    "LFB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];

/// Some bits of a number.
fn bits(value: u64, from: u32, count: u32) -> u64 {
    value >> from & ((1 << count) - 1)
}

/// The names of the bits that are set, with `or` between them; `N/A` if there is none.
fn set(bits: u64, names: &[&'static str]) -> String {
    let named = names.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    let named: Vec<&str> = named.map(|(_, name)| *name).collect();
    if named.is_empty() { "N/A".to_owned() } else { named.join(" or ") }
}

/// With what came of it: the first bit is `N/A`, the next two are hit and miss.
fn found(bits: u64, names: &[&'static str]) -> String {
    let mut text = set(bits >> 3, names);
    for (bit, what) in [(1, " hit"), (2, " miss")] {
        if bits & (1 << bit) != 0 {
            text.push_str(what);
        }
    }
    text
}

fn level_number(number: u64) -> &'static str {
    match number {
        1 => "L1",
        2 => "L2",
        3 => "L3",
        4 => "L4",
        9 => "CXL",
        10 => "I/O",
        11 => "Any cache",
        12 => "LFB",
        13 => "RAM",
        14 => "PMEM",
        _ => "N/A",
    }
}

/// Appends the number and what it says. Source of the bits: `union perf_mem_data_src`, perf_event_open(2).
pub(super) fn push(value: u64, out: &mut String) {
    let operation = set(bits(value, 1, 4), &["LOAD", "STORE", "PFETCH", "EXEC"]);
    let mut level = found(bits(value, 5, 14), &LEVELS);
    let remote = if bits(value, 37, 1) != 0 { "Remote " } else { "" };
    let _ = write!(level, " or {remote}{}", level_number(bits(value, 33, 4)));
    let snoop = set(bits(value, 20, 4) | bits(value, 38, 2) << 4, &["None", "Hit", "Miss", "HitM", "Fwd", "Peer"]);
    let lock = set(bits(value, 25, 1), &["Yes"]);
    let lock = if lock == "N/A" && bits(value, 24, 1) == 0 && value != 0 { "No".to_owned() } else { lock };
    let tlb = found(bits(value, 26, 7), &["L1", "L2", "Walker", "Fault"]);
    let blocked = set(bits(value, 41, 2), &["Data", "Addr"]);
    let _ = write!(out, "{value:16x} |OP {operation}|LVL {level}|SNP {snoop}|TLB {tlb}|LCK {lock}|BLK  {blocked}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_named_and_nothing_made_up() {
        // A load that the second level had.
        let load = 1 << 1 | (1 << 1 | 1 << 5) << 5 | 1 << 20 | (1 << 1 | 1 << 3) << 26 | 2 << 33 | 1 << 42;
        for (value, expected) in [
            (0x1e_0508_0021_u64, "|OP N/A|LVL N/A or N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A"),
            (load, "|OP LOAD|LVL L2 hit or L2|SNP None|TLB L1 hit|LCK No|BLK  Addr"),
        ] {
            let mut text = String::new();
            push(value, &mut text);
            assert_eq!(text.trim_start(), format!("{value:x} {expected}"));
        }
    }
}
