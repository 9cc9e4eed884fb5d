//! Whether a task has inherited what was opened on another one.
//!
//! What it is: threads are listed, and events opened on them one by one, while they start others. Whether a new thread was born
//! before or after the events of its parent were opened, the kernel does not say. [`Lineage`] marks a thread right before and right
//! after its events are opened: a mark is inherited as they are, and tells of each task that has it when that task begins to run.
//!
//! How: a mark is a dummy event with `context_switch` and `inherit`. It writes `PERF_RECORD_SWITCH` with its own id and the number of
//! the task that is switched in.
//!
//! **Invariant:** a mark is on when its opening returns, so no task that has it begins to run untold. Marks count nothing.
//!
//! Linux: `perf_event_init_task`, `perf_event_switch` (kernel/events/core.c, 6.18).

use crate::current_tid;
use crate::dummies::{DummyRings, dummy, open};
use crate::sys::{Errno, perf};
use pmux_abi::attr::AttrFlags;
use pmux_abi::record::Record;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd as _, OwnedFd};

/// Pages of data of a ring: some thousand switches.
const RING_PAGES: u32 = 16;

/// When a mark is opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MarkTime {
    /// Before the events.
    Before,
    /// After them.
    After,
}

/// What a task has of another one's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// Nothing, as far as is told.
    Nothing,
    /// Everything.
    Everything,
    /// It was born while they were opened: perhaps some.
    Perhaps,
}

/// The marks of threads, and the tasks that have them.
#[derive(Debug)]
pub struct Lineage {
    /// Those of this thread, into which marks write.
    rings: DummyRings,
    marks: HashMap<i32, Vec<OwnedFd>>,
    /// Whose mark an id is.
    ids: HashMap<u64, (i32, MarkTime)>,
    /// The task that runs with a mark, whose mark that is, and which.
    carriers: HashSet<(i32, i32, MarkTime)>,
}

impl Lineage {
    /// Maps a ring for each of these CPUs.
    ///
    /// # Errors
    /// Those of `perf_event_open(2)` and `mmap(2)`.
    pub fn open(cpus: impl IntoIterator<Item = u32>) -> Result<Self, Errno> {
        let rings = DummyRings::open(&dummy(AttrFlags::empty()), current_tid(), cpus, RING_PAGES)?;
        let (marks, ids, carriers) = (HashMap::new(), HashMap::new(), HashSet::new());
        Ok(Self { rings, marks, ids, carriers })
    }

    /// Marks a thread.
    ///
    /// # Errors
    /// `ESRCH` where it has ended; otherwise those of `perf_event_open(2)`.
    pub fn mark(&mut self, tid: i32, moment: MarkTime) -> Result<(), Errno> {
        let attr = dummy(AttrFlags::INHERIT | AttrFlags::CONTEXT_SWITCH);
        let marks = self.marks.entry(tid).or_default();
        for (cpu, output) in self.rings.outputs() {
            let fd = open(&attr, tid, cpu, Some(output))?;
            self.ids.insert(perf::id(fd.as_fd())?, (tid, moment));
            marks.push(fd);
        }
        Ok(())
    }

    /// Takes in what marks have told.
    pub fn follow(&mut self) {
        let Self { rings, ids, carriers, .. } = self;
        rings.drain(&mut |record, id| {
            let (Record::Switch(_), Some(id)) = (record, id) else { return };
            let mark = id.event_id().and_then(|id| ids.get(&id));
            if let (Some(task), Some(&(of, moment))) = (id.task, mark) {
                carriers.insert((task.tid.cast_signed(), of, moment));
            }
        });
    }

    /// What a task has of the events of other threads that were marked, as of the last [`Lineage::follow`].
    #[must_use]
    pub fn inherited(&self, tid: i32) -> Inherited {
        let others = || self.carriers.iter().filter(|(task, of, _)| *task == tid && *of != tid);
        let has = |of: i32, moment| self.carriers.contains(&(tid, of, moment));
        if others().any(|&(_, of, _)| has(of, MarkTime::Before) && !has(of, MarkTime::After)) {
            return Inherited::Perhaps;
        }
        if others().next().is_some() { Inherited::Everything } else { Inherited::Nothing }
    }

    /// How many records there was no room for: of those tasks nothing is known.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.rings.lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::Cpus;
    use std::sync::mpsc::channel;

    /// A thread that starts another one when it is told to, which ends when it is told to.
    #[test]
    fn who_was_born_before_and_who_after_is_told() {
        let online = Cpus::system().online().unwrap();
        let Ok(mut lineage) = Lineage::open(online.iter()) else {
            return println!("skipped: needs performance events");
        };
        let (say, received) = channel();
        let (go, wait) = channel::<()>();
        let parent = std::thread::spawn(move || {
            let mut children = Vec::new();
            say.send(current_tid()).unwrap();
            while wait.recv().is_ok() {
                let (say, (leave, left)) = (say.clone(), channel::<()>());
                let child = std::thread::spawn(move || {
                    say.send(current_tid()).unwrap();
                    let _ = left.recv();
                });
                children.push((leave, child));
            }
            for (leave, child) in children {
                drop(leave);
                child.join().unwrap();
            }
        });
        let parent_tid = received.recv().unwrap();
        let born = || {
            go.send(()).unwrap();
            received.recv().unwrap()
        };
        let early = born();
        lineage.mark(parent_tid, MarkTime::Before).unwrap();
        let between = born();
        lineage.mark(parent_tid, MarkTime::After).unwrap();
        let late = born();
        lineage.follow();
        let all = [early, between, late, parent_tid].map(|tid| lineage.inherited(tid));
        assert_eq!(all, [Inherited::Nothing, Inherited::Perhaps, Inherited::Everything, Inherited::Nothing]);
        assert_eq!(lineage.lost(), 0);
        drop(go);
        parent.join().unwrap();
    }
}
