//! Records as the tree wants them: owned, with their time.
//!
//! **Invariant:** nothing that a record says is believed to be consistent; what makes no sense is counted as lost.

use pmux_abi::read::ReadMember;
use pmux_abi::record::{CommCause, Record, SampleLayout, decode_record};
use pmux_engine::{Count, Nanos};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TreeRecordKind {
    /// A task started another one.
    Fork { pid: i32, tid: i32, parent: i32 },
    /// A task has another name, by an exec or by itself.
    Name { tid: i32, name: String, exec: bool },
    /// A task has mapped something to be executed.
    Mapped { tid: i32 },
    /// A task that exits has counted so much of the event with this kernel id.
    Read { tid: i32, id: u64, count: Count },
    /// A task has exited.
    Exit { tid: i32 },
    /// The kernel had no room for so many records.
    Lost { records: u64 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TreeRecord {
    pub(super) at: Nanos,
    pub(super) what: TreeRecordKind,
}

/// Reads one record; `None` for those that say nothing about the tree, `Err` for bytes that make no sense.
pub(super) fn entry(bytes: &[u8], layout: &SampleLayout) -> Result<Option<TreeRecord>, ()> {
    let (record, sample) = decode_record(bytes, layout).map_err(|_| ())?;
    let stamp = sample.and_then(|sample| sample.time).map(Nanos);
    let (at, what) = match record {
        Record::Fork(fork) => {
            let what = TreeRecordKind::Fork { pid: signed(fork.pid), tid: signed(fork.tid), parent: signed(fork.ptid) };
            (Some(Nanos(fork.time)), what)
        }
        Record::Exit(exit) => (Some(Nanos(exit.time)), TreeRecordKind::Exit { tid: signed(exit.tid) }),
        Record::Comm(comm) => {
            let name = String::from_utf8_lossy(comm.comm).into_owned();
            (stamp, TreeRecordKind::Name { tid: signed(comm.tid), name, exec: comm.cause == CommCause::Exec })
        }
        Record::Mmap(mmap) => (stamp, TreeRecordKind::Mapped { tid: signed(mmap.tid) }),
        Record::Read(read) => {
            let ReadMember { value, id, .. } = read.values.first().ok_or(())?;
            let count = Count {
                value,
                enabled: Nanos(read.values.time_enabled.ok_or(())?),
                running: Nanos(read.values.time_running.ok_or(())?),
            };
            (stamp, TreeRecordKind::Read { tid: signed(read.tid), id: id.ok_or(())?, count })
        }
        Record::Lost(lost) => (stamp, TreeRecordKind::Lost { records: lost.lost }),
        _ => return Ok(None),
    };
    Ok(Some(TreeRecord { at: at.ok_or(())?, what }))
}

/// The kernel writes task numbers as unsigned words; a task outside our pid namespace is -1 there.
fn signed(number: u32) -> i32 {
    number.cast_signed()
}
