//! The branches of a sample, as `perf script -F brstack` prints them.
//!
//! **Invariant:** pure. What the hardware does not tell is a dash.

use pmux::profile::records::{Branch, BranchInfo, BranchStack};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// What kinds of branches are called, by their numbers (`PERF_BR_*` in `include/uapi/linux/perf_event.h`); the first one is not known.
const KINDS: [&str; 15] = [
    "",
    "COND",
    "UNCOND",
    "IND",
    "CALL",
    "IND_CALL",
    "RET",
    "SYSCALL",
    "SYSRET",
    "COND_CALL",
    "COND_RET",
    "ERET",
    "IRQ",
    "SERROR",
    "NO_TX",
];

/// Adds each branch, the newest first: `FROM/TO/P/-/-/CYCLES/KIND`, where `M` is mispredicted, `P` predicted, `X` in a transaction and
/// `A` one that it aborted.
pub(super) fn print(stack: &BranchStack<'_>, out: &mut String) {
    for branch in stack.branches.iter() {
        let info = branch.info;
        let predicted = match is_predicted(info) {
            Some(true) => 'P',
            Some(false) => 'M',
            None => '-',
        };
        let flag = |bit, letter| if info.contains(bit) { letter } else { '-' };
        let (in_tx, abort) = (flag(BranchInfo::IN_TX, 'X'), flag(BranchInfo::ABORT, 'A'));
        let (from, to, cycles, kind) = (branch.from, branch.to, info.cycles(), kind(info));
        let _ = write!(out, " {from:#x}/{to:#x}/{predicted}/{in_tx}/{abort}/{cycles}/{kind} ");
    }
}

/// The branches for programs, the newest first. What the hardware does not tell is `null`: a prediction, 0 cycles, a kind without name.
pub(super) fn to_json(stack: &BranchStack<'_>) -> Json {
    let known = |kind: &'static str| Some(kind).filter(|kind| !kind.is_empty());
    let branch = |branch: &Branch| {
        json!({
            "from": format!("{:#x}", branch.from),
            "to": format!("{:#x}", branch.to),
            "predicted": is_predicted(branch.info),
            "in_tx": branch.info.contains(BranchInfo::IN_TX),
            "abort": branch.info.contains(BranchInfo::ABORT),
            "cycles": Some(branch.info.cycles()).filter(|cycles| *cycles != 0),
            "kind": known(kind(branch.info)),
        })
    };
    stack.branches.iter().map(|one| branch(&one)).collect()
}

fn is_predicted(info: BranchInfo) -> Option<bool> {
    let missed = info.contains(BranchInfo::MISPREDICTED);
    (missed || info.contains(BranchInfo::PREDICTED)).then_some(!missed)
}

fn kind(info: BranchInfo) -> &'static str {
    KINDS.get(usize::from(info.branch_type())).unwrap_or(&"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_letters() {
        let branches = [
            Branch { from: 0x10, to: 0x20, info: BranchInfo(0b1 | 7 << 4 | 9 << 20) },
            Branch { from: 0x30, to: 0x40, info: BranchInfo(0b1110) },
            Branch { from: 0x50, to: 0x60, info: BranchInfo(0) },
        ];
        let stack = BranchStack { branches: branches[..].into(), ..BranchStack::default() };
        let mut out = String::new();
        print(&stack, &mut out);
        let first = json!({"from": "0x10", "to": "0x20", "predicted": false, "in_tx": false, "abort": false, "cycles": 7,
            "kind": "COND_CALL"});
        let all = to_json(&stack);
        assert_eq!((&all[0], &all[1]["predicted"], &all[2]["cycles"]), (&first, &json!(true), &Json::Null));
        assert_eq!(out, " 0x10/0x20/M/-/-/7/COND_CALL  0x30/0x40/P/X/A/0/  0x50/0x60/-/-/-/0/ ");
    }
}
