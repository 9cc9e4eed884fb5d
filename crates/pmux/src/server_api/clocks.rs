//! The time that counts for what takes turns, where a task or a cgroup is not always there.
//!
//! What it is: beside each event that waits for counters now and then, one that counts nothing and is always on: see
//! [`crate::mux::clock`]. All who ask the same share it.
//!
//! **Invariant:** an event that never waited keeps the kernel's own times.

use crate::mux::clock;
use crate::owned_group::OwnedGroup;
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::share::SharingScope;
use pmux_engine::target::{ContextKey, Filter};
use pmux_engine::{ControlError, Count, GroupSpec, Nanos, PmuId, Target};
use pmux_linux::host::{KERNEL, clock_attr};

/// The clocks of a group, by event; none where none is needed or can be had.
pub(super) struct GroupClocks(Vec<Option<OwnedGroup>>);

impl GroupClocks {
    /// For the events of a group, each with its PMU; they don't run yet.
    pub(super) fn open(session: &Session, scope: SharingScope, target: Target, events: &[(PmuId, Attr)]) -> Self {
        // A CPU is always there.
        let always = matches!((target.context, target.filter), (ContextKey::Cpu(_), Filter::Everything));
        let open = |&(pmu, attr): &(PmuId, Attr)| {
            let mut clock = clock_attr(pmu);
            clock.flags |= attr.flags & AttrFlags::INHERIT;
            let opened = session.engine().open_in(scope, &GroupSpec::single(KERNEL, clock), target);
            Some(OwnedGroup::new(session, opened.ok()?))
        };
        let needs_one = |pmu: PmuId| pmu != KERNEL && !always;
        Self(events.iter().map(|event| if needs_one(event.0) { open(event) } else { None }).collect())
    }

    /// An event is about to run, or (`None`) all are.
    pub(super) fn start(&self, index: Option<usize>) {
        for clock in self.of(index) {
            // It is open as long as this is.
            let _ = clock.enable_all::<ControlError>();
        }
    }

    /// An event has stopped, or all have.
    pub(super) fn stop(&self, index: Option<usize>) {
        for clock in self.of(index) {
            let _ = clock.disable_all::<ControlError>();
        }
    }

    fn of(&self, one: Option<usize>) -> impl Iterator<Item = &OwnedGroup> {
        let wanted = move |index: usize| one.is_none_or(|one| one == index);
        self.0.iter().enumerate().filter(move |(index, _)| wanted(*index)).filter_map(|(_, clock)| clock.as_ref())
    }

    /// The count of an event with the time that it was enabled for its target, if it has waited; as it was at a moment, or later.
    pub(super) fn set(&self, own: &OwnedGroup, index: usize, count: &mut Count, at: Nanos) {
        let Some(clock) = self.0.get(index).and_then(Option::as_ref) else { return };
        let waited = own.event(index).is_ok_and(|event| clock::has_waited(own.engine(), event));
        if !waited {
            return;
        }
        // Another client that counts the same may have read it since.
        let known = clock.read_cached(0).ok().filter(|(_, read)| *read >= at);
        let time = known.map_or_else(|| clock.read(0), |(time, _)| Ok(time));
        if let Ok(time) = time {
            count.enabled = time.enabled.max(count.running);
        }
    }
}
