//! What is true, and what is reported, for one event.

use super::super::ledger::{Activity, Event};
use super::super::model::CountedEvent;
use super::super::state::State;
use super::{BookKind, World};
use crate::machine::Kind;
use pmux_engine::engine::CpuReading;
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, CpuId, FamilyId, GroupId, Nanos, ReadError, TaskId};

/// What really happened, for one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Truth {
    /// How often it happened while a counter was started for the event, since the last reset, without what the machine
    /// withheld: what must be reported.
    pub counted: u64,
    /// The same since it was opened, with all that was forgotten and withheld.
    pub ran: u64,
    /// How often it happened while the event was enabled and its context was there, at least and at most: the two are the
    /// same where no caller waited. A reset changes nothing here.
    pub enabled: (u64, u64),
    /// For how long a counter was started for the event.
    pub running: Nanos,
    /// For how long it was enabled and its context was there, at least and at most.
    pub enabled_time: (Nanos, Nanos),
    /// What the machine withheld: it refused a reading, and then the counter was gone.
    pub lost: u64,
    /// Whether some of it happened in no time while the event was enabled and on no counter: then the times do not show that
    /// it missed something.
    pub missed: bool,
    /// Whether a reading was refused: until the next one, there is no count.
    pub withheld: bool,
    /// Whether counters were refused to the event, or may have been: it may have been in error, in which it does not age.
    pub doubtful: bool,
    /// Whether it shares, and a reading of what counts for it was refused when it was switched: then it has counted this at most.
    pub at_most: bool,
}

impl World {
    /// What is true of an event, wherever it is counted: with its children, on all CPUs of its set.
    #[must_use]
    pub fn truth(&self, event: Event) -> Option<Truth> {
        self.state(|state| state.truth(event))
    }

    /// What is true of an event in one place: one task of its family, or one CPU of its set.
    #[must_use]
    pub fn truth_at(&self, event: Event, place: ContextKey) -> Option<Truth> {
        self.state(|state| {
            let sites = &state.ledger.tag(event)?.sites;
            let here = |&site: &u32| state.ledger.site(site).is_some_and(|it| it.place == place);
            let mut truths = sites.iter().copied().filter(here).map(|site| state.truth_of_site(site));
            // A set may count a task on several CPUs, each for itself.
            let first = truths.next()?;
            Some(truths.fold(first, |sum, more| sum.with(&more)))
        })
    }

    /// Reads an event exactly, with its children; an event of a set on all its CPUs.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(&self, event: Event) -> Result<Count, ReadError> {
        if let Some((_, id)) = self.id_of(event) {
            return self.call(|engine| engine.read(id));
        }
        let (set, index) = self.set_of(event).ok_or(ReadError::Closed)?;
        let mut sum = Count::default();
        for cpu in self.read_set(set)?.cpus {
            sum += cpu.counts.get(index).copied().unwrap_or(Err(ReadError::Closed))?;
        }
        Ok(sum)
    }

    /// What an event that is in no set counts, and one of a set on each CPU: as an observer reads it, in no time. `None` for
    /// what can't be read.
    pub(crate) fn look_at_counts(&self, event: Event) -> Vec<(Option<CpuId>, Option<Count>)> {
        if let Some((_, id)) = self.id_of(event) {
            return vec![(None, self.observe(|engine| engine.read(id)).ok())];
        }
        let of_cpu = |index: usize| {
            move |cpu: CpuReading| {
                let count = cpu.counts.get(index).and_then(|count| count.ok());
                (Some(cpu.cpu), count)
            }
        };
        let Some((set, index)) = self.set_of(event) else { return Vec::new() };
        self.look_at_set(set).into_iter().map(of_cpu(index)).collect()
    }

    /// The same of a whole set.
    pub(crate) fn look_at_set(&self, set: super::Set) -> Vec<CpuReading> {
        let id = self.set_number(set).and_then(|number| self.books.set(number)).map(|book| book.id);
        let reading = id.and_then(|id| self.observe(|engine| engine.read_set(id)).ok());
        reading.map(|reading| reading.cpus).unwrap_or_default()
    }

    /// Reads what one relative has counted: a child that lives, or one that exited, if its family keeps each one's numbers.
    ///
    /// # Errors
    /// [`ReadError::Closed`] where that is not known; the engine's.
    pub fn read_child(&self, event: Event, child: TaskId) -> Result<Count, ReadError> {
        let (number, _) = self.id_of(event).ok_or(ReadError::Closed)?;
        let book = self.books.get(number).ok_or(ReadError::Closed)?;
        let index = book.tags.iter().position(|&tag| tag == event).ok_or(ReadError::Closed)?;
        let family = book.family().ok_or(ReadError::Closed)?;
        if let Some(group) = self.child_group(family, child) {
            let counts = self.call(|engine| engine.read_group(group))?;
            return counts.get(index).copied().unwrap_or(Err(ReadError::Closed));
        }
        let kept = self.engine.with_family(family, |family| {
            let relative = family.task(family.find(child)?)?;
            relative.exited?;
            relative.counts().get(index).copied()
        });
        kept.flatten().ok_or(ReadError::Closed)
    }

    /// The engine's name for the group of an event that is in no set.
    pub(crate) fn group_of(&self, event: Event) -> Option<GroupId> {
        if let BookKind::Group { id, .. } = self.books.get(self.number_of(event)?)?.kind { Some(id) } else { None }
    }

    /// The group with which the engine counts a live child.
    pub(crate) fn child_group(&self, family: FamilyId, child: TaskId) -> Option<GroupId> {
        self.engine.with_family(family, |family| family.task(family.find(child)?)?.group())?
    }

    /// The group of the engine that counts this group for a task.
    pub(crate) fn group_in(&self, number: u32, task: TaskId) -> Option<GroupId> {
        let book = self.books.get(number)?;
        match book.kind {
            BookKind::Group { id, target, .. } if target.context == ContextKey::Task(task) => Some(id),
            _ => self.child_group(book.family()?, task),
        }
    }
}

impl Truth {
    /// Both together.
    fn with(&self, other: &Self) -> Self {
        Self {
            counted: self.counted.wrapping_add(other.counted),
            ran: self.ran.wrapping_add(other.ran),
            enabled: (self.enabled.0.wrapping_add(other.enabled.0), self.enabled.1.wrapping_add(other.enabled.1)),
            running: self.running + other.running,
            enabled_time: (self.enabled_time.0 + other.enabled_time.0, self.enabled_time.1 + other.enabled_time.1),
            lost: self.lost + other.lost,
            missed: self.missed | other.missed,
            withheld: self.withheld | other.withheld,
            doubtful: self.doubtful | other.doubtful,
            at_most: self.at_most | other.at_most,
        }
    }
}

impl State {
    /// What is true of an event, wherever it is counted.
    pub(crate) fn truth(&self, event: Event) -> Option<Truth> {
        let tag = self.ledger.tag(event)?;
        let (mut least, mut most) = tag.gone;
        let (mut doubtful, mut missed, mut withheld) = (tag.gone_doubtful, tag.gone_missed, tag.gone_withheld);
        for &site in &tag.sites {
            let total = self.site_total(site);
            let of_master = self.marks_of_master(site);
            doubtful |= of_master.doubtful;
            missed |= of_master.missed;
            withheld |= of_master.withheld;
            if let Some(site) = self.ledger.site(site) {
                least += site.least.at(total);
                most += site.most.at(total);
                doubtful |= site.doubtful;
                missed |= site.missed;
                withheld |= site.withheld;
            }
        }
        let ran = self.ran_anywhere(event);
        let at_most = tag.view.is_some_and(|view| view.unsure);
        // Switches happen in no time, too, wherever the event is then.
        missed |= matches!(tag.counted, CountedEvent::Kind(Kind::CONTEXT_SWITCHES | Kind::CPU_MIGRATIONS));
        Some(truth(ran, (least, most), tag.forgotten, tag.lost, Marks { doubtful, missed, withheld, at_most }))
    }

    pub(crate) fn truth_of_site(&self, site: u32) -> Truth {
        let (ran, total, of_master) = (self.ran(site), self.site_total(site), self.marks_of_master(site));
        let Some(site) = self.ledger.site(site) else { return Truth::default() };
        let tag = self.ledger.tag_of(site);
        let counted = tag.map(|tag| tag.counted);
        let switches = matches!(counted, Some(CountedEvent::Kind(Kind::CONTEXT_SWITCHES | Kind::CPU_MIGRATIONS)));
        let marks = Marks {
            doubtful: site.doubtful || of_master.doubtful,
            missed: site.missed || of_master.missed || switches,
            withheld: site.withheld || of_master.withheld,
            at_most: tag.is_some_and(|tag| tag.view.is_some_and(|view| view.unsure)),
        };
        let gates = (site.least.at(total), site.most.at(total));
        truth(ran, gates, site.forgotten, site.lost, marks)
    }
}

impl State {
    /// What limits the truth about an event that shares a counter: what limits that of the master.
    fn marks_of_master(&self, site: u32) -> Marks {
        let master = self.ledger.site(site).and_then(|site| self.ledger.site(site.master?));
        master.map_or(Marks::default(), |master| Marks {
            doubtful: master.doubtful,
            missed: master.missed || master.lost > 0,
            withheld: master.withheld,
            at_most: false,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Marks {
    doubtful: bool,
    missed: bool,
    withheld: bool,
    at_most: bool,
}

fn truth(ran: Activity, (least, most): (Activity, Activity), forgotten: u64, lost: u64, marks: Marks) -> Truth {
    let Marks { doubtful, missed, withheld, at_most } = marks;
    Truth {
        counted: ran.occurrences.wrapping_sub(lost).wrapping_sub(forgotten),
        ran: ran.occurrences,
        enabled: (least.occurrences, most.occurrences),
        running: ran.time,
        enabled_time: (least.time, most.time),
        lost,
        missed,
        withheld,
        doubtful,
        at_most,
    }
}
