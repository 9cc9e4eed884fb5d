//! What the reader and the screen tell each other.
//!
//! What it is: the screen says all that it wants to see as one [`ViewRequest`]; the reader answers with [`ReaderMessage`], again and
//! again while there is more to read. Read first: [`TableQuery`], [`TableData`].
//!
//! **Invariant:** plain data with texts that may stand on a terminal; nothing here points into a recording that is being read.

use pmux::profile::{Name, Progress, RowGroup, SortKey, Spot, ThreadId, TreeSide, Weight};
use std::collections::HashMap;

/// What rows are told apart by, whatever else changes: a row keeps it while its weights grow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RowKey {
    pub(super) group: RowGroup,
    pub(super) spot: Spot,
}

/// A part of the recording: only samples that belong there are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ZoomTarget {
    /// Of this thread.
    Thread(ThreadId),
    /// Met in this program or library, by what it is called in a table.
    Program(Name),
    /// Met in this function, or in what it had called.
    Function(Spot),
}

/// A part that is looked at, and what it is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Zoom {
    pub(super) part: ZoomTarget,
    pub(super) label: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TableQuery {
    /// The place of its event.
    pub(super) event: usize,
    /// Each within the one before.
    pub(super) zooms: Vec<Zoom>,
    /// What rows are told apart by.
    pub(super) keys: Vec<SortKey>,
}

/// What the weights of a function are shown by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SourceBy {
    Lines,
    /// Instructions.
    Addresses,
}

/// All that the screen wants to see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ViewRequest {
    pub(super) query: TableQuery,
    /// Rows whose calls are wanted.
    pub(super) open: Vec<RowKey>,
    /// The function whose source is wanted, and by what.
    pub(super) source: Option<(Spot, SourceBy)>,
}

#[derive(Clone, Debug)]
pub(super) struct TableRow {
    pub(super) key: RowKey,
    /// A text for each key of the subject.
    pub(super) cells: Vec<String>,
    pub(super) own: Weight,
    pub(super) total: Weight,
    /// The program or library, where rows are told apart by it or by functions.
    pub(super) program: Option<(Name, String)>,
}

/// A step of the way to a call: what is open is remembered by such ways.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum CallStep {
    /// The heading of one side.
    Side(TreeSide),
    Call(Spot),
}

/// A line of the calls beside a row: a preorder of the tree.
#[derive(Clone, Debug)]
pub(super) struct CallLine {
    pub(super) step: CallStep,
    pub(super) name: String,
    pub(super) program: Option<(Name, String)>,
    pub(super) weight: Weight,
    pub(super) depth: usize,
    /// The first line that is not below this one.
    pub(super) end: usize,
    /// How many are right below it.
    pub(super) next: usize,
    /// For each depth down to its own: whether one more stands beside it further down.
    pub(super) rails: Vec<bool>,
}

#[derive(Clone, Debug)]
pub(super) struct TableData {
    pub(super) query: TableQuery,
    /// All that is counted in it.
    pub(super) total: Weight,
    pub(super) lines: Vec<TableRow>,
    /// The calls beside the rows that were asked for.
    pub(super) calls: HashMap<RowKey, Vec<CallLine>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EventLine {
    pub(super) name: String,
    pub(super) total: Weight,
    pub(super) chains: Chains,
}

/// Whether call chains were recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chains {
    Recorded,
    Missing,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ThreadLine {
    pub(super) id: ThreadId,
    pub(super) pid: i32,
    pub(super) tid: i32,
    pub(super) name: String,
    /// By event.
    pub(super) weights: Vec<Weight>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Overview {
    pub(super) events: Vec<EventLine>,
    pub(super) threads: Vec<ThreadLine>,
    /// What it tells of itself: what, and the text.
    pub(super) about: Vec<(&'static str, String)>,
    /// What is missing, in sentences.
    pub(super) remarks: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SourceLine {
    pub(super) place: SourcePlace,
    pub(super) text: String,
    pub(super) own: Weight,
    pub(super) total: Weight,
}

/// What a line of the source view stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SourcePlace {
    /// The line of this number.
    Line(u32),
    /// What was inlined into the line above.
    Inlined,
    /// Bytes behind the function's beginning.
    Offset(u64),
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Source {
    pub(super) program: String,
    /// All that went through it.
    pub(super) total: Weight,
    /// The file, where one is known.
    pub(super) file: Option<String>,
    /// Lines with what was met in them; of a file that can be read, all of it.
    pub(super) lines: Vec<SourceLine>,
    /// Addresses with what was met there.
    pub(super) addresses: Vec<SourceLine>,
    /// What is not as it should be, in sentences.
    pub(super) remarks: Vec<String>,
}

#[derive(Debug)]
pub(super) enum ReaderMessage {
    /// So far it was read, and so many samples were met.
    Progress(Progress, u64),
    Overview(Overview),
    TableData(TableData),
    /// The source of this function, of that subject.
    Source(TableQuery, Spot, Source),
    Finished,
    Failed(String),
}
