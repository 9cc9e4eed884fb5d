//! What a tree says of a kernel that keeps silent.

use super::view::{Layout, Loss, ProcessTree, Reporting, TaskNames};
use pmux_engine::engine::FamilyTally;
use pmux_engine::inherit::{Attribution, Counting, Family};
use pmux_engine::{Count, Nanos};
use pmux_linux::host::LinuxHost;

/// A command that has counted 9, of which children 4; `at` is when its child, and then itself, exited, as far as they have.
fn tree(reported: Option<u64>, loss: Loss, at: [Option<u64>; 2]) -> ProcessTree {
    let (root, child) = (LinuxHost::task(10), LinuxHost::task(11));
    let mut family = Family::new(root, vec![vec![]], Attribution::EachTask, Counting::ByReports, Nanos(1));
    family.fork(root, child, Nanos(2)).unwrap();
    let count = |value| Count { value, enabled: Nanos(value), running: Nanos(value) };
    if let Some(value) = reported {
        family.report(child, 0, count(value)).unwrap();
    }
    for (task, at) in [child, root].into_iter().zip(at) {
        if let Some(at) = at {
            family.exit(task, Nanos(at)).unwrap();
        }
    }
    // What has not been reported is in the root's own part.
    let retired = count(reported.unwrap_or(0));
    let tally = FamilyTally { own: count(9 - retired.value), retired, total: count(9) };
    let layout = Layout { columns: &[0], width: 1, reports: 1, loss, mappings: loss };
    TaskNames::new(10).tree(&family, &[tally], &layout, Nanos(10_000_000))
}

fn counts(tree: &ProcessTree) -> Vec<Option<u64>> {
    tree.processes.iter().map(|process| process.counts[0].map(|count| count.value)).collect()
}

#[test]
fn a_child_that_reported_nothing_has_no_count_where_no_task_reports() {
    for exits in [[Some(3), Some(4)], [Some(3), None]] {
        let silent = tree(None, Loss::None, exits);
        assert_eq!((silent.reporting, silent.lost_records), (Reporting::Never, 0));
        assert_eq!(counts(&silent), [Some(9), None]);
    }
}

#[test]
fn what_may_be_a_loss_says_nothing_about_the_kernel() {
    let lost = tree(None, Loss::Some, [Some(3), Some(4)]);
    assert_eq!((lost.reporting, lost.lost_records), (Reporting::Known, 1));
    let reported = tree(Some(4), Loss::None, [Some(3), Some(4)]);
    assert_eq!((reported.reporting, reported.lost_records), (Reporting::Known, 0));
    assert_eq!(counts(&reported), [Some(5), Some(4)]);
    // No child has exited, or one just now: the report may be on the way.
    for exits in [[None, None], [Some(9_999_999), None]] {
        assert_eq!(tree(None, Loss::None, exits).reporting, Reporting::Known, "{exits:?}");
    }
}
