//! Which groups are on, and which would be, along the paths of cgroups.
//!
//! What it is: for a PMU whose counters are handed out below ([`crate::pmu::Delegated::PLACEMENT`]), what the mask of used slots is
//! for others: whether a group finds room beside those that can be on at the same moment.
//!
//! **Invariant:** on every path, what is on fits together; who is on no path with a group is not asked about it.

use super::sched_in::are_free;
use crate::pmu::{CgroupNode, CgroupTree, PmuModel, Slot, SlotMask};
use crate::target::Demand;
use alloc::vec::Vec;
use core::mem;

/// The events of one cgroup, or those without one.
#[derive(Default, Debug)]
pub(super) struct Lines {
    /// Those that have a slot.
    on: Occupied,
    /// Those that found room in the look at all groups that is under way, or in the last one.
    planned: Occupied,
}

#[derive(Default, Debug)]
struct Occupied {
    /// What each may be on.
    masks: Vec<SlotMask>,
    /// Whether they are of a group that wants to be alone.
    exclusive: bool,
}

impl Occupied {
    fn take(&mut self, masks: &[SlotMask], demand: Demand) {
        self.masks.extend_from_slice(masks);
        self.exclusive |= demand.exclusive && !masks.is_empty();
    }

    fn clear(&mut self) {
        self.masks.clear();
        self.exclusive = false;
    }
}

#[derive(Default)]
pub(super) struct LinesByPath {
    pub(super) tree: CgroupTree<Lines>,
    /// Scratch for one group and one path, kept so that a turn does not allocate.
    wanted: Vec<SlotMask>,
    masks: Vec<SlotMask>,
    slots: Vec<Slot>,
}

impl LinesByPath {
    pub(super) fn begin_look(&mut self) {
        self.tree.all().for_each(|lines| lines.planned.clear());
    }

    /// Whether a group there, whose events may be on these, goes on beside those that are on.
    pub(super) fn has_room(&mut self, group: (CgroupNode, Demand), wanted: &[SlotMask], model: &dyn PmuModel) -> bool {
        self.fits(group, wanted, |lines| &lines.on, model)
    }

    /// Plans for a group, if it fits beside those that are planned.
    pub(super) fn plan(
        &mut self,
        (node, demand): (CgroupNode, Demand),
        events: impl Iterator<Item = SlotMask>,
        model: &dyn PmuModel,
    ) -> bool {
        let mut wanted = mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(events);
        let fits = self.fits((node, demand), &wanted, |lines| &lines.planned, model);
        if fits {
            self.tree.at(node).planned.take(&wanted, demand);
        }
        self.wanted = wanted;
        fits
    }

    /// Whether events that may be on these find room on every path through a spot.
    fn fits(
        &mut self,
        (node, demand): (CgroupNode, Demand),
        wanted: &[SlotMask],
        beside: fn(&Lines) -> &Occupied,
        model: &dyn PmuModel,
    ) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let Self { tree, masks, slots, .. } = self;
        tree.on_all_paths(node, |tree, end| {
            masks.clear();
            for lines in tree.up(end) {
                let there = beside(lines);
                if there.exclusive || (demand.exclusive && !there.masks.is_empty()) {
                    return false;
                }
                masks.extend_from_slice(&there.masks);
            }
            masks.extend_from_slice(wanted);
            slots.clear();
            slots.resize(masks.len(), Slot::NONE);
            model.place(masks, SlotMask::default(), slots) && are_free(slots, SlotMask::default())
        })
    }

    pub(super) fn goes_on(&mut self, (node, demand): (CgroupNode, Demand), allowed: SlotMask) {
        self.tree.at(node).on.take(&[allowed], demand);
    }

    pub(super) fn goes_off(&mut self, node: CgroupNode, allowed: SlotMask) {
        let on = &mut self.tree.at(node).on;
        if let Some(line) = on.masks.iter().rposition(|&other| other == allowed) {
            on.masks.swap_remove(line);
        }
        // A group that wants to be alone was alone.
        on.exclusive &= !on.masks.is_empty();
    }
}
