//! Which events use one counter, and what each of them counts all the same.
//!
//! What it is: the model of sharing: every open group, every counter, and which group uses which. Who asks the same is found by
//! comparing attributes field by field, a counter to join by looking at all of them, and what a group counts is counted for it
//! alone.
//! Read first: [`Sharing::open`] (whose counter it uses), then [`Sharing::pass`] (what it counts), then [`question`].
//!
//! **Invariant:** no group's count depends on another group: there is no master, no baseline and no hand-over here, because none of
//! them may be seen in a count. Who shares decides only how many counters are needed.

pub mod question;

use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, CpuId, Nanos, TaskId};
use question::{SharesWith, same};
use std::collections::BTreeMap;

/// Names a group; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupKey(u64);

/// Names a counter, the older ones before the younger ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct CounterKey(u64);

/// What a client asks for: a group of events, the leader first.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    /// Of which task or CPU.
    pub place: ContextKey,
    /// Which clients may share with each other.
    pub circle: u64,
    /// The events.
    pub attrs: Vec<Attr>,
}

/// Which events of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupPart {
    /// One, by number.
    Event(usize),
    /// All.
    Group,
}

/// What an event does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionState {
    /// It is off.
    Off,
    /// It is on, but its leader is off.
    Waits,
    /// It counts.
    Counts,
    /// What it watched is gone.
    Dead,
}

/// Why a group can't be opened or an event can't ask something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareError {
    /// Children count for it.
    HasChildren,
    /// What it is to watch is gone.
    Gone,
    /// Others use its counter.
    Shared,
}

struct SharedGroup {
    ask: Ask,
    on: Vec<bool>,
    counts: Vec<Count>,
    counter: CounterKey,
    /// Which of the counter's events its first one is.
    first: usize,
    /// The tasks that it counts: its own, and the children that were forked while it was open. Empty where it is a CPU's.
    tasks: Vec<TaskId>,
    dead: bool,
}

impl SharedGroup {
    fn counts(&self, event: usize) -> bool {
        !self.dead && self.on[0] && self.on[event]
    }

    fn inherits(&self) -> bool {
        self.ask.attrs[0].flags.contains(AttrFlags::INHERIT)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Newcomers {
    Welcome,
    /// An event came too late, or its only user asks something else by now; so later ones are too late, too.
    TooLate,
    /// It is one group's own.
    Never,
}

struct Counter {
    ask: Ask,
    newcomers: Newcomers,
}

/// A counter that others may join, for people and for comparing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Joinable {
    /// How many groups use it.
    pub users: usize,
    /// How many of them count with each of its events, or with one that it leads.
    pub counting: Vec<usize>,
}

/// Everything that is open.
#[derive(Default)]
pub struct Sharing {
    groups: BTreeMap<GroupKey, SharedGroup>,
    counters: BTreeMap<CounterKey, Counter>,
    offline: Vec<CpuId>,
    next: u64,
}

impl Sharing {
    /// Opens a group, all of it off.
    ///
    /// # Errors
    /// [`ShareError::Gone`] where its CPU is offline.
    pub fn open(&mut self, ask: Ask) -> Result<GroupKey, ShareError> {
        if let ContextKey::Cpu(cpu) = ask.place
            && self.offline.contains(&cpu)
        {
            return Err(ShareError::Gone);
        }
        let (counter, first) = self.counter_for(&ask);
        let key = GroupKey(self.number());
        let tasks = match ask.place {
            ContextKey::Task(task) => vec![task],
            ContextKey::Cpu(_) => Vec::new(),
        };
        let events = ask.attrs.len();
        let (on, counts) = (vec![false; events], vec![Count::default(); events]);
        self.groups.insert(key, SharedGroup { ask, on, counts, counter, first, tasks, dead: false });
        Ok(key)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The counter that a group uses, and from which of its events on: that of a group that asks the same as a whole; for an event
    /// by itself, else, the oldest group that has it; or a new one.
    fn counter_for(&mut self, ask: &Ask) -> (CounterKey, usize) {
        let shares_with = question::of_group(&ask.attrs);
        if shares_with != SharesWith::NoGroup {
            let open: Vec<CounterKey> = self.counters.keys().copied().collect();
            let as_a_whole = open.iter().filter_map(|&key| self.whole(key, ask).then_some((key, 0)));
            let singly = open.iter().filter_map(|&key| Some((key, self.member(key, ask)?)));
            for (key, first) in as_a_whole.chain(singly).collect::<Vec<_>>() {
                if !self.is_too_late(key) {
                    return (key, first);
                }
                self.counters.entry(key).and_modify(|counter| counter.newcomers = Newcomers::TooLate);
            }
        }
        let newcomers = if shares_with == SharesWith::NoGroup { Newcomers::Never } else { Newcomers::Welcome };
        let key = CounterKey(self.number());
        self.counters.insert(key, Counter { ask: ask.clone(), newcomers });
        (key, 0)
    }

    /// Whether a counter counts just what is asked.
    fn whole(&self, key: CounterKey, ask: &Ask) -> bool {
        let counter = &self.counters[&key];
        let alike = |(one, other): (&Attr, &Attr)| same(one, other);
        counter.newcomers == Newcomers::Welcome
            && (counter.ask.place, counter.ask.circle) == (ask.place, ask.circle)
            && counter.ask.attrs.len() == ask.attrs.len()
            && counter.ask.attrs.iter().zip(&ask.attrs).all(alike)
    }

    /// Which event of a counter of several a single one that is asked for is.
    fn member(&self, key: CounterKey, ask: &Ask) -> Option<usize> {
        let (counter, [attr]) = (&self.counters[&key], &ask.attrs[..]) else { return None };
        let may = counter.newcomers == Newcomers::Welcome
            && (counter.ask.place, counter.ask.circle) == (ask.place, ask.circle)
            && counter.ask.attrs.len() > 1
            && [&counter.ask.attrs, &ask.attrs]
                .iter()
                .all(|attrs| question::of_group(attrs) == SharesWith::GroupsAndSingles);
        counter.ask.attrs.iter().position(|other| may && same(other, attr))
    }

    /// Whether children count for those who use a counter, or what it watched is gone.
    fn is_too_late(&self, key: CounterKey) -> bool {
        self.users(key).any(|group| group.dead || (group.inherits() && group.tasks.len() > 1))
    }

    fn users(&self, key: CounterKey) -> impl Iterator<Item = &SharedGroup> {
        self.groups.values().filter(move |group| group.counter == key)
    }

    /// Closes a group; touches no other group.
    pub fn close(&mut self, key: GroupKey) {
        if let Some(group) = self.groups.remove(&key) {
            self.drop_if_unused(group.counter);
        }
    }

    fn drop_if_unused(&mut self, counter: CounterKey) {
        if self.users(counter).next().is_none() {
            self.counters.remove(&counter);
        }
    }

    /// Switches events of a group on; touches no other group.
    pub fn enable(&mut self, key: GroupKey, part: GroupPart) {
        self.switch(key, part, true);
    }

    /// Switches them off.
    pub fn disable(&mut self, key: GroupKey, part: GroupPart) {
        self.switch(key, part, false);
    }

    fn switch(&mut self, key: GroupKey, part: GroupPart, on: bool) {
        let Some(group) = self.groups.get_mut(&key) else { return };
        match part {
            GroupPart::Event(index) => group.on[index] = on,
            GroupPart::Group => group.on.fill(on),
        }
    }

    /// Sets an event's value to 0; its times stay. Touches no other event.
    pub fn reset(&mut self, key: GroupKey, event: usize) {
        self.groups.entry(key).and_modify(|group| group.counts[event].value = 0);
    }

    /// Lets an event ask something else, where its group is the only one to use its counter; it has that for itself from then on.
    ///
    /// # Errors
    /// It then asks what it asked.
    pub fn modify(&mut self, key: GroupKey, event: usize, attr: Attr) -> Result<(), ShareError> {
        let Some(group) = self.groups.get(&key) else { return Err(ShareError::Gone) };
        if group.inherits() && group.tasks.len() > 1 {
            return Err(ShareError::HasChildren);
        }
        if group.dead {
            return Err(ShareError::Gone);
        }
        let (counter, first) = (group.counter, group.first);
        if self.users(counter).count() > 1 {
            return Err(ShareError::Shared);
        }
        self.groups.entry(key).and_modify(|group| group.ask.attrs[event] = attr);
        self.counters.entry(counter).and_modify(|counter| {
            counter.ask.attrs[first + event] = attr;
            if counter.newcomers == Newcomers::Welcome {
                counter.newcomers = Newcomers::TooLate;
            }
        });
        Ok(())
    }

    /// A task has forked: the child counts for all who inherit, and were open by then.
    pub fn fork(&mut self, parent: TaskId, child: TaskId) {
        for group in self.groups.values_mut().filter(|group| group.inherits() && group.tasks.contains(&parent)) {
            group.tasks.push(child);
        }
    }

    /// A child is gone; what it has counted stays.
    pub fn exit(&mut self, child: TaskId) {
        self.groups.values_mut().for_each(|group| group.tasks.retain(|&task| task != child));
    }

    /// A CPU goes: what watched it counts no more.
    pub fn offline(&mut self, cpu: CpuId) {
        self.offline.push(cpu);
        for group in self.groups.values_mut().filter(|group| group.ask.place == ContextKey::Cpu(cpu)) {
            group.dead = true;
        }
    }

    /// It comes back; what is dead stays so.
    pub fn online(&mut self, cpu: CpuId) {
        self.offline.retain(|&other| other != cpu);
    }

    /// Lets `ns` pass in a task or on a CPU. `happened` says how often what an attribute asks for happened meanwhile.
    pub fn pass(&mut self, place: ContextKey, ns: u64, happened: impl Fn(&Attr) -> u64) {
        let here = |group: &SharedGroup| match place {
            ContextKey::Task(task) => group.tasks.contains(&task),
            ContextKey::Cpu(_) => group.ask.place == place,
        };
        for group in self.groups.values_mut().filter(|group| here(group)) {
            for index in (0..group.on.len()).filter(|&index| group.counts(index)).collect::<Vec<_>>() {
                let count = &mut group.counts[index];
                count.enabled += Nanos(ns);
                count.running += Nanos(ns);
                count.value += happened(&group.ask.attrs[index]);
            }
        }
    }

    /// What the events of a group have counted; nothing where it is closed.
    #[must_use]
    pub fn counts(&self, key: GroupKey) -> &[Count] {
        self.groups.get(&key).map(|group| &group.counts[..]).unwrap_or_default()
    }

    /// What an event of a group does; `None` where that is closed.
    #[must_use]
    pub fn state(&self, key: GroupKey, event: usize) -> Option<SubscriptionState> {
        let group = self.groups.get(&key)?;
        Some(match *group.on.get(event)? {
            _ if group.dead => SubscriptionState::Dead,
            false => SubscriptionState::Off,
            true if group.on[0] => SubscriptionState::Counts,
            true => SubscriptionState::Waits,
        })
    }

    /// How many counters are used by a group that would share them.
    #[must_use]
    pub fn shared(&self) -> usize {
        self.counters.values().filter(|counter| counter.newcomers != Newcomers::Never).count()
    }

    /// The counters that a new group may find, in no order that means anything.
    #[must_use]
    pub fn joinable(&self) -> Vec<Joinable> {
        let welcome = self.counters.iter().filter(|(_, counter)| counter.newcomers == Newcomers::Welcome);
        let joinable = |(&key, _): (&CounterKey, &Counter)| Joinable {
            users: self.users(key).count(),
            counting: self.counting(key, |_| true),
        };
        welcome.map(joinable).collect()
    }

    /// How many groups count with each event of a counter. With any of them, its leader counts as well.
    fn counting(&self, key: CounterKey, is_counted: impl Fn(&SharedGroup) -> bool) -> Vec<usize> {
        let mut counting = vec![0; self.counters[&key].ask.attrs.len()];
        for group in self.users(key).filter(|group| is_counted(group)) {
            for index in (0..group.on.len()).filter(|&index| group.on[0] && group.on[index]) {
                counting[group.first + index] += 1;
                if group.first + index > 0 {
                    counting[0] += 1;
                }
            }
        }
        counting
    }

    /// How many registers count while a task is on a CPU, of all that are asked for of the two: one for each event of a counter
    /// that a group counts with.
    #[must_use]
    pub fn registers(&self, task: TaskId, cpu: CpuId) -> usize {
        let here = |group: &SharedGroup| {
            !group.dead && (group.ask.place == ContextKey::Cpu(cpu) || group.tasks.contains(&task))
        };
        let of = |&key: &CounterKey| self.counting(key, here).into_iter().filter(|&counting| counting > 0).count();
        self.counters.keys().map(of).sum()
    }
}
