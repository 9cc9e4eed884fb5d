//! Which tasks are followed.
//!
//! A task is in a control group if that is one of the ancestors of its own. That is looked up once for each group that is met: the numbers
//! of groups are never those of others. Read first: [`Programs::followed`].

use super::program::{ID, Programs};
use crate::bpf::{Alu, Assembler, Compare, Helper, Label, MapKind, Reg, Size};
use crate::btf::Btf;

/// Which tasks are followed. The kernel's own never are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffCpuTarget {
    /// All.
    All,
    /// Those of processes that are named.
    Processes,
    /// Threads that are named.
    Threads,
    /// Those that are in the control group (of version 2) with this inode number, or in one below it, when they are met first.
    Cgroup(u64),
}

/// Whether children of tasks that are followed are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffCpuChildren {
    /// They are.
    Follow,
    /// They are not.
    Leave,
}

impl OffCpuTarget {
    /// A control group that is followed is at most so many levels below the root.
    pub const DEEPEST_CGROUP: usize = 32;

    /// The kind of map for the numbers of what is followed, and how long one is. Of control groups, those that were met last stay.
    pub(super) const fn numbers(self) -> (MapKind, u32) {
        if matches!(self, Self::Cgroup(_)) { (MapKind::LruHash, 8) } else { (MapKind::Hash, 4) }
    }
}

/// Where structures of the kernel have what says in which control group a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CgroupPlaces {
    /// The set of the groups of a task, and in it the group of version 2.
    set: i16,
    group: i16,
    /// How many ancestors a group has, and where they are listed, from the root on. It is the last of them itself.
    level: i16,
    ancestors: i16,
    /// What stands for a group in its file system, and its number there.
    node: i16,
    number: i16,
}

impl CgroupPlaces {
    pub(super) fn new(btf: &Btf) -> Option<Self> {
        let member = |of, name| btf.offset(of, name).and_then(|at| i16::try_from(at).ok());
        Some(Self {
            set: member("task_struct", "cgroups")?,
            group: member("css_set", "dfl_cgrp")?,
            level: member("cgroup", "level")?,
            ancestors: member("cgroup", "ancestors")?,
            node: member("cgroup", "kn")?,
            number: member("kernfs_node", "id")?,
        })
    }
}

/// So many levels below the root are looked at.
const DEEPEST: i16 = OffCpuTarget::DEEPEST_CGROUP as i16;
// What stands where on the stack, below R10, and below what stands there in `under_way`: the number of a group, and what was read.
const GROUP: i16 = -120;
const READ: i16 = -128;
// What is kept of a group that was met.
const WITHIN: i32 = 1;
const OUTSIDE: i32 = 2;

impl<'m> Programs<'m> {
    /// As [`Self::value`], of a task that has not just left its CPU: one that came into a control group meanwhile is not known yet, because
    /// it may have run since recording began.
    pub(super) fn value_if_away(&self, asm: &mut Assembler<'m>, other: Label) {
        if !matches!(self.target, OffCpuTarget::Cgroup(_)) {
            return self.value(asm, other);
        }
        self.find(asm);
        asm.jump_if(Reg::R0, Compare::Equal, 0, other).set(Reg::R9, Reg::R0);
    }

    /// `R9` = the value of the task in `R7`, which is made where the task is one of those that are followed.
    pub(super) fn value(&self, asm: &mut Assembler<'m>, other: Label) {
        let there = asm.label();
        self.find(asm);
        asm.jump_if(Reg::R0, Compare::Unequal, 0, there);
        self.followed(asm, other);
        self.make(asm, other);
        asm.place(there).set(Reg::R9, Reg::R0);
    }

    /// Goes on only if the task in `R7`, of which nothing is kept, is to be followed; `R9` is lost.
    pub(super) fn followed(&self, asm: &mut Assembler<'m>, other: Label) {
        let id = match self.target {
            OffCpuTarget::All => return,
            OffCpuTarget::Processes => self.layout.tgid,
            OffCpuTarget::Threads => self.layout.pid,
            OffCpuTarget::Cgroup(number) => return self.in_cgroup(asm, number, other),
        };
        asm.load(Size::Word, Reg::R1, Reg::R7, id).store(Size::Word, Reg::R10, ID, Reg::R1);
        asm.look_up(&self.maps.targets, ID).jump_if(Reg::R0, Compare::Equal, 0, other);
    }

    fn in_cgroup(&self, asm: &mut Assembler<'m>, number: u64, other: Label) {
        let Some(places) = self.layout.cgroups else { return };
        let (unmet, outside, within, keep, done) = (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
        asm.load(Size::Double, Reg::R9, Reg::R7, places.set).jump_if(Reg::R9, Compare::Equal, 0, other);
        asm.load(Size::Double, Reg::R9, Reg::R9, places.group).jump_if(Reg::R9, Compare::Equal, 0, other);
        asm.load(Size::Double, Reg::R1, Reg::R9, places.node).load(Size::Double, Reg::R1, Reg::R1, places.number);
        asm.store(Size::Double, Reg::R10, GROUP, Reg::R1).look_up(&self.maps.targets, GROUP);
        asm.jump_if(Reg::R0, Compare::Equal, 0, unmet).load(Size::Word, Reg::R1, Reg::R0, 0);
        asm.jump_if(Reg::R1, Compare::Equal, WITHIN, done).jump(other).place(unmet);
        for level in 0..=DEEPEST {
            asm.load(Size::Word, Reg::R1, Reg::R9, places.level);
            asm.jump_if(Reg::R1, Compare::Less, i32::from(level), outside).set(Reg::R3, Reg::R9);
            for place in [places.ancestors + 8 * level, places.node, places.number] {
                asm.alu(Alu::Add, Reg::R3, i32::from(place)).stack(Reg::R1, READ).set(Reg::R2, 8);
                asm.call(Helper::ProbeReadKernel).jump_if(Reg::R0, Compare::Unequal, 0, other);
                asm.load(Size::Double, Reg::R3, Reg::R10, READ);
            }
            asm.set_wide(Reg::R2, number).jump_if(Reg::R3, Compare::Equal, Reg::R2, within);
        }
        asm.place(outside).store(Size::Word, Reg::R10, READ, OUTSIDE).jump(keep);
        asm.place(within).store(Size::Word, Reg::R10, READ, WITHIN).place(keep);
        asm.set_map(Reg::R1, &self.maps.targets).stack(Reg::R2, GROUP).stack(Reg::R3, READ).set(Reg::R4, 0);
        asm.call(Helper::MapUpdate).load(Size::Word, Reg::R1, Reg::R10, READ);
        asm.jump_if(Reg::R1, Compare::Unequal, WITHIN, other).place(done);
    }
}
