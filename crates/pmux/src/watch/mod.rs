//! Watching addresses: who touches this, from where, how often.
//!
//! What it is: debug registers on everything that a target has, and the hits one by one.
//! Read first: [`Watch`]. Then `arm` (everywhere or nowhere), `take` (what the rings hold) and [`Tally`] (hits by thread
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
mod spot;
mod take;
mod tally;
mod threads;

pub use crate::text::TextError;
pub use condition::{Answer, Condition, NAMES as CONDITION_NAMES};
pub use hit::{Hit, Side, Value, stands_behind};
pub use shortage::{Holding, Shortage, Tracer};
pub use spot::{Piece, Spot, SpotError};
pub use take::{Cause, Further, News};
pub use tally::{Caller, Row, Tally};

use crate::counters::SetCoverage;
use crate::error::Error;
use crate::mux::Slice;
use crate::mux::turns::Turning;
use crate::session::{Backend, Session};
use crate::target::{Inherit, Target};
use arm::Teller;
use memory::Memory;
use pmux_engine::{EventId, GroupId, Host as _, Nanos, PmuId, SetId};
pub use pmux_linux::host::Registers;
use probe::{Probe, Purpose};
use rings::{Entry, Rings};
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// How much is wanted of a hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Its number only: nothing is written anywhere, a hit costs no more than any counted event. In a session that counts through a
    /// service, all who count the hits of one address on one target share its register.
    Counts,
    /// Who and from where, with so many callers at most; looked at now and then.
    Hits {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
    /// Who, from where and how often: by thread and place. Where a program can count hits in the kernel, only some are told one by one,
    /// with their callers ([`News::Hit`]), and of the others how many they are ([`News::Further`]): then a hit costs little
    /// more than one that is only counted. Elsewhere it is [`Detail::Hits`].
    Rows {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
    /// As [`Detail::Hits`], with values. Where they are read after the hit ([`Watch::values`]) that should be soon: [`Watch::wakes`].
    Values {
        /// Frames of the call chain; 0 for none.
        max_stack: u16,
    },
}

impl Detail {
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
pub enum Sharing {
    /// It is refused, with a [`Shortage`].
    #[default]
    Refuse,
    /// They take turns: each is watched for a share of the time.
    InTurns(Slice),
}

/// When values are looked at, and hits counted by thread and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Looking {
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
    /// From the hit itself: [`Value::AtHit`] where this machine reports an access behind it, [`Value::Found`] elsewhere.
    Hit,
    /// Read after the hit: [`Value::Read`].
    Memory {
        /// Why not from the hit: a clause, such as `this user may not load BPF programs`; `None` where the caller did not want that.
        why: Option<String>,
    },
}

/// How to watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchOptions {
    /// How much is wanted of a hit.
    pub detail: Detail,
    /// Whether new threads and children are watched.
    pub inherit: Inherit,
    /// What happens to a program that executes another one.
    pub across_exec: AcrossExec,
    /// What is done where there are more addresses than registers.
    pub sharing: Sharing,
    /// When values are looked at, and hits counted by thread and place.
    pub looking: Looking,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            detail: Detail::Hits { max_stack: 8 },
            inherit: Inherit::Children,
            across_exec: AcrossExec::Drop,
            sharing: Sharing::Refuse,
            looking: Looking::AtHit,
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
    Told,
    /// That, and what they map.
    WithMappings,
}

/// Since when a process is followed: what it did before is of no concern.
#[derive(Clone, Copy, Debug)]
struct Followed {
    since: Nanos,
    armed: Nanos,
}

/// Something that is watched, opened in one piece of the target.
#[derive(Debug)]
enum Held {
    /// One event, on all of these threads.
    Tasks {
        tids: Vec<i32>,
        spot: usize,
        group: GroupId,
        event: EventId,
        teller: Teller,
    },
    Cpus {
        spots: Vec<usize>,
        set: SetId,
    },
}

impl Held {
    fn tids(&self) -> impl Iterator<Item = i32> {
        let tids = match self {
            Self::Tasks { tids, .. } => &tids[..],
            Self::Cpus { .. } => &[],
        };
        tids.iter().copied()
    }

    fn group(&self) -> Option<GroupId> {
        match self {
            Self::Tasks { group, .. } => Some(*group),
            Self::Cpus { .. } => None,
        }
    }
}

#[derive(Debug)]
struct Watched {
    spot: Spot,
    pieces: Vec<Piece>,
    /// From when on hits are told. `None` until it is armed everywhere.
    armed_at: Option<Nanos>,
    /// Hits that are counted and are none of ours: from before that, or seen twice.
    not_ours: u64,
    /// Hits that were told, or were not because of the condition.
    told: u64,
}

impl Watched {
    /// How many bytes of the spot are read: all, or its first piece where that is no number.
    fn readable_bytes(&self) -> u64 {
        match self.spot.len {
            1 | 2 | 4 | 8 => self.spot.len,
            _ => self.pieces.first().map_or(0, |piece| piece.len),
        }
    }
}

/// Addresses that are watched.
///
/// ```
/// use pmux::event::Access;
/// use pmux::watch::{News, Spot, Watch, WatchOptions};
/// use pmux::{Session, Target};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// # fn main() -> Result<(), pmux::Error> {
/// static COUNTER: AtomicU64 = AtomicU64::new(0);
/// let session = Session::new()?;
/// let address = (&raw const COUNTER) as u64;
/// let spot = Spot { name: "COUNTER".to_owned(), address, len: 8, access: Access::WRITE };
/// let watch = Watch::open(&session, vec![spot], &Target::CurrentThread, WatchOptions::default());
/// let Ok(mut watch) = watch else { return Ok(()) }; // no performance events here, or no register is left
/// COUNTER.store(7, Ordering::Relaxed);
/// for news in watch.finish()? {
///     if let News::Hit(hit) = news {
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
    rings: Option<Rings>,
    watched: Vec<Watched>,
    held: Vec<Held>,
    /// Threads that were found while arming: they may have inherited what they were given once more.
    late: HashSet<i32>,
    /// For those, the event whose hits are told, by thread, CPU and address.
    told_by: HashMap<(i32, u32, u64), u64>,
    pending: Vec<Entry>,
    memory: Memory,
    probe: Option<Probe>,
    /// Processes whose names, forks and mappings are told, where programs tell of hits.
    followed: HashMap<i32, Followed>,
    /// What was counted of spots that are watched while others are armed.
    counted: Vec<probe::Counted>,
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
    /// [`Error::Options`] where there are no performance events, or for cgroups; [`Error::Spot`]; [`Error::NoSuchCpu`],
    /// [`Error::Process`]; [`Error::Shortage`] where registers are not enough; [`Error::Refused`] for what else the kernel says;
    /// [`Error::Ring`].
    pub fn open(
        session: &Session,
        spots: Vec<Spot>,
        target: &Target<'_>,
        options: WatchOptions,
    ) -> Result<Self, Error> {
        Self::begin(session, spots, target, options, None)
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
        spots: Vec<Spot>,
        target: &Target<'_>,
        options: WatchOptions,
        condition: Condition,
    ) -> Result<Self, Error> {
        if options.detail == Detail::Counts {
            return Err(Error::Options("a condition asks for hits one by one, and they are only to be counted"));
        }
        Self::begin(session, spots, target, options, Some(condition))
    }

    fn begin(
        session: &Session,
        spots: Vec<Spot>,
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
            Sharing::Refuse => Registers::Kept,
            Sharing::InTurns(_) => registers::registers(session, &spots, target)?,
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
            told_by: HashMap::new(),
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
        if options.detail != Detail::Counts {
            // CPUs that come need a ring each.
            session.watch_hotplug();
        }
        // What all processes of a machine map is not wanted.
        watch.open_probe(if matches!(target, Target::Cpus(_)) { Births::Told } else { Births::WithMappings });
        watch.add(spots, target)?;
        Ok(watch)
    }

    fn open_probe(&mut self, births: Births) {
        let purpose = match self.options.detail {
            _ if self.options.looking == Looking::Later => return,
            Detail::Values { .. } => Purpose::Look(self.condition.as_ref()),
            _ if self.condition.is_some() => Purpose::Look(self.condition.as_ref()),
            Detail::Rows { .. } => Purpose::Count,
            Detail::Counts | Detail::Hits { .. } => return,
        };
        match Probe::open(&self.session, self.pmu, self.options.detail.max_stack(), births, purpose) {
            Ok(probe) => self.probe = Some(probe),
            Err(why) => self.no_probe = Some(why),
        }
    }

    /// Why hits are told one by one although they were to be counted by thread and place ([`Detail::Rows`]): a clause. `None` where
    /// they are counted, or the caller did not want that.
    #[must_use]
    pub fn not_counted_because(&self) -> Option<&str> {
        self.no_probe.as_deref().filter(|_| matches!(self.options.detail, Detail::Rows { .. }))
    }

    /// Where the values of hits come from.
    #[must_use]
    pub fn values(&self) -> ValuesFrom {
        match (self.options.detail, &self.probe) {
            (Detail::Values { .. }, None) => ValuesFrom::Memory { why: self.no_probe.clone() },
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
            (Detail::Values { .. }, None) if probe::moment() == probe::Moment::Behind => Wakes::EachHit,
            _ => Wakes::WhenFull,
        }
    }

    /// Whether there is something to be read behind a hit: data of a program, as long as it is there.
    #[must_use]
    pub fn reads_later(&self) -> bool {
        let read = |watched: &Watched| !watched.spot.is_code() && !watched.spot.is_in_kernel();
        let looked_at = self.probe.is_none() || probe::moment() == probe::Moment::InFront;
        matches!(self.options.detail, Detail::Values { .. }) && looked_at && self.watched.iter().any(read)
    }

    /// Of how many hits it is not known whether the condition held: they were not told.
    #[must_use]
    pub fn undecided(&self) -> u64 {
        self.undecided
    }

    /// The spots, in the order in which they were given.
    pub fn spots(&self) -> impl ExactSizeIterator<Item = &Spot> {
        self.watched.iter().map(|watched| &watched.spot)
    }

    /// What one register each watches of a spot.
    #[must_use]
    pub fn pieces(&self, spot: usize) -> &[Piece] {
        self.watched.get(spot).map_or(&[], |watched| &watched.pieces)
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
    pub fn armed_at(&self, spot: usize) -> Option<Nanos> {
        self.watched.get(spot)?.armed_at
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
        self.held.iter().flat_map(Held::tids).collect::<HashSet<_>>().len()
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
        self.rings.iter().flat_map(Rings::fds).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.turning = None;
        self.let_go(0);
        self.probe = None;
        self.rings = None;
        self.session.engine().host().close_watch(self.pmu);
    }
}
