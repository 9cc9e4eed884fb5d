//! The branches of a sample, as `perf script -F brstack` prints them.
//!
//! **Invariant:** pure. What the hardware does not tell is a dash.

use pmux::profile::records::{BranchInfo, BranchStack};
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
        let flag = |bit, letter| if info.contains(bit) { letter } else { '-' };
        let predicted = match flag(BranchInfo::MISPREDICTED, 'M') {
            '-' => flag(BranchInfo::PREDICTED, 'P'),
            missed => missed,
        };
        let (in_tx, abort) = (flag(BranchInfo::IN_TX, 'X'), flag(BranchInfo::ABORT, 'A'));
        let kind = KINDS.get(usize::from(info.branch_type())).unwrap_or(&"");
        let (from, to, cycles) = (branch.from, branch.to, info.cycles());
        let _ = write!(out, " {from:#x}/{to:#x}/{predicted}/{in_tx}/{abort}/{cycles}/{kind} ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::profile::records::Branch;

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
        assert_eq!(out, " 0x10/0x20/M/-/-/7/COND_CALL  0x30/0x40/P/X/A/0/  0x50/0x60/-/-/-/0/ ");
    }
}
