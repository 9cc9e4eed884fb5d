//! Which events are opened together, and when a weak group is broken up.
//!
//! **Invariant:** a group that was broken up stays so: every target has the same groups.

use super::column::Column;
use crate::event::{GroupKind, GroupStrength, ParsedGroup};
use pmux_engine::OpenError;
use std::ops::Range;

/// Which columns form groups, in the order of opening.
#[derive(Default)]
pub(super) struct Together(Vec<ColumnGroup>);

struct ColumnGroup {
    columns: Vec<usize>,
    strength: GroupStrength,
}

impl ColumnGroup {
    fn alone(column: usize) -> Self {
        Self { columns: vec![column], strength: GroupStrength::Strong }
    }
}

impl Together {
    pub(super) fn add(&mut self, group: &ParsedGroup, columns: Range<usize>) {
        match group.kind {
            GroupKind::Braced => self.0.push(ColumnGroup { columns: columns.collect(), strength: group.strength }),
            GroupKind::Single => self.0.extend(columns.map(ColumnGroup::alone)),
        }
    }

    /// Adds one column before all others.
    pub(super) fn lead(&mut self, column: usize) {
        self.0.insert(0, ColumnGroup::alone(column));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Vec<usize>> {
        self.0.iter().map(|group| &group.columns)
    }

    /// Breaks up the group of a column, if it is weak and the refusal may be about the group: then each of its events is
    /// tried alone. Answers whether it was broken up.
    pub(super) fn break_up(&mut self, column: usize, error: OpenError, columns: &mut [Column]) -> bool {
        let Some(at) = self.0.iter().position(|group| group.columns.contains(&column)) else { return false };
        let group = &self.0[at];
        let still_wanted = group.columns.iter().filter(|&&column| columns[column].refusal.is_none()).count();
        if group.strength == GroupStrength::Strong || still_wanted < 2 || !is_about_the_group(error) {
            return false;
        }
        let mut names: Vec<&str> = group.columns.iter().map(|&column| &*columns[column].event.name).collect();
        if names.len() > NAMES_LISTED {
            names.splice(NAMES_LISTED.., ["…"]);
        }
        let sentence = format!(
            "the weak group {{{}}} of {} events can't be counted together ({}): its events are counted each by itself",
            names.join(","),
            group.columns.len(),
            why(error, &columns[column].event.name)
        );
        columns[group.columns[0]].regrouping = Some(sentence);
        let alone: Vec<ColumnGroup> = group.columns.iter().copied().map(ColumnGroup::alone).collect();
        self.0.splice(at..=at, alone);
        true
    }
}

/// Whether the event might be taken alone. What the kernel says of the first event of a group is about that event.
fn is_about_the_group(error: OpenError) -> bool {
    match error {
        OpenError::GroupTooLong { .. }
        | OpenError::MixedPmus { .. }
        | OpenError::NeverFits { .. }
        | OpenError::MixedInheritance { .. } => true,
        OpenError::Bank { index, .. } => index > 0 && error.errno() == EINVAL,
        _ => false,
    }
}

/// More events than this are not listed when their group is broken up.
const NAMES_LISTED: usize = 4;

/// What the kernel answers for a group that its PMU could never hold at once.
const EINVAL: i32 = 22;

fn why(error: OpenError, event: &str) -> String {
    match error {
        OpenError::GroupTooLong { most, .. } => format!("{most} events are the most"),
        OpenError::NeverFits { .. } => "there are not so many counters".to_owned(),
        OpenError::MixedPmus { .. } => format!("{event} belongs to another PMU than those before it"),
        OpenError::MixedInheritance { .. } => format!("{event} is inherited in another way than those before it"),
        _ => format!("the kernel doesn't take {event} into it"),
    }
}
