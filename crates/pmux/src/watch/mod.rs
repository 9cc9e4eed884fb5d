//! Watching addresses: who touches this, from where, how often.
//!
//! What it is: debug registers on everything that a target has, and the hits one by one.
//! Read first: [`Watch`]. Then `arm` (everywhere or nowhere), `take` (what the rings hold) and [`HitTally`] (hits by thread
//! and place). [`Condition`] is the language of conditions; `probe` looks at the hit itself, with a program in the kernel.
//!
//! How exact it is: a hit that was counted is counted by the kernel, which is never too slow for it. What else is known of it
//! (who, from where) goes through a ring: hits that the ring had no room for are in the count and in [`Watch::lost`]. An access
//! that touches two registers of one spot is two hits.
//!
//! **Invariant:** a spot is watched on all of its target or not at all, and no hit from before that is told or counted.

mod arm;
mod condition;
mod counts;
mod hit;
mod memory;
mod probe;
mod registers;
mod rings;
mod shortage;
mod take;
mod tally;
mod threads;
mod watch_target;

pub use crate::text::TextError;
pub use condition::{Condition, ConditionAnswer, NAMES as CONDITION_NAMES};
pub use hit::{Hit, HitSide, HitValue, stands_behind};
pub use shortage::{Holding, Shortage, Tracer};
pub use take::{CountedHits, NameCause, WatchEvent};
pub use tally::{Caller, HitTally, WatchRow};
pub use watch_target::{WatchPiece, WatchTarget, WatchTargetError};

use crate::counters::SetCoverage;
use crate::error::Error;
use crate::mux::Slice;
use crate::mux::turns::Turning;
use crate::owned_group::Owned;
use crate::session::{Backend, Session};
use crate::target::{Inherit, Target};
use arm::HitReporter;
use memory::Memory;
use pmux_engine::{EventId, GroupId, Host as _, Nanos, PmuId, SetId};
pub use pmux_linux::host::Registers;
use probe::{Purpose, WatchProbe};
use rings::{WatchRecord, WatchRings};
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How much is wanted of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchDetail {
    /// Its number only: nothing is written anywhere, a hit costs no more than any counted event. In a session that counts through a
    /// service, all who count the hits of one address on one target share its register.
    Counts,
    /// Who and from where, with so many callers at most; looked at now and then.
    Hits {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
    /// Who, from where and how often: by thread and place. Where a program can count hits in the kernel, only some are told one by one,
    /// with their callers ([`WatchEvent::Hit`]), and of the others how many they are ([`WatchEvent::Counted`]): then a hit costs little
    /// more than one that is only counted. Elsewhere it is [`WatchDetail::Hits`].
    Rows {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
    /// As [`WatchDetail::Hits`], with values. Where they are read after the hit ([`Watch::values`]) that should be soon: [`Watch::wakes`].
    Values {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
}

impl WatchDetail {
    fn max_stack(self) -> u16 {
        match self {
            Self::Counts => 0,
            Self::Hits { max_stack } | Self::Rows { max_stack } | Self::Values { max_stack } => max_stack,
        }
    }
}

/// What happens to a program that executes another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AcrossExec {
    /// It is not watched any more: the addresses mean something else then.
    #[default]
    Drop,
    /// It stays watched, at the same addresses.
    Keep,
}

/// What is done where there are more addresses than registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RegisterSharing {
    /// It is refused, with a [`Shortage`].
    #[default]
    Refuse,
    /// They take turns: each is watched for a share of the time.
    InTurns(Slice),
}

/// When values are looked at, and hits counted by thread and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ValueTiming {
    /// At the hit, by a program in the kernel; where no program can be had, values are looked at later, and hits told one by one.
    #[default]
    AtHit,
    /// After the hit: values in the memory of the process, hits one by one.
    Later,
}

/// What makes [`Watch::fds`] readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakes {
    /// Each hit.
    EachHit,
    /// A ring that fills up. A caller that wants values soon looks from time to time.
    WhenFull,
}

/// Where the values of hits come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValuesFrom {
    /// The caller did not ask for them.
    Nowhere,
    /// From the hit itself: [`HitValue::AtHit`] where this machine reports an access behind it, [`HitValue::Found`] elsewhere.
    Hit,
    /// Read after the hit: [`HitValue::Read`].
    Memory {
        /// Why not from the hit: a clause, such as `this user may not load BPF programs`; `None` where the caller did not want that.
        why: Option<String>,
    },
}

/// How to watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    /// How much is wanted of a hit.
    pub detail: WatchDetail,
    /// Whether new threads and children are watched.
    pub inherit: Inherit,
    /// What happens to a program that executes another one.
    pub across_exec: AcrossExec,
    /// What is done where there are more addresses than registers.
    pub sharing: RegisterSharing,
    /// When values are looked at, and hits counted by thread and place.
    pub timing: ValueTiming,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            detail: WatchDetail::Hits { max_stack: 8 },
            inherit: Inherit::Children,
            across_exec: AcrossExec::Drop,
            sharing: RegisterSharing::Refuse,
            timing: ValueTiming::AtHit,
        }
    }
}

/// Which hits the kernel lets this user see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// Those of the program and those of the kernel.
    Both,
    /// Those of the program only: for the others this user has no right.
    UserOnly,
}

/// What is told of tasks beside their hits, and their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Births {
    /// Who was born.
    Forks,
    /// That, and what they map.
    WithMappings,
}

/// Since when a process is followed: what it did before is of no concern.
#[derive(Clone, Copy, Debug)]
struct FollowedProcess {
    since: Nanos,
    armed: Nanos,
}

/// Something that is watched, opened in one piece of the target.
enum OpenBreakpoints {
    /// One event, on all of these threads.
    Tasks { tids: Vec<i32>, watch_target: usize, group: Owned<GroupId>, event: EventId, reporter: HitReporter },
    /// The events of all, on CPUs.
    Cpus { watch_targets: Vec<usize>, set: Owned<SetId> },
}

impl OpenBreakpoints {
    fn tids(&self) -> impl Iterator<Item = i32> {
        let tids = if let Self::Tasks { tids, .. } = self { &tids[..] } else { &[] };
        tids.iter().copied()
    }

    fn group(&self) -> Option<GroupId> {
        if let Self::Tasks { group, .. } = self { Some(**group) } else { None }
    }
}

#[derive(Debug)]
struct TargetState {
    watch_target: WatchTarget,
    pieces: Vec<WatchPiece>,
    /// From when on hits are told. `None` until it is armed everywhere.
    armed_at: Option<Nanos>,
    /// Hits that are counted and are none of ours: from before that, or seen twice.
    not_ours: u64,
    /// Hits that were told, or were not because of the condition.
    reported: u64,
}

impl TargetState {
    /// How many bytes of the spot are read: all, or its first piece where that is no number.
    fn readable_bytes(&self) -> u64 {
        match self.watch_target.len {
            1 | 2 | 4 | 8 => self.watch_target.len,
            _ => self.pieces.first().map_or(0, |piece| piece.len),
        }
    }
}

/// Addresses that are watched.
///
/// ```
/// use pmux::event::Access;
/// use pmux::watch::{Watch, WatchEvent, WatchOptions, WatchTarget};
/// use pmux::{Session, Target};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// # fn main() -> Result<(), pmux::Error> {
/// static COUNTER: AtomicU64 = AtomicU64::new(0);
/// let session = Session::new()?;
/// let address = (&raw const COUNTER) as u64;
/// let watch_target = WatchTarget { name: "COUNTER".to_owned(), address, len: 8, access: Access::WRITE };
/// let watch = Watch::open(&session, vec![watch_target], &Target::CurrentThread, WatchOptions::default());
/// let Ok(mut watch) = watch else { return Ok(()) }; // no performance events here, or no register is left
/// COUNTER.store(7, Ordering::Relaxed);
/// for event in watch.finish()? {
///     if let WatchEvent::Hit(hit) = event {
///         println!("thread {} at {:#x} left {:?}", hit.tid, hit.ip, hit.value.now());
///     }
/// }
/// assert_eq!(watch.count(0)?.value, 1);
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    session: Session,
    options: WatchOptions,
    pmu: PmuId,
    counted_by: arm::CountedBy,
    registers: Registers,
    sides: Sides,
    rings: Option<WatchRings>,
    watched: Vec<TargetState>,
    held: Vec<OpenBreakpoints>,
    /// Threads that were found while arming: they may have inherited what they were given once more.
    late: HashSet<i32>,
    /// For those, the event whose hits are told, by thread, CPU and address.
    reported_by: HashMap<(i32, u32, u64), u64>,
    pending: Vec<WatchRecord>,
    memory: Memory,
    probe: Option<WatchProbe>,
    /// Processes whose names, forks and mappings are told, where programs tell of hits.
    followed: HashMap<i32, FollowedProcess>,
    /// What was counted of spots that are watched while others are armed.
    counted: Vec<probe::CountedRow>,
    /// Hits are told one by one so that none is counted twice, and the caller does not want to know of them.
    only_counts: bool,
    /// Why there is no probe although one was wanted.
    no_probe: Option<String>,
    condition: Option<Condition>,
    undecided: u64,
    /// Since when a process has the memory that it has: its fork or exec, where that was seen.
    born: HashMap<i32, Nanos>,
    lost: u64,
    throttled: u64,
    turning: Option<Arc<Turning>>,
    ended_at: Option<Nanos>,
    /// For how long CPUs had been watched then.
    covered: Option<SetCoverage>,
    /// Threads that ended while they were to be armed.
    gone: u64,
}

impl Watch {
    /// Watches spots on a target: everywhere, or it is an error.
    ///
    /// Of processes, all threads are watched: also those that start while the others are being armed.
    ///
    /// # Errors
    /// [`Error::Options`] where there are no performance events, or for cgroups; [`Error::WatchTarget`]; [`Error::NoSuchCpu`],
    /// [`Error::Process`]; [`Error::Shortage`] where registers are not enough; [`Error::Refused`] for what else the kernel says;
    /// [`Error::Ring`].
    pub fn open(
        session: &Session,
        watch_targets: Vec<WatchTarget>,
        target: &Target<'_>,
        options: WatchOptions,
    ) -> Result<Self, Error> {
        Self::begin(session, watch_targets, target, options, None)
    }

    /// As [`Watch::open`], and only hits of which the condition holds are told. All are counted.
    ///
    /// Where a program can look at the hit, and knows what the condition asks for, hits that it excludes cost no more than a count.
    /// Of [`Watch::undecided`] hits it is not known whether it held.
    ///
    /// # Errors
    /// As [`Watch::open`]; [`Error::Options`] where hits are only counted.
    pub fn open_where(
        session: &Session,
        watch_targets: Vec<WatchTarget>,
        target: &Target<'_>,
        options: WatchOptions,
        condition: Condition,
    ) -> Result<Self, Error> {
        if options.detail == WatchDetail::Counts {
            return Err(Error::Options("a condition asks for hits one by one, and they are only to be counted"));
        }
        Self::begin(session, watch_targets, target, options, Some(condition))
    }

    fn begin(
        session: &Session,
        watch_targets: Vec<WatchTarget>,
        target: &Target<'_>,
        options: WatchOptions,
        condition: Option<Condition>,
    ) -> Result<Self, Error> {
        let Backend::Kernel = session.backend() else {
            return Err(Error::Options(
                "watching needs the kernel's performance events, which can't be opened here; `pmux list` says why",
            ));
        };
        if matches!(target, Target::Cgroups { .. }) {
            return Err(Error::Options("a cgroup has no debug registers: watch its processes, or CPUs"));
        }
        let registers = match options.sharing {
            RegisterSharing::Refuse => Registers::Kept,
            RegisterSharing::InTurns(_) => registers::registers(session, &watch_targets, target)?,
        };
        let pmu = session.engine().host().open_watch(registers);
        let pmu = pmu.ok_or(Error::Options("this process watches too many things at once"))?;
        let mut watch = Self {
            session: session.clone(),
            options,
            pmu,
            counted_by: arm::CountedBy::of(session, &options),
            registers,
            sides: Sides::Both,
            rings: None,
            watched: Vec::new(),
            held: Vec::new(),
            late: HashSet::new(),
            reported_by: HashMap::new(),
            pending: Vec::new(),
            memory: Memory::default(),
            probe: None,
            followed: HashMap::new(),
            counted: Vec::new(),
            only_counts: false,
            no_probe: None,
            condition,
            undecided: 0,
            born: HashMap::new(),
            lost: 0,
            throttled: 0,
            turning: None,
            ended_at: None,
            covered: None,
            gone: 0,
        };
        if options.detail != WatchDetail::Counts {
            // CPUs that come need a ring each.
            session.watch_hotplug();
        }
        // What all processes of a machine map is not wanted.
        watch.open_probe(if matches!(target, Target::Cpus(_)) { Births::Forks } else { Births::WithMappings });
        watch.add(watch_targets, target)?;
        Ok(watch)
    }

    fn open_probe(&mut self, births: Births) {
        let purpose = match self.options.detail {
            _ if self.options.timing == ValueTiming::Later => return,
            WatchDetail::Values { .. } => Purpose::Look(self.condition.as_ref()),
            _ if self.condition.is_some() => Purpose::Look(self.condition.as_ref()),
            WatchDetail::Rows { .. } => Purpose::Count,
            WatchDetail::Counts | WatchDetail::Hits { .. } => return,
        };
        match WatchProbe::open(&self.session, self.pmu, self.options.detail.max_stack(), births, purpose) {
            Ok(probe) => self.probe = Some(probe),
            Err(why) => self.no_probe = Some(why),
        }
    }

    /// Why hits are told one by one although they were to be counted by thread and place ([`WatchDetail::Rows`]): a clause. `None` where
    /// they are counted, or the caller did not want that.
    #[must_use]
    pub fn not_counted_because(&self) -> Option<&str> {
        self.no_probe.as_deref().filter(|_| matches!(self.options.detail, WatchDetail::Rows { .. }))
    }

    /// Where the values of hits come from.
    #[must_use]
    pub fn values(&self) -> ValuesFrom {
        match (self.options.detail, &self.probe) {
            (WatchDetail::Values { .. }, None) => ValuesFrom::Memory { why: self.no_probe.clone() },
            (_, Some(probe)) if probe.looks() => ValuesFrom::Hit,
            _ => ValuesFrom::Nowhere,
        }
    }

    /// What makes [`Watch::fds`] readable.
    ///
    /// Hits wake where their values are read behind them, and an access is reported when it is done. Elsewhere the kernel still has to step
    /// over it. On arm64 it does so with interrupts on, and one that comes first makes it begin anew: a hit that raises one each time
    /// would never end (seen with 7.2: 85,333 hits where 20 are right; `breakpoint_handler` in `arch/arm64/kernel/hw_breakpoint.c`).
    #[must_use]
    pub fn wakes(&self) -> Wakes {
        match (self.options.detail, &self.probe) {
            (WatchDetail::Values { .. }, None) if probe::moment() == probe::HitMoment::Behind => Wakes::EachHit,
            _ => Wakes::WhenFull,
        }
    }

    /// Whether there is something to be read behind a hit: data of a program, as long as it is there.
    #[must_use]
    pub fn reads_later(&self) -> bool {
        let read = |watched: &TargetState| !watched.watch_target.is_code() && !watched.watch_target.is_in_kernel();
        let looked_at = self.probe.is_none() || probe::moment() == probe::HitMoment::InFront;
        matches!(self.options.detail, WatchDetail::Values { .. }) && looked_at && self.watched.iter().any(read)
    }

    /// Of how many hits it is not known whether the condition held: they were not told.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.undecided
    }

    /// The spots, in the order in which they were given.
    pub fn watch_targets(&self) -> impl ExactSizeIterator<Item = &WatchTarget> {
        self.watched.iter().map(|watched| &watched.watch_target)
    }

    /// What one register each watches of a spot.
    #[must_use]
    pub fn pieces(&self, watch_target: usize) -> &[WatchPiece] {
        self.watched.get(watch_target).map_or(&[], |watched| &watched.pieces)
    }

    /// Which hits are seen.
    #[must_use]
    pub fn sides(&self) -> Sides {
        self.sides
    }

    /// How registers are handed out; [`Registers::Kept`] where there are enough.
    #[must_use]
    pub fn registers(&self) -> Registers {
        self.registers
    }

    /// Since when a spot is watched everywhere, on the monotonic clock.
    #[must_use]
    pub fn armed_at(&self, watch_target: usize) -> Option<Nanos> {
        self.watched.get(watch_target)?.armed_at
    }

    /// For how long the spot that was armed first is watched; until [`Watch::disarm`], if that was called.
    #[must_use]
    pub fn span(&self) -> Nanos {
        let first = self.watched.iter().filter_map(|watched| watched.armed_at).min();
        let end = self.ended_at.unwrap_or_else(|| self.session.engine().host().now());
        first.map_or(Nanos::ZERO, |first| end.since(first))
    }

    /// How many threads were armed one by one; what they start is not among them.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.held.iter().flat_map(OpenBreakpoints::tids).collect::<HashSet<_>>().len()
    }

    /// How often the kernel held an event back: hits in that time are not even counted.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        self.throttled
    }

    /// How many hits came before all was armed, or were seen twice; they were dropped.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.watched.iter().map(|watched| watched.not_ours).sum()
    }

    /// The fds that become readable when [`Watch::take`] should be called.
    #[must_use]
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.iter().flat_map(WatchRings::fds).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.turning = None;
        self.held.clear();
        self.probe = None;
        self.rings = None;
        self.session.engine().host().close_watch(self.pmu);
    }
}
