//! One group, with a handle on each of its events.
//!
//! **Invariant:** dropping it closes all that it has opened.

use super::{EventState, ExactTarget, FamilyTally, GroupMode, Switchable};
use crate::error::Error;
use crate::event::Event;
use crate::owned_group::OwnedGroup;
use crate::session::Session;
use crate::target::Attribution;
use crate::tree::TreeFollower;
use pmux_abi::attr::{Attr, EventType};
use pmux_engine::event_set::Member;
use pmux_engine::target::Opened;
use pmux_engine::{Count, GroupSpec, ModifyError, Nanos, OpenError};
use pmux_linux::diagnose::TargetKind;
use pmux_linux::host::{KERNEL, LinuxHost};

/// A group of events that are open. Events are named by their index, the leader's is 0.
pub struct ExactGroup {
    /// Where children report, if they do. It goes first: its rings hold the events' fds no longer than it lives itself.
    follower: Option<TreeFollower>,
    own: OwnedGroup,
    kind: TargetKind,
    /// What the children had reported when an event was reset: it is not in its count any more.
    forgotten: Vec<u64>,
}

impl ExactGroup {
    pub(super) fn new(session: &Session, opened: Opened, target: ExactTarget, mode: GroupMode) -> Result<Self, Error> {
        let forgotten = vec![0; opened.events.len()];
        let mut group = Self { follower: None, own: OwnedGroup::new(session, opened), kind: target.kind(), forgotten };
        if let (Attribution::EachProcess, ExactTarget::Task(tid) | ExactTarget::TaskOnCpu(tid, _)) =
            (mode.attribution, target)
        {
            session.watch_hotplug();
            let counted: Vec<_> = group.own.opened.events.iter().copied().enumerate().collect();
            group.follower = Some(TreeFollower::open(session, tid, &counted)?);
        }
        Ok(group)
    }

    /// All of it, for an event set.
    #[must_use]
    pub fn switchable(&self) -> Switchable {
        Switchable(Member::Group(self.own.opened.group))
    }

    /// How many events it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.opened.events.len()
    }

    /// Whether it has none: never so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.own.opened.events.is_empty()
    }

    /// Enables one event; in a group it counts while the leader is enabled too.
    ///
    /// # Errors
    /// [`Error::Control`]; [`Error::Read`] where there is no such event.
    pub fn enable(&self, index: usize) -> Result<(), Error> {
        self.own.enable(index)
    }

    /// Disables one event; with the leader all of them stop.
    ///
    /// # Errors
    /// As [`ExactGroup::enable`].
    pub fn disable(&self, index: usize) -> Result<(), Error> {
        self.own.disable(index)
    }

    /// Sets the count of one event to 0, with what its children have counted; its times stay.
    ///
    /// # Errors
    /// As [`ExactGroup::enable`].
    pub fn reset(&mut self, index: usize) -> Result<(), Error> {
        let event = self.own.event(index)?;
        let reported = self.tally_since_open(index)?.map(|tally| tally.retired.value);
        self.own.engine().reset(event)?;
        if let (Some(forgotten), Some(reported)) = (self.forgotten.get_mut(index), reported) {
            *forgotten = reported;
        }
        Ok(())
    }

    /// Enables all events, the leader last.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn enable_all(&self) -> Result<(), Error> {
        self.own.enable_all()
    }

    /// Disables all events.
    ///
    /// # Errors
    /// [`Error::Control`].
    pub fn disable_all(&self) -> Result<(), Error> {
        self.own.disable_all()
    }

    /// Lets one event, a breakpoint, watch what another one would; its count goes on, and how it was opened stays.
    ///
    /// # Errors
    /// It then watches what it watched. [`Error::Options`] where one of the two is no breakpoint; [`Error::Refused`];
    /// [`Error::Modify`] where others use its counter, or children count for it; [`Error::Read`] where there is no such event.
    pub fn modify(&self, index: usize, to: &Event) -> Result<(), Error> {
        let event = self.own.event(index)?;
        let before = self.own.engine().attr(event)?;
        let attr = becoming(&before, to)?;
        let modified = self.own.engine().modify(event, &attr);
        modified.map_err(|error| not_modified(&self.own.opened.session, error, attr, self.kind))
    }

    /// Reads one event, with what its children have counted.
    ///
    /// # Errors
    /// [`Error::Read`], also where it is in error.
    pub fn read(&self, index: usize) -> Result<Count, Error> {
        Ok(self.own.read(index)?)
    }

    /// What an event had counted when it was read last, and when that was; where events share, when it was last read for any of them. No
    /// call is made for it.
    ///
    /// # Errors
    /// [`Error::Read`] where there is no such event.
    pub fn read_cached(&self, index: usize) -> Result<(Count, Nanos), Error> {
        Ok(self.own.read_cached(index)?)
    }

    /// Where an event is in its life. Whether it could stay on its counter is seen when it is read, so that is done first.
    ///
    /// # Errors
    /// [`Error::Read`] where there is no such event.
    pub fn state(&self, index: usize) -> Result<EventState, Error> {
        let event = self.own.event(index)?;
        // What can't be read says so by its state.
        let _ = self.own.engine().read(event);
        Ok(self.own.engine().state(event)?)
    }

    /// What the root task and its children have counted: children that live are still in `own`. `None` without
    /// [`Attribution::EachProcess`].
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn tally(&mut self, index: usize) -> Result<Option<FamilyTally>, Error> {
        let forgotten = self.forgotten.get(index).copied().unwrap_or_default();
        let total = self.read(index)?;
        Ok(self.tally_since_open(index)?.map(|tally| {
            let retired = Count { value: tally.retired.value.saturating_sub(forgotten), ..tally.retired };
            FamilyTally { total, own: total.less(&retired), retired }
        }))
    }

    fn tally_since_open(&mut self, index: usize) -> Result<Option<FamilyTally>, Error> {
        let Some(follower) = &mut self.follower else { return Ok(None) };
        let engine = self.own.engine();
        follower.settle(engine);
        Ok(engine.read_family(follower.family)?.get(index).copied())
    }

    /// What a child has counted that has exited, its own children left out. `None` while it lives, where it is no child or its
    /// report was lost, and without [`Attribution::EachProcess`].
    pub fn child(&mut self, index: usize, tid: i32) -> Option<Count> {
        let (follower, events) = (self.follower.as_mut()?, self.own.opened.events.len());
        let engine = self.own.engine();
        follower.settle(engine);
        engine.with_family(follower.family, |family| {
            let relative = family.task(family.find(LinuxHost::task(tid))?)?;
            relative.exited.filter(|_| relative.reports as usize >= events)?;
            relative.counts().get(index).copied()
        })?
    }

    /// How many records of its children were lost.
    pub fn lost(&mut self) -> u64 {
        let Some(follower) = &mut self.follower else { return 0 };
        follower.settle(self.own.engine());
        follower.lost()
    }

    /// The time, on the clock of the counts.
    #[must_use]
    pub fn now(&self) -> Nanos {
        pmux_engine::Host::now(self.own.engine().host())
    }
}

/// What a breakpoint is that watches what another one would.
fn becoming(before: &Attr, to: &Event) -> Result<Attr, Error> {
    if [before.kind, to.attr.kind] != [EventType::BREAKPOINT; 2] {
        return Err(Error::Options("only a breakpoint can become another one"));
    }
    let Attr { bp_type, config1, config2, .. } = to.attr;
    Ok(Attr { bp_type, config1, config2, ..*before })
}

fn not_modified(session: &Session, error: ModifyError, attr: Attr, kind: TargetKind) -> Error {
    let refused = |error| session.refused(error, &GroupSpec::single(KERNEL, attr), kind);
    match error {
        ModifyError::Bank(error) => refused(OpenError::Bank { index: 0, error }),
        ModifyError::Parse(error) => refused(OpenError::Parse { index: 0, error }),
        ModifyError::DebugRegisters { full, taken } => refused(OpenError::DebugRegisters { index: 0, full, taken }),
        error => Error::Modify(error),
    }
}
