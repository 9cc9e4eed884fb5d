//! Recordings, read: any `perf.data`, as a model of who ran what when.
//!
//! What it is: [`read`] takes a recording ([`Input`]) and tells a [`Sink`] of each sample and each happening in the order of time.
//! What many samples share is in the [`Profile`] and has numbers: names ([`Names`]), programs ([`Modules`]), stacks ([`Stacks`]),
//! processes and threads ([`Tasks`]), events. [`Symbols`] knows what functions the frames are, each looked up once; [`Tally`] is a
//! sink that adds samples up, [`Hot`] makes rows of them; [`formats`] takes tracepoints apart. Read first: [`Sink`], [`Sample`].
//!
//! ```no_run
//! use pmux::profile::{Input, Symbols, Tally, read};
//! # fn main() -> Result<(), pmux::profile::ProfileError> {
//! let mut tally = Tally::default();
//! let profile = read(Input::open("perf.data".as_ref())?, &mut tally)?;
//! let mut symbols = Symbols::new(&profile);
//! symbols.resolve_all(&profile);
//! for (key, weight) in tally.rows() {
//!     if let Some(frame) = profile.stacks.innermost(key.stack) {
//!         println!("{} {}", weight.period, symbols.function_of(&profile, frame).name);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** memory grows with what is different (stacks, programs, tasks), and not with the length of a recording. The bytes may be
//! anything: what can't be understood is counted in [`Losses`], and the rest is read.

/// The number of an item of a list.
macro_rules! number {
    ($(#[$about:meta])* $name:ident, $place:literal) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(u32);

        impl $name {
            #[doc = $place]
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

mod broken;
mod build_ids;
mod choose;
mod convert;
mod critical;
mod error;
mod folder;
pub mod formats;
mod head;
mod hot;
mod hot_sums;
mod hot_tree;
mod input;
mod maps;
mod modules;
mod names;
mod parallel;
mod places;
mod reader;
mod rounds;
mod run_queue;
mod spans;
mod stacks;
mod symbols;
mod tally;
mod tasks;
mod times;
mod unpack;
mod wakes;
mod wall;
mod whole;

pub use crate::symbol::{CodeRange, ResolvedFrame as CodeFrame, Sources};
pub use broken::BrokenChains;
pub use choose::{Chosen, SampleFilter};
pub use convert::read;
pub use critical::{PathWait, Stretch, critical_path};
pub use error::ProfileError;
pub use folder::apart as recordings_apart;
pub use head::{About, EventGroup, EventInfo};
pub use hot::{Hot, Row, RowGroup, SortKey, Spot, apart, level};
pub use hot_tree::{Call, CallChain, Order, Tree, TreeSide, Trees};
pub use input::Input;
pub use maps::DataPlace;
pub use modules::{Module, ModuleId, ModuleKind, Modules};
pub use names::{Name, Names};
pub use places::{CodeKind, Inlining, LookupDetail, SourceLine, SourceLineId, SourceLines};
pub use run_queue::{NamedThread, QueuedSum, QueuedWait, RunQueue};
pub use spans::{Span, interval_ns, spans};
pub use stacks::{Frame, FrameId, Site, StackId, Stacks};
pub use symbols::{Function, FunctionId, Symbols};
pub use tally::{Apart, Key, Tally, Weight};
pub use tasks::{Process, ProcessId, Tasks, Thread, ThreadId};
pub use times::TimeKind;
pub(crate) use times::weight_of;
pub use wakes::{WaitEnd, WaitLink, WaitLinks, WaitSum};
pub use wall::{Interrupt, WaitKind, WaitSpan, Waker};
pub use whole::{Noted, NotedKind, Taken, Whole};

use crate::symbol::{KernelId, Recorded};
/// Records and their fields, as the kernel writes them.
pub use pmux_abi::record as records;
use pmux_abi::record::{self, CpuMode, Record, RecordHeader};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What samples share.
#[derive(Debug)]
pub struct Profile {
    /// What the recording tells of itself.
    pub about: About,
    /// The events; samples have their places.
    pub events: Vec<EventInfo>,
    /// All names.
    pub names: Names,
    /// Processes and threads.
    pub tasks: Tasks,
    /// Programs.
    pub modules: Modules,
    /// Stacks.
    pub stacks: Stacks,
    /// Paths of cgroups by their ids.
    pub cgroups: std::collections::HashMap<u64, Name>,
    /// What is missing.
    pub losses: Losses,
    /// What a reader of the results should know, in sentences.
    pub notes: Vec<String>,
    /// What the fields of tracepoints mean, as it stands in the recording.
    pub tracing: Vec<u8>,
    /// Where processes wrote what they said of the code that they made (`jit-PID.dump`).
    pub dumps: std::collections::HashMap<i32, Name>,
    /// Where the files of the recorded machine are looked for.
    pub sources: Sources,
    /// When its file was written last; `None` of a stream.
    written: Option<SystemTime>,
}

impl Profile {
    /// When it ended, as far as that is known: by the clock that was recorded, or else when its file was written.
    fn ended(&self) -> Option<SystemTime> {
        let last_ns = self.about.sampled_ns.map(|(_, last)| last);
        let end_ns = self.about.clock_moment_ns.zip(last_ns);
        let end_ns = end_ns.and_then(|((day, clock), last)| day.checked_add(last)?.checked_sub(clock));
        end_ns.and_then(|ns| UNIX_EPOCH.checked_add(Duration::from_nanos(ns))).or(self.written)
    }

    /// What is known of a module's file.
    fn recorded<'a>(&'a self, module: &'a Module) -> Recorded<'a> {
        let path = self.names.get(module.path);
        Recorded {
            path: Path::new(path.strip_suffix(" (deleted)").unwrap_or(path)),
            build_id: module.build_id.as_ref().map(|id| id.as_bytes()),
            pid: module.pid,
            until: self.ended(),
        }
    }

    fn kernel_id(&self) -> KernelId<'_> {
        let build_id = &self.modules.get(ModuleId::KERNEL).build_id;
        KernelId {
            release: self.about.kernel.as_deref(),
            build_id: build_id.as_ref().map(|id| id.as_bytes()),
            text: self.about.kernel_text.as_ref().map(|(name, address)| (name.as_str(), *address)),
        }
    }
}

/// What a recording lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses {
    /// Records that the kernel says it lost, for want of room.
    pub lost: u64,
    /// Samples that it lost, by the counts of the events.
    pub lost_samples: u64,
    /// Records that are not understood.
    pub broken: u64,
    /// Records of events that the recording does not describe.
    pub of_no_event: u64,
    /// Records that came too late to be put in their place.
    pub late: u64,
    /// Bytes at the end that are no whole record.
    pub cut_off_bytes: u64,
    /// Samples whose call chains are deeper than [`Sink::max_stack`]: their outermost frames were left out.
    pub cut_chains: u64,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When, in ns of the recording's clock; 0 where that was not recorded.
    pub time_ns: u64,
    /// On which CPU, where that was recorded.
    pub cpu: Option<u32>,
    /// The place of its event in [`Profile::events`].
    pub event: usize,
    /// Whose.
    pub thread: ThreadId,
    /// What the thread is called at that time.
    pub comm: Name,
    /// How many occurrences it stands for.
    pub period: u64,
    /// The stack; its innermost frame is where it was met.
    pub stack: StackId,
    /// Each address of the call chain with its frame, the innermost first; empty unless [`Sink::wants`] says [`Detail::Addresses`].
    pub addresses: &'a [(u64, FrameId)],
    /// The mode of the CPU.
    pub mode: CpuMode,
    /// How many threads had a CPU then, with this one: of all that is recorded, or of its process where whole CPUs are; 0 for an idle CPU.
    /// `None` where context switches are not recorded, and for waits.
    pub parallelism: Option<u32>,
    /// All its fields, as they were recorded.
    pub fields: &'a record::Sample<'a>,
}

/// Something that is no sample.
#[derive(Clone, Copy, Debug)]
pub struct Happening<'a> {
    /// When, in ns of the recording's clock; 0 for what was there before, or where that was not recorded.
    pub time_ns: u64,
    /// On which CPU, where that was recorded.
    pub cpu: Option<u32>,
    /// Whose record it is.
    pub thread: Option<ThreadId>,
    /// The place of its event in [`Profile::events`].
    pub event: usize,
    /// Its header.
    pub header: RecordHeader,
    /// The record.
    pub record: &'a Record<'a>,
}

/// What a sink wants to know of each sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// Where it was met: a stack of that frame alone, which takes least. Of [`Sample::fields`] those behind the period may be missing.
    Innermost,
    /// Its stack.
    #[default]
    Stacks,
    /// The addresses of its stack too, which takes longer.
    Addresses,
}

/// How far reading is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes that were read.
    pub bytes: u64,
    /// How many there are, where that is known.
    pub of_bytes: Option<u64>,
}

/// Who is told what a recording holds, in the order of time.
pub trait Sink {
    /// What each sample should tell.
    fn wants(&self) -> Detail {
        Detail::Stacks
    }

    /// So many frames of each call chain are read, the innermost ones; the rest is counted in [`Losses::cut_chains`].
    fn max_stack(&self) -> usize {
        usize::MAX
    }

    /// A sample. [`ControlFlow::Break`] ends the reading.
    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()>;

    /// Something else, after the profile has taken it in.
    fn happening(&mut self, _profile: &Profile, _happening: &Happening<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// So far it was read: some hundred times in a large recording.
    fn progress(&mut self, _profile: &Profile, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
