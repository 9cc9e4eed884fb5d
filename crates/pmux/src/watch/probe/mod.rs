//! Looking at the hit itself: a program in the kernel.
//!
//! What it is: a program runs at each hit, in the context of the task. One reads what stands there before the task goes on
//! (`program`). Its records come out of the same rings as everything else ([`super::rings`]); where it knows that a condition
//! doesn't hold, there is no record at all. Another one counts hits by thread and place (`counting`), and writes few of them. Read
//! next: `program`, then `maps` and `hit_sample`; `table`, what is counted.
//!
//! On x86 an access is reported when it is done, so what is seen is what it left; the old value is that of the hit before. Other
//! machines report it before it is done: what is seen is what it found. In both cases another writer can change the same memory in
//! the short time between the access and the look: another thread (that is a hit of its own), another process that shares
//! the memory, the kernel, a device.
//!
//! What was opened at a moment when a thread forked may have children without a program (`HitReporter` in [`super::arm`]). Programs are
//! numbered, so that of a thread that is armed twice one is believed (`is_ours` in [`super::take`]).
//!
//! **Invariant:** where a program can't be had, nothing changes but that values are read later; and why is known.

mod counting;
mod hit_sample;
mod maps;
mod program;
mod table;

pub(super) use hit_sample::HitSample;
pub(super) use program::HitMoment;
pub(super) use table::CountedRow;

use super::condition::Condition;
use super::hit::stands_behind;
use super::rings::{WatchRings, with_records};
use super::{Births, TargetState, WatchTarget};
use crate::error::Error;
use crate::event::Access;
use crate::owned_group::Owned;
use crate::session::Session;
use crate::target::CpuChoice;
use counting::CountingSpec;
use maps::{ProbeMaps, ProbePiece};
use pmux_abi::attr::{Attr, AttrFlags, EventType, SampleFormat, Sampling, Wakeup, sw};
use pmux_abi::record::SampleLayout;
use pmux_engine::engine::SetRequest;
use pmux_engine::system_wide::SetScope;
use pmux_engine::{CpuId, EventId, GroupSpec, Nanos, PmuId, SetId};
use pmux_linux::Errno;
use pmux_linux::bpf::{self, Bytecode, EventContext, Map, Program, ProgramKind};
use pmux_linux::cpus::Cpus;
use pmux_linux::host::KERNEL;
use pmux_linux::procfs::Proc;
use program::{Numbers, ProgramSpec};
use std::collections::HashSet;
use std::sync::Arc;
use table::CountTable;

/// The first kernel that steps over a breakpoint also where a program runs at it; on x86 none has to. Source: commit d11a69873d9a
/// ("hw_breakpoint: fix single-stepping when using bpf_overflow_handler").
const STEPS_SINCE: (u32, u32) = (6, 6);

/// When this machine reports an access to data.
pub(super) fn moment() -> HitMoment {
    if stands_behind(Access::WRITE) { HitMoment::Behind } else { HitMoment::InFront }
}

/// Whether the condition is asked in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judge {
    Program,
    /// The kernel doesn't know what it asks for, or there is none.
    Us,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'c> {
    /// To look at each hit, and to write those for which the condition holds.
    Look(Option<&'c Condition>),
    /// To count hits by thread and place.
    Count,
}

enum Work {
    Look {
        numbers: Numbers,
        /// See [`maps::last_values`].
        last: Map,
        condition: Option<Condition>,
        judge: Judge,
    },
    Count(CountTable),
}

pub(super) struct WatchProbe {
    /// The events that programs write with: one on each CPU, also on those that come. They also tell of forks, names and mappings, of
    /// all processes: what programs are attached to may have no ring.
    set: Owned<SetId>,
    pub(super) maps: ProbeMaps,
    context: EventContext,
    work: Work,
    /// Of the program that is attached to what is opened now.
    tag: u32,
    connected: Vec<(CpuId, EventId)>,
    ids: HashSet<u64>,
    layout: SampleLayout,
}

fn output_attr(max_stack: u16, births: Births) -> Attr {
    let mut attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::BPF_OUTPUT,
        sampling: Sampling::Period(1),
        // Values are there whenever the record is read, and the ring says when it fills up. See [`super::Watch::wakes`].
        wakeup: Wakeup::Events(0),
        ..Attr::default()
    };
    with_records(&mut attr, max_stack);
    attr.sample |= SampleFormat::RAW;
    attr.flags |= AttrFlags::TASK | AttrFlags::COMM | AttrFlags::COMM_EXEC;
    if births == Births::WithMappings {
        attr.flags |= AttrFlags::MMAP | AttrFlags::MMAP2;
    }
    attr
}

impl WatchProbe {
    /// Loads the programs for a watch, and makes them run at what is opened of it.
    ///
    /// # Errors
    /// Why they can't be had, as a clause.
    pub(super) fn open(
        session: &Session,
        watch: PmuId,
        max_stack: u16,
        births: Births,
        purpose: Purpose<'_>,
    ) -> Result<Self, String> {
        let context = EventContext::HERE.ok_or("it is not known where programs find addresses on this architecture")?;
        if moment() == HitMoment::InFront && session.facts().is_older_than(STEPS_SINCE) {
            return Err("before Linux 6.6 a task would not get past a breakpoint at which a program runs".to_owned());
        }
        if let Some(why) = bpf::why_not(ProgramKind::PerfEvent) {
            return Err(why);
        }
        let possible = Cpus::system().possible().unwrap_or_else(|_| session.online());
        let cpus = possible.last().unwrap_or(0) + 1;
        let numbers = if Proc::system().is_in_first_pid_namespace() { Numbers::Ours } else { Numbers::Others };
        let no_room = |errno| format!("the kernel gives no room for what a program needs: {errno}");
        let work = match purpose {
            Purpose::Count if numbers == Numbers::Others => {
                return Err("programs see threads under other numbers than those of this PID namespace".to_owned());
            }
            Purpose::Count => Work::Count(CountTable::new(cpus).map_err(no_room)?),
            Purpose::Look(condition) => Work::Look {
                numbers,
                last: maps::last_values().map_err(no_room)?,
                condition: condition.cloned(),
                judge: if condition.is_some() { Judge::Program } else { Judge::Us },
            },
        };
        let maps = ProbeMaps::new(cpus).map_err(no_room)?;
        let attr = output_attr(max_stack, births);
        let (mask, absent) = CpuChoice::All.mask(session).map_err(|error| error.to_string())?;
        let groups = vec![GroupSpec::single(KERNEL, attr)];
        let request = SetRequest { groups, scope: SetScope::Everything, mask, absent };
        let set = session.hold_set(request).map_err(|error| format!("its records can't be had: {error}"))?;
        session.engine().enable_set(*set).map_err(|error| format!("its records can't be had: {error}"))?;
        let (connected, ids, layout) = (Vec::new(), HashSet::new(), SampleLayout::new(&attr));
        let mut probe = Self { set, maps, context, work, tag: 0, connected, ids, layout };
        probe.attach(watch)?;
        Ok(probe)
    }

    /// Makes a program of the current tag run at what is opened from now on.
    fn attach(&mut self, watch: PmuId) -> Result<(), String> {
        let Self { tag, context, .. } = *self;
        let code =
            |code: Option<Bytecode<'_>>| code.map(|code| Program::load(ProgramKind::PerfEvent, &code, "pmux_watch"));
        let loaded = match &mut self.work {
            Work::Count(table) => {
                code(counting::assemble(&CountingSpec { tag, context, shape: table.shape }, &self.maps, &table.map))
            }
            Work::Look { numbers, last, condition, judge } => {
                let load = |condition: Option<&Condition>| {
                    let look = ProgramSpec { tag, context, moment: moment(), numbers: *numbers, condition };
                    code(program::assemble(&look, &self.maps, last))
                };
                match condition.as_ref().filter(|_| *judge == Judge::Program).and_then(|c| load(Some(c))) {
                    Some(Ok(program)) => Some(Ok(program)),
                    // What can't be asked there is asked by us.
                    _ => {
                        *judge = Judge::Us;
                        load(None)
                    }
                }
            }
        };
        let program = loaded.ok_or("the program can't be assembled")?.map_err(|error| error.to_string())?;
        self.set.session.engine().host().set_program(watch, Some(Arc::new(program)));
        Ok(())
    }

    /// What is opened from now on may be on threads that have inherited what was opened before: its records have another number.
    pub(super) fn next_tag(&mut self, watch: PmuId) {
        self.tag += 1;
        // The program of before still does; then records of the two can't be told apart, and a hit may be told twice.
        let _ = self.attach(watch);
    }

    /// More spots: their pieces are known to the programs, which don't ask the condition yet.
    pub(super) fn add(&self, watched: &TargetState) -> Result<(), Errno> {
        pieces(watched).try_for_each(|piece| self.maps.add(&piece))
    }

    /// They are not watched after all.
    pub(super) fn remove(&self, watched: &TargetState) {
        pieces(watched).for_each(|piece| self.maps.remove(piece.register));
    }

    /// All is armed: from now on hits of which the condition doesn't hold are not written, or hits are counted.
    pub(super) fn judge(&self, watched: &TargetState, are_armed_once: bool) {
        let ready = match &self.work {
            // Of threads that are armed twice it is not known in the kernel which hits are the same: there we judge ourselves.
            Work::Look { judge, .. } => *judge == Judge::Program && are_armed_once,
            Work::Count(_) => true,
        };
        if ready {
            // Otherwise all hits are written.
            let _ = pieces(watched).try_for_each(|piece| self.maps.judge(&piece));
        }
    }

    /// What was counted since the last call, and not written.
    pub(super) fn counted(&mut self) -> Vec<CountedRow> {
        let Work::Count(table) = &mut self.work else { return Vec::new() };
        table.take()
    }

    pub(super) fn looks(&self) -> bool {
        matches!(self.work, Work::Look { .. })
    }

    /// What stands somewhere before the first hit.
    pub(super) fn stood(&self, pid: i32, address: u64, value: u64, at: Nanos) {
        // A number of another namespace may be that of another process here.
        if let (HitMoment::Behind, Work::Look { numbers: Numbers::Ours, last, .. }, Ok(pid)) =
            (moment(), &self.work, u32::try_from(pid))
        {
            maps::stood(last, pid, address, value, at.0);
        }
    }

    /// Leads what programs write into the rings, also on CPUs that have come, or come back. Where that is not done yet, or a CPU leaves
    /// meanwhile, hits there are the kernel's samples, without a value.
    pub(super) fn connect(&mut self, rings: &WatchRings) {
        let Ok(events) = self.set.session.engine().set_events(*self.set) else { return };
        for (cpu, events) in events {
            let Some(&event) = events.first() else { continue };
            if self.connected.contains(&(cpu, event)) || !rings.has(cpu) {
                continue;
            }
            let Ok(id) = self.connect_one(rings, cpu, event) else { continue };
            self.ids.insert(id);
            self.connected.retain(|(of, _)| *of != cpu);
            self.connected.push((cpu, event));
        }
    }

    fn connect_one(&self, rings: &WatchRings, cpu: CpuId, event: EventId) -> Result<u64, Error> {
        let engine = self.set.session.engine();
        let failed = |errno| Error::Ring { what: "leading values into a ring", errno };
        rings.lead(event, cpu)?;
        let lease = engine.lease(event)?;
        let id = engine.host().kernel_id(lease).map_err(failed)?;
        engine.host().lend(lease, &self.maps.outputs, cpu.0).map_err(failed)?;
        Ok(id)
    }

    /// The layout of a record that a program wrote; `None` for others.
    pub(super) fn layout_of(&self, record: &[u8]) -> Option<&SampleLayout> {
        self.layout.event_id(record).filter(|id| self.ids.contains(id)).map(|_| &self.layout)
    }
}

/// What programs have to know of a spot.
fn pieces(watched: &TargetState) -> impl Iterator<Item = ProbePiece> {
    let WatchTarget { address, len, .. } = watched.watch_target;
    let code = watched.watch_target.is_code();
    let bytes = if code { 0 } else { u32::try_from(watched.readable_bytes()).unwrap_or(0) };
    // As a condition that we ask ourselves.
    let mask = super::condition::mask(if code { 0 } else { len });
    watched.pieces.iter().map(move |piece| ProbePiece { register: piece.address, address, bytes, mask })
}
