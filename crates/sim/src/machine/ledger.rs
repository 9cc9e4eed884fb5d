//! What is true: how often that which an event counts really happened.
//!
//! What it is: for each event ([`Tag`]), and for each place where it is counted ([`CountSite`]: a task or a CPU), how much happened
//! while a register was started for it, and how much while it was enabled and its context was there.
//!
//! **Invariant:** nothing here comes from the engine or from the value of a register: occurrences are taken from the totals
//! of tasks and CPUs, in 64 bits.

use super::model::CountedEvent;
use super::registers::RegisterKey;
use crate::machine::Kind;
use pmux_abi::attr::Attr;
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, EventId, Nanos, PmuId, TaskId};

/// An event of the world, by the name under which the machine knows it. It travels through the engine in `sig_data`, which
/// no PMU looks at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Event {
    pub(crate) index: u32,
    generation: u32,
}

impl Event {
    pub(crate) const fn to_word(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    Task,
    Cpu,
}

/// Time in which something was so, and what happened in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// How often it happened.
    pub occurrences: u64,
    /// How long it was so.
    pub time: Nanos,
}

impl std::ops::Sub for Activity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { occurrences: self.occurrences.wrapping_sub(other.occurrences), time: self.time.since(other.time) }
    }
}

impl std::ops::AddAssign for Activity {
    fn add_assign(&mut self, other: Self) {
        self.occurrences = self.occurrences.wrapping_add(other.occurrences);
        self.time += other.time;
    }
}

/// Windows that open and close.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    sum: Activity,
    since: Option<Activity>,
}

impl Gate {
    pub(crate) const fn is_open(&self) -> bool {
        self.since.is_some()
    }

    /// What passed the gate, where the totals stand at `now`.
    pub(crate) fn at(&self, now: Activity) -> Activity {
        let mut sum = self.sum;
        if let Some(since) = self.since {
            sum += now - since;
        }
        sum
    }

    /// What passed it so far was more, or less, by so much.
    pub(crate) fn correct(&mut self, more: Activity, less: Activity) {
        self.sum += more;
        self.sum = self.sum - less;
    }

    pub(crate) fn set(&mut self, open: bool, now: Activity) {
        if open != self.is_open() {
            self.sum = self.at(now);
            self.since = open.then_some(now);
        }
    }
}

/// An event, everywhere.
pub(crate) struct Tag {
    generation: u32,
    pub(crate) counted: CountedEvent,
    pub(crate) home: Home,
    /// The engine's name for it, where it is in no set.
    pub(crate) id: Option<EventId>,
    /// The group that it belongs to, by the world's number.
    pub(crate) group: u32,
    /// What happened while registers were started for it, as far as they were settled.
    pub(crate) ran: Activity,
    /// What a reset has forgotten of it.
    pub(crate) forgotten: u64,
    /// What the machine withheld: it refused a reading, and then the register was gone.
    pub(crate) lost: u64,
    /// How many registers are programmed for it.
    pub(crate) programmed: u32,
    pub(crate) running: Vec<RegisterKey>,
    pub(crate) sites: Vec<u32>,
    /// What was enabled in places that are gone: at least, and at most.
    pub(crate) gone: (Activity, Activity),
    pub(crate) gone_doubtful: bool,
    pub(crate) gone_missed: bool,
    pub(crate) gone_withheld: bool,
    /// Where it is counted by a master: how it sees that.
    pub(crate) view: Option<SharedView>,
}

/// How an event sees what a master counts for it, everywhere together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedView {
    /// The master's event, where it has children; `None` for others: they look at one in each place.
    pub(crate) master: Option<Event>,
    /// Whether it is on, as was asked for.
    pub(crate) on: bool,
    /// Whether a reading was refused when it was switched, so that it may have missed what its master counted then.
    pub(crate) unsure: bool,
    /// What the master has counted while it was on, with its leader.
    pub(crate) seen: Gate,
}

/// One place where an event is counted.
pub(crate) struct CountSite {
    pub(crate) tag: u32,
    pub(crate) place: ContextKey,
    pub(crate) only_on: Option<CpuId>,
    pub(crate) ran: Activity,
    pub(crate) sampled: u64,
    pub(crate) forgotten: u64,
    pub(crate) lost: u64,
    pub(crate) running: Option<RegisterKey>,
    /// While it was enabled for certain.
    pub(crate) least: Gate,
    /// While it may have been enabled: a caller that waits does not know to the nanosecond.
    pub(crate) most: Gate,
    /// Whether the event itself is enabled here; it counts while its leader is, too.
    pub(crate) on: bool,
    /// Whether the next exec enables it.
    pub(crate) on_exec: bool,
    /// Whether something happened in no time while it was enabled and on no counter.
    pub(crate) missed: bool,
    /// Whether a reading of it was refused.
    pub(crate) withheld: bool,
    /// Whether it can't be known whether it is on: a parent was perhaps in error when it was inherited.
    pub(crate) unknown: bool,
    /// Whether it has reported to its parents and is no more.
    pub(crate) retired: bool,
    /// Whether what it watched is gone.
    pub(crate) dead: bool,
    /// Whether counters were refused to it, so that it may be in error and not age.
    pub(crate) doubtful: bool,
    /// What happened here so far, where that is not all that happens to the task or on the CPU: accesses that are watched,
    /// or only what happens on one CPU.
    pub(crate) own_total: u64,
    /// Where the task's total stood when it came to that one CPU, while it is there.
    pub(crate) there_since: Option<u64>,
    /// Of an event that a master counts: the master's event here, and what that has counted while this was on.
    pub(crate) master: Option<u32>,
    pub(crate) seen: Gate,
    /// Of a master's event: who sees it.
    pub(crate) viewers: Vec<u32>,
    /// The engine's name here for an event that shares, or for a master's.
    pub(crate) id: Option<EventId>,
    at: usize,
}

/// The events that are counted in one place, by tag.
#[derive(Default)]
pub(crate) struct Shelf {
    sorted: Vec<(u32, u32, u32)>,
    /// Those that have a total of their own.
    pub(super) special: Vec<u32>,
}

const ANYWHERE: u32 = u32::MAX;

fn filter(only_on: Option<CpuId>) -> u32 {
    only_on.map_or(ANYWHERE, |cpu| cpu.0)
}

impl Shelf {
    fn position(&self, tag: u32, only_on: Option<CpuId>) -> Result<usize, usize> {
        let wanted = (tag, filter(only_on));
        self.sorted.binary_search_by(|&(tag, filter, _)| (tag, filter).cmp(&wanted))
    }

    #[inline]
    pub(crate) fn find(&self, tag: u32, only_on: Option<CpuId>) -> Option<u32> {
        self.position(tag, only_on).ok().map(|at| self.sorted[at].2)
    }

    pub(crate) fn insert(&mut self, tag: u32, only_on: Option<CpuId>, site: u32) {
        if let Err(at) = self.position(tag, only_on) {
            self.sorted.insert(at, (tag, filter(only_on), site));
        }
    }

    pub(crate) fn remove(&mut self, tag: u32, only_on: Option<CpuId>) {
        if let Ok(at) = self.position(tag, only_on) {
            let (_, _, site) = self.sorted.remove(at);
            self.special.retain(|&other| other != site);
        }
    }

    /// The `index`-th site with a total of its own.
    pub(crate) fn special(&self, index: usize) -> Option<u32> {
        self.special.get(index).copied()
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = u32> + '_ {
        self.sorted.iter().map(|&(_, _, site)| site)
    }
}

#[derive(Default)]
pub(crate) struct EventLedger {
    tags: Vec<(u32, Option<Tag>)>,
    /// What was asked of which PMU, tag by tag: long, and hardly ever looked at.
    asked: Vec<(PmuId, Attr)>,
    free_tags: Vec<u32>,
    sites: Vec<Option<CountSite>>,
    free_sites: Vec<u32>,
}

impl EventLedger {
    pub(crate) fn new_tag(&mut self, asked: (PmuId, Attr), home: Home, group: u32) -> Event {
        // What no PMU takes is refused by the engine, and never counts.
        let counted = CountedEvent::of(&asked.1).unwrap_or(CountedEvent::Kind(Kind::CYCLES));
        let index = self.free_tags.pop().unwrap_or_else(|| {
            self.tags.push((0, None));
            self.asked.push(asked);
            self.tags.len() as u32 - 1
        });
        self.asked[index as usize] = asked;
        let (generation, slot) = &mut self.tags[index as usize];
        *slot = Some(Tag {
            generation: *generation,
            counted,
            home,
            id: None,
            group,
            ran: Activity::default(),
            forgotten: 0,
            lost: 0,
            programmed: 0,
            running: Vec::new(),
            sites: Vec::new(),
            gone: Default::default(),
            gone_doubtful: false,
            gone_missed: false,
            gone_withheld: false,
            view: None,
        });
        Event { index, generation: *generation }
    }

    /// From now on an event asks something else of its PMU.
    pub(crate) fn ask_anew(&mut self, event: Event, attr: &Attr) {
        let Some(tag) = self.tag_mut(event) else { return };
        tag.counted = CountedEvent::of(attr).unwrap_or(tag.counted);
        let asked = &mut self.asked[event.index as usize].1;
        *asked = Attr { sig_data: asked.sig_data, ..*attr };
    }

    /// Removes a tag, with all its sites: no code asks about it any more.
    pub(crate) fn drop_tag(&mut self, event: Event) -> Vec<CountSite> {
        let Some(tag) = self.tag(event) else { return Vec::new() };
        let sites = tag.sites.clone();
        let sites = sites.into_iter().filter_map(|site| self.take_site(site)).collect();
        let (generation, slot) = &mut self.tags[event.index as usize];
        *slot = None;
        *generation += 1;
        self.free_tags.push(event.index);
        sites
    }

    #[inline]
    pub(crate) fn tag(&self, event: Event) -> Option<&Tag> {
        self.tags.get(event.index as usize)?.1.as_ref().filter(|tag| tag.generation == event.generation)
    }

    pub(crate) fn asked(&self, event: Event) -> Option<(PmuId, Attr)> {
        self.tag(event).and_then(|_| self.asked.get(event.index as usize).copied())
    }

    pub(crate) fn tag_mut(&mut self, event: Event) -> Option<&mut Tag> {
        self.tags.get_mut(event.index as usize)?.1.as_mut().filter(|tag| tag.generation == event.generation)
    }

    #[inline]
    pub(crate) fn tag_at(&mut self, index: u32) -> Option<&mut Tag> {
        self.tags.get_mut(index as usize)?.1.as_mut()
    }

    #[inline]
    pub(crate) fn tag_of(&self, site: &CountSite) -> Option<&Tag> {
        self.tags.get(site.tag as usize)?.1.as_ref()
    }

    pub(crate) fn group_at(&self, site: u32) -> Option<u32> {
        self.tag_of(self.site(site)?).map(|tag| tag.group)
    }

    /// The name of the tag with this index.
    pub(crate) fn event_at(&self, index: u32) -> Option<Event> {
        let (generation, slot) = self.tags.get(index as usize)?;
        slot.as_ref().map(|_| Event { index, generation: *generation })
    }

    #[inline]
    pub(crate) fn site(&self, site: u32) -> Option<&CountSite> {
        self.sites.get(site as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn site_mut(&mut self, site: u32) -> Option<&mut CountSite> {
        self.sites.get_mut(site as usize)?.as_mut()
    }

    pub(crate) fn all_sites(&self) -> impl Iterator<Item = u32> + '_ {
        self.sites.iter().enumerate().filter(|(_, site)| site.is_some()).map(|(site, _)| site as u32)
    }

    /// The places where an event is counted; the youngest are the last.
    pub(crate) fn sites_of(&self, event: Event) -> impl DoubleEndedIterator<Item = &CountSite> {
        let sites = self.tag(event).map(|tag| &tag.sites[..]).unwrap_or_default();
        sites.iter().filter_map(move |&site| self.site(site))
    }

    /// A new place where an event is counted; its shelf must be told.
    pub(crate) fn new_site(&mut self, event: u32, place: ContextKey, only_on: Option<CpuId>) -> u32 {
        let index = self.free_sites.pop().unwrap_or_else(|| {
            self.sites.push(None);
            self.sites.len() as u32 - 1
        });
        let at = self.tag_at(event).map_or(0, |tag| {
            tag.sites.push(index);
            tag.sites.len() - 1
        });
        self.sites[index as usize] = Some(CountSite {
            tag: event,
            place,
            only_on,
            ran: Activity::default(),
            sampled: 0,
            forgotten: 0,
            lost: 0,
            running: None,
            least: Gate::default(),
            most: Gate::default(),
            on: false,
            on_exec: false,
            missed: false,
            withheld: false,
            unknown: false,
            retired: false,
            dead: false,
            doubtful: false,
            own_total: 0,
            there_since: None,
            master: None,
            seen: Gate::default(),
            viewers: Vec::new(),
            id: None,
            at,
        });
        index
    }

    /// A place is no more. What was enabled in it stays in the tag's `gone`, once its gates are closed.
    pub(crate) fn take_site(&mut self, site: u32) -> Option<CountSite> {
        let gone = self.sites.get_mut(site as usize)?.take()?;
        self.free_sites.push(site);
        let moved = self.tag_at(gone.tag).and_then(|tag| {
            tag.sites.swap_remove(gone.at);
            tag.gone.0 += gone.least.sum;
            tag.gone.1 += gone.most.sum;
            tag.gone_doubtful |= gone.doubtful;
            tag.gone_missed |= gone.missed;
            tag.gone_withheld |= gone.withheld;
            tag.sites.get(gone.at).copied()
        });
        if let Some(moved) = moved.and_then(|moved| self.site_mut(moved)) {
            moved.at = gone.at;
        }
        Some(gone)
    }
}

impl CountSite {
    pub(crate) const fn task(&self) -> Option<TaskId> {
        if let ContextKey::Task(task) = self.place { Some(task) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(occurrences: u64, time: u64) -> Activity {
        Activity { occurrences, time: Nanos(time) }
    }

    #[test]
    fn a_gate_lets_through_what_happens_while_it_is_open() {
        let mut gate = Gate::default();
        gate.set(true, window(10, 1));
        gate.set(true, window(15, 2));
        assert_eq!(gate.at(window(20, 4)), window(10, 3));
        gate.set(false, window(30, 5));
        gate.set(true, window(100, 50));
        assert_eq!(gate.at(window(101, 51)), window(21, 5));
    }

    #[test]
    fn a_tag_that_was_dropped_never_names_another() {
        let mut ledger = EventLedger::default();
        let first = ledger.new_tag((PmuId(0), Attr::default()), Home::Task, 0);
        let site = ledger.new_site(first.index, ContextKey::Task(TaskId(1)), None);
        let other = ledger.new_site(first.index, ContextKey::Task(TaskId(2)), None);
        assert!(ledger.take_site(site).is_some());
        assert_eq!(ledger.tag(first).map(|tag| tag.sites.clone()), Some(vec![other]));
        assert_eq!(ledger.drop_tag(first).len(), 1);
        let second = ledger.new_tag((PmuId(0), Attr::default()), Home::Cpu, 0);
        assert_eq!(first.index, second.index);
        assert!(ledger.tag(first).is_none() && ledger.tag(Event::from_word(second.to_word())).is_some());
    }

    #[test]
    fn a_shelf_finds_what_is_on_it() {
        let mut shelf = Shelf::default();
        shelf.insert(7, None, 70);
        shelf.insert(3, Some(CpuId(1)), 31);
        shelf.insert(3, None, 30);
        assert_eq!(shelf.find(3, Some(CpuId(1))), Some(31));
        assert_eq!(shelf.find(3, Some(CpuId(2))), None);
        shelf.remove(3, Some(CpuId(1)));
        assert_eq!(shelf.sites().collect::<Vec<_>>(), [30, 70]);
    }
}
