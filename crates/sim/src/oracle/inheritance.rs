//! Families: who inherited which group, and what each of them counted.
//!
//! What it is: the model of fork, clone, exec and exit. A group that inherits is copied, whole, from each task to the
//! tasks that it forks; every copy counts for itself, and the root's count is the sum over all copies that there
//! ever were. Counters are plenty: an event runs whenever it is enabled.
//! Read first: [`Copy`], then [`InheritModel::fork`] and [`InheritModel::tally`].
//!
//! **Invariant:** no count is ever moved from one place to another; own, live and retired are sums over the copies,
//! made anew for each question.

use pmux_engine::engine::Exec;
use pmux_engine::{Count, Nanos, TaskId};
use std::collections::BTreeMap;

/// Names a group that was opened; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RootKey(usize);

/// Whether children get a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// They do: processes and threads alike.
    Children,
    /// They do not.
    NoTask,
}

/// Whether a copy is still there to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyState {
    /// Its task lives, and may be looked at.
    Counts,
    /// Its task lives, but must not be looked at any more.
    Blind,
    /// Its task has exited.
    Retired,
}

/// One event of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CopyEvent {
    rate: u64,
    on: bool,
    waits_for_exec: bool,
    count: Count,
}

/// The group in one task: in the task that it was opened on, or in one that inherited it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Copy {
    task: TaskId,
    state: CopyState,
    events: Vec<CopyEvent>,
    /// What it had counted when its task exited. A reset of the root does not change it.
    reported: Option<Vec<Count>>,
}

/// A group that was opened, with all copies of it; the first one is its own.
#[derive(Clone, Debug)]
struct Root {
    inherit: Inherit,
    copies: Vec<Copy>,
    forks: u64,
    uncounted: u64,
}

/// An event that is to be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEvent {
    /// How much it counts in a nanosecond.
    pub rate: u64,
    /// Whether an exec enables it.
    pub waits_for_exec: bool,
}

/// What a root event has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InheritTally {
    /// In its own task.
    pub own: Count,
    /// In children that live.
    pub live: Count,
    /// In children that have exited.
    pub retired: Count,
}

impl InheritTally {
    /// Everything.
    #[must_use]
    pub fn total(&self) -> Count {
        let mut total = self.own;
        total += self.live;
        total += self.retired;
        total
    }
}

/// Which part of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RootPart {
    /// One event.
    Event(usize),
    /// All of them.
    Group,
}

impl RootPart {
    fn holds(self, index: usize) -> bool {
        match self {
            Self::Event(event) => event == index,
            Self::Group => true,
        }
    }
}

/// All tasks and all groups that are open; at first, none.
#[derive(Clone, Debug, Default)]
pub struct InheritModel {
    alive: Vec<TaskId>,
    roots: BTreeMap<RootKey, Root>,
    next: usize,
}

impl InheritModel {
    /// A task that no task here has forked.
    pub fn task(&mut self, task: TaskId) {
        self.alive.push(task);
    }

    /// The tasks that live.
    #[must_use]
    pub fn alive(&self) -> &[TaskId] {
        &self.alive
    }

    /// Opens a group on a task, disabled; the leader first.
    pub fn open(&mut self, task: TaskId, events: &[NewEvent], inherit: Inherit) -> RootKey {
        let key = RootKey(self.next);
        self.next += 1;
        let event = |new: &NewEvent| CopyEvent {
            rate: new.rate,
            on: false,
            waits_for_exec: new.waits_for_exec,
            count: Count::default(),
        };
        let own = Copy { task, state: CopyState::Counts, events: events.iter().map(event).collect(), reported: None };
        self.roots.insert(key, Root { inherit, copies: vec![own], forks: 0, uncounted: 0 });
        key
    }

    /// Closes a group: all of its copies are gone, those of live children too.
    pub fn close(&mut self, root: RootKey) {
        self.roots.remove(&root);
    }

    /// Enables or disables part of a group, in all copies that can still count.
    fn switch(&mut self, root: RootKey, part: RootPart, on: bool) {
        for copy in self.roots.get_mut(&root).into_iter().flat_map(|root| &mut root.copies) {
            let events = copy.events.iter_mut().enumerate().filter(|(index, _)| part.holds(*index));
            events.filter(|_| copy.state == CopyState::Counts).for_each(|(_, event)| event.on = on);
        }
    }

    /// Enables part of a group, in all copies.
    pub fn enable(&mut self, root: RootKey, part: RootPart) {
        self.switch(root, part, true);
    }

    /// Disables part of a group, in all copies.
    pub fn disable(&mut self, root: RootKey, part: RootPart) {
        self.switch(root, part, false);
    }

    /// Sets the value of part of a group to 0, in all copies, also of tasks that exited. Times stay, and so does what
    /// was written down of children when they exited.
    pub fn reset(&mut self, root: RootKey, part: RootPart) {
        for copy in self.roots.get_mut(&root).into_iter().flat_map(|root| &mut root.copies) {
            let events = copy.events.iter_mut().enumerate().filter(|(index, _)| part.holds(*index));
            events.for_each(|(_, event)| event.count.value = 0);
        }
    }

    /// A task forks a child, or starts a thread. For each group that inherits and counts in the parent, the child
    /// gets a copy, whole, in the same states, with nothing counted yet. Groups for which `refused` says so can't be
    /// given to the child: it, and whatever it forks, is not counted there.
    pub fn fork(&mut self, parent: TaskId, child: TaskId, refused: impl Fn(RootKey) -> bool) {
        self.alive.push(child);
        for (&key, root) in &mut self.roots {
            let Some(from) = root.copies.iter().find(|copy| copy.task == parent && copy.state == CopyState::Counts)
            else {
                continue;
            };
            if root.inherit == Inherit::NoTask {
                continue;
            }
            let events = from.events.iter().map(|event| CopyEvent { count: Count::default(), ..*event }).collect();
            root.forks += 1;
            if refused(key) {
                root.uncounted += 1;
            } else {
                root.copies.push(Copy { task: child, state: CopyState::Counts, events, reported: None });
            }
        }
    }

    /// A task executes another program. Events must not see into one that changes its rights, and stop for good.
    pub fn exec(&mut self, task: TaskId, exec: Exec) {
        for copy in self.copies_in(task) {
            match exec {
                Exec::ChangesRights => copy.state = CopyState::Blind,
                Exec::Plain => {
                    for event in copy.events.iter_mut().filter(|event| event.waits_for_exec) {
                        event.on = true;
                        event.waits_for_exec = false;
                    }
                }
            }
        }
    }

    /// A task exits: its copies count no more. A parent may exit before its children.
    pub fn exit(&mut self, task: TaskId) {
        self.alive.retain(|alive| *alive != task);
        for copy in self.roots.values_mut().flat_map(|root| &mut root.copies) {
            if copy.task == task && copy.state != CopyState::Retired {
                copy.state = CopyState::Retired;
                copy.reported = Some(copy.events.iter().map(|event| event.count).collect());
            }
        }
    }

    fn copies_in(&mut self, task: TaskId) -> impl Iterator<Item = &mut Copy> {
        let copies = self.roots.values_mut().flat_map(|root| &mut root.copies);
        copies.filter(move |copy| copy.task == task && copy.state == CopyState::Counts)
    }

    /// Lets a task run. An event counts while it and the leader of its group are enabled.
    pub fn run(&mut self, task: TaskId, ns: u64) {
        for copy in self.copies_in(task) {
            let leader_is_on = copy.events.first().is_some_and(|leader| leader.on);
            for event in copy.events.iter_mut().filter(|event| event.on && leader_is_on) {
                event.count += Count { value: event.rate * ns, enabled: Nanos(ns), running: Nanos(ns) };
            }
        }
    }

    /// What each event of a group has counted; empty where it is closed.
    #[must_use]
    pub fn tally(&self, root: RootKey) -> Vec<InheritTally> {
        let Some(root) = self.roots.get(&root) else { return Vec::new() };
        let mut tallies = vec![InheritTally::default(); root.copies[0].events.len()];
        for (index, copy) in root.copies.iter().enumerate() {
            for (tally, event) in tallies.iter_mut().zip(&copy.events) {
                match copy.state {
                    _ if index == 0 => tally.own += event.count,
                    CopyState::Retired => tally.retired += event.count,
                    CopyState::Counts | CopyState::Blind => tally.live += event.count,
                }
            }
        }
        tallies
    }

    /// What each child that exited had counted then, in the order in which they were forked.
    #[must_use]
    pub fn reports(&self, root: RootKey) -> Vec<(TaskId, Vec<Count>)> {
        let copies = self.roots.get(&root).map(|root| &root.copies[1..]).unwrap_or_default();
        copies.iter().filter_map(|copy| Some((copy.task, copy.reported.clone()?))).collect()
    }

    /// How many children that live are counted for a group.
    #[must_use]
    pub fn live_children(&self, root: RootKey) -> usize {
        let copies = self.roots.get(&root).map(|root| &root.copies[1..]).unwrap_or_default();
        copies.iter().filter(|copy| copy.state != CopyState::Retired).count()
    }

    /// How many children a group was to be inherited by, and by how many of them it could not be.
    #[must_use]
    pub fn forks(&self, root: RootKey) -> (u64, u64) {
        self.roots.get(&root).map_or((0, 0), |root| (root.forks, root.uncounted))
    }
}
