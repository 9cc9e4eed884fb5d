//! What there is by now: tasks, events, CPUs.
//!
//! What it is: what a maker of statements must know so that its statements make sense, and no more.
//! Read first: [`Bag`], then [`GeneratorState`].
//!
//! **Invariant:** nothing here costs more with more tasks and events: no code walks over all of them.

use super::rng::Rng;
use crate::scenario::ast::{Flags, Name, OpenForm, Samples, Target};
use pmux_engine::CpuId;
use std::collections::{HashMap, VecDeque};

/// A key of a [`Bag`]; none is used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key(u64);

/// Things out of which one is drawn by chance.
pub(super) struct Bag<T> {
    all: Vec<(Key, T)>,
    at: HashMap<Key, usize>,
    keys: u64,
}

impl<T> Bag<T> {
    fn new() -> Self {
        Self { all: Vec::new(), at: HashMap::new(), keys: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    fn insert(&mut self, thing: T) -> Key {
        let key = Key(self.keys);
        self.keys += 1;
        self.at.insert(key, self.all.len());
        self.all.push((key, thing));
        key
    }

    fn remove(&mut self, key: Key) -> Option<T> {
        let at = self.at.remove(&key)?;
        let (_, thing) = self.all.swap_remove(at);
        if let Some((moved, _)) = self.all.get(at) {
            self.at.insert(*moved, at);
        }
        Some(thing)
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.at.get(&key).map(|&at| &self.all[at].1)
    }

    fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.at.get(&key).map(|&at| &mut self.all[at].1)
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> Option<(Key, &T)> {
        rng.pick_any(&self.all).map(|(key, thing)| (*key, thing))
    }
}

pub(super) struct LiveTask {
    pub(super) name: Name,
    thread_of: Option<Key>,
    threads: u32,
    /// The first of its line.
    family: Option<Key>,
}

impl LiveTask {
    /// Whether an exec of it would end other tasks.
    pub(super) const fn can_exec(&self) -> bool {
        self.thread_of.is_none() && self.threads == 0
    }
}

/// What one statement has opened, as far as it is open.
pub(super) struct Opened {
    pub(super) names: Vec<Name>,
    pub(super) breakpoints: Vec<Name>,
    pub(super) form: OpenForm,
    pub(super) target: Target,
    pub(super) flags: Flags,
    pub(super) samples: Option<Samples>,
}

impl Opened {
    /// Whether it is for whatever runs on some CPUs.
    pub(super) const fn is_on_cpus(&self) -> bool {
        matches!(self.target, Target::Cpus(_) | Target::SystemWide(_))
    }

    /// The breakpoints that can become others.
    pub(super) fn changeable(&self) -> &[Name] {
        let is_one = match &self.target {
            Target::Cpus(cpus) => cpus.as_slice().len() == 1,
            target => !matches!(target, Target::SystemWide(_)),
        };
        if is_one { &self.breakpoints } else { &[] }
    }
}

/// So many tasks of one line live at most: what a statement costs that concerns all of a family is bounded, too.
const FAMILY_MAX: u32 = 24;
/// So many names that stand for nothing any more are remembered.
const GONE: usize = 8;

pub(super) struct GeneratorState {
    pub(super) tasks: Bag<LiveTask>,
    pub(super) opened: Bag<Opened>,
    /// How many of these are on CPUs, whatever runs there.
    pub(super) on_cpus: u64,
    pub(super) online: Vec<CpuId>,
    pub(super) offline: Vec<CpuId>,
    /// How many of each line live, by its first.
    families: HashMap<Key, u32>,
    pub(super) exited: VecDeque<Name>,
    pub(super) closed: VecDeque<Name>,
    names: u64,
}

impl GeneratorState {
    pub(super) fn new(cpus: u32) -> Self {
        Self {
            tasks: Bag::new(),
            opened: Bag::new(),
            on_cpus: 0,
            online: (0..cpus).map(CpuId).collect(),
            offline: Vec::new(),
            families: HashMap::new(),
            exited: VecDeque::new(),
            closed: VecDeque::new(),
            names: 0,
        }
    }

    pub(super) fn new_name(&mut self, first: char) -> Name {
        self.names += 1;
        Name::new(format!("{first}{}", self.names))
    }

    pub(super) fn add_task(&mut self, name: Name) {
        let key = self.tasks.insert(LiveTask { name, thread_of: None, threads: 0, family: None });
        self.families.insert(key, 1);
        if let Some(task) = self.tasks.get_mut(key) {
            task.family = Some(key);
        }
    }

    pub(super) fn may_fork(&self, task: &LiveTask) -> bool {
        task.family.and_then(|family| self.families.get(&family)).is_none_or(|&living| living < FAMILY_MAX)
    }

    pub(super) fn add_child(&mut self, parent: Key, name: Name, is_thread: bool) {
        let family = self.tasks.get(parent).and_then(|parent| parent.family);
        if let Some(living) = family.and_then(|family| self.families.get_mut(&family)) {
            *living += 1;
        }
        if let Some(parent) = self.tasks.get_mut(parent).filter(|_| is_thread) {
            parent.threads += 1;
        }
        self.tasks.insert(LiveTask { name, thread_of: is_thread.then_some(parent), threads: 0, family });
    }

    pub(super) fn remove_task(&mut self, key: Key) {
        let Some(task) = self.tasks.remove(key) else { return };
        if let Some(process) = task.thread_of.and_then(|process| self.tasks.get_mut(process)) {
            process.threads -= 1;
        }
        if let Some(family) = task.family
            && let Some(living) = self.families.get_mut(&family)
        {
            *living -= 1;
            if *living == 0 {
                self.families.remove(&family);
            }
        }
        remember(&mut self.exited, task.name);
    }

    pub(super) fn add_opened(&mut self, opened: Opened) {
        self.on_cpus += u64::from(opened.is_on_cpus());
        self.opened.insert(opened);
    }

    /// A name was closed, and what goes with it.
    pub(super) fn remove_opened(&mut self, key: Key, name: &Name) {
        let Some(opened) = self.opened.get_mut(key) else { return };
        let alone = opened.form == OpenForm::Singles && !matches!(opened.target, Target::SystemWide(_));
        if alone {
            opened.names.retain(|other| other != name);
            opened.breakpoints.retain(|other| other != name);
        }
        if !alone || opened.names.is_empty() {
            self.on_cpus -= u64::from(opened.is_on_cpus());
            self.opened.remove(key);
        }
        remember(&mut self.closed, name.clone());
    }
}

/// From one list to another. CPUs are few, and they come and go rarely.
pub(super) fn transfer(from: &mut Vec<CpuId>, to: &mut Vec<CpuId>, cpu: CpuId) {
    if let Some(at) = from.iter().position(|&other| other == cpu) {
        from.swap_remove(at);
        to.push(cpu);
    }
}

fn remember(gone: &mut VecDeque<Name>, name: Name) {
    gone.push_back(name);
    if gone.len() > GONE {
        gone.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_forgets_what_is_taken_out() {
        let mut bag = Bag::new();
        let keys: Vec<_> = (0..5).map(|n| bag.insert(n)).collect();
        assert_eq!(bag.remove(keys[1]), Some(1));
        assert_eq!(bag.remove(keys[1]), None);
        let left: Vec<_> = keys.iter().filter_map(|&key| bag.get(key).copied()).collect();
        assert_eq!(left, [0, 2, 3, 4]);
        assert_eq!(bag.draw(&mut Rng::new(1)).map(|(key, &n)| bag.get(key) == Some(&n)), Some(true));
    }

    #[test]
    fn a_task_that_has_threads_or_is_one_does_not_exec() {
        let mut state = GeneratorState::new(1);
        state.add_task(Name::new("A"));
        let key = |state: &GeneratorState, name: &str| {
            state.tasks.all.iter().find(|(_, it)| it.name.text == name).map(|it| it.0)
        };
        let Some(process) = key(&state, "A") else { panic!("it was added") };
        state.add_child(process, Name::new("T"), true);
        state.add_child(process, Name::new("C"), false);
        let can = |state: &GeneratorState, name| {
            key(state, name).and_then(|key| state.tasks.get(key)).map(LiveTask::can_exec)
        };
        assert_eq!((can(&state, "A"), can(&state, "T"), can(&state, "C")), (Some(false), Some(false), Some(true)));
        let Some(thread) = key(&state, "T") else { panic!("it was added") };
        state.remove_task(thread);
        assert_eq!(can(&state, "A"), Some(true));
        state.remove_task(process);
        assert_eq!((state.tasks.len(), state.families.values().sum::<u32>()), (1, 1));
    }
}
