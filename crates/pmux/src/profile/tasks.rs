//! Processes and threads, as they come, change their names and go.
//!
//! What it is: a [`Thread`] and a [`Process`] for each life of a number: numbers are given out again. Read first:
//! [`Tasks::thread`].
//!
//! **Invariant:** a [`ThreadId`] is one life of one thread; what is told in the order of time is never changed later, but its end.

use super::maps::Maps;
use super::names::{Name, Names};
use hashbrown::HashMap;
use std::sync::Arc;

number! {
    /// A thread of [`Tasks`].
    ThreadId, "Its place in [`Tasks::threads`]."
}

number! {
    /// A process of [`Tasks`].
    ProcessId, "Its place in [`Tasks::processes`]."
}

/// One life of a thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its number.
    pub tid: i32,
    /// Its process.
    pub process: ProcessId,
    /// The thread that started it, if that was seen.
    pub parent: Option<ThreadId>,
    /// Its names over time: from when, in ns, and which. At least one.
    pub names: Vec<(u64, Name)>,
    /// When it was started, in ns; `None` if it was there before.
    pub born_ns: Option<u64>,
    /// When it ended, in ns; `None` if that was not seen.
    pub ended_ns: Option<u64>,
}

impl Thread {
    /// Its name now: at the last record that was read.
    #[must_use]
    pub fn name(&self) -> Name {
        self.names.last().map_or(Name::default(), |(_, name)| *name)
    }

    /// Whether it got its name then.
    pub(super) fn is_named_since(&self, time_ns: u64) -> bool {
        self.names.last().is_some_and(|(since_ns, _)| *since_ns == time_ns)
    }
}

/// So many lives, names and programs are kept whatever the size of a recording; of larger ones, one for each so many bytes.
const ALWAYS_KEPT: usize = 1 << 20;
const BYTES_OF_EACH: u64 = 4;

/// One life of a process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Which life of this number it is, from 0.
    pub generation: u32,
    /// The process that started it, if that was seen.
    pub parent: Option<ProcessId>,
    /// Its first thread, if it was seen.
    pub main: Option<ThreadId>,
    /// When it was started, in ns; `None` if it was there before.
    pub born_ns: Option<u64>,
    /// When its first thread ended, in ns; `None` if that was not seen.
    pub ended_ns: Option<u64>,
    /// Times at which it executed another program, in ns.
    pub execs_ns: Vec<u64>,
    pub(super) maps: Arc<Maps>,
    /// Changes with each change of the mappings, and is no other process's unless it has the same mappings.
    pub(super) stamp: u32,
    alive: u32,
}

/// All lives of all threads.
#[derive(Debug, Default)]
pub struct Tasks {
    threads: Vec<Thread>,
    processes: Vec<Process>,
    by_tid: HashMap<i32, ThreadId>,
    by_pid: HashMap<i32, ProcessId>,
    stamps: u32,
    /// How many lives, names and programs are kept, and how many may be: packed records may tell of any number.
    kept: usize,
    most: usize,
    pub(super) left_out: u64,
}

impl Tasks {
    /// So many bytes of the recording were read. Each life, name and program takes some of them, however well they are packed.
    pub(super) fn allow(&mut self, bytes: u64) {
        self.most = ALWAYS_KEPT.saturating_add(usize::try_from(bytes / BYTES_OF_EACH).unwrap_or(usize::MAX));
    }

    fn has_room(&mut self) -> bool {
        let has_room = self.kept < self.most.max(ALWAYS_KEPT);
        self.kept += usize::from(has_room);
        self.left_out += u64::from(!has_room);
        has_room
    }

    /// All threads, in the order in which they were met.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// All processes, in the order in which they were met.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// A thread.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id.index()]
    }

    /// A process.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    /// The process of a thread.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn process_of(&self, id: ThreadId) -> &Process {
        self.process(self.thread(id).process)
    }

    /// The life of a thread that goes on now; it begins if none does.
    pub(super) fn find(&mut self, pid: i32, tid: i32, names: &mut Names) -> ThreadId {
        let known = self.by_tid.get(&tid).copied();
        if let Some(known) = known.filter(|&known| self.process_of(known).pid == pid) {
            return known;
        }
        let last = self.threads.len().checked_sub(1).map(|last| ThreadId(last as u32));
        if !self.has_room()
            && let Some(known) = known.or(last)
        {
            return known;
        }
        let process = self.process_by(pid, None);
        let name = if tid == 0 { names.intern(b"swapper") } else { names.intern(format!(":{tid}").as_bytes()) };
        self.begin(process, tid, None, name, None)
    }

    fn process_by(&mut self, pid: i32, born_ns: Option<u64>) -> ProcessId {
        self.by_pid.get(&pid).copied().unwrap_or_else(|| self.new_process(pid, born_ns))
    }

    fn new_process(&mut self, pid: i32, born_ns: Option<u64>) -> ProcessId {
        let id = ProcessId(self.processes.len() as u32);
        let before = self.by_pid.insert(pid, id);
        let generation = before.map_or(0, |before| self.process(before).generation + 1);
        if let Some(before) = before {
            self.processes[before.index()].maps = Arc::default();
        }
        let (stamp, maps, execs_ns) = (self.next_stamp(), Arc::default(), Vec::new());
        let (parent, main, ended_ns) = (None, None, None);
        let process = Process { pid, generation, parent, main, born_ns, ended_ns, execs_ns, maps, stamp, alive: 0 };
        self.processes.push(process);
        id
    }

    fn begin(
        &mut self,
        process: ProcessId,
        tid: i32,
        parent: Option<ThreadId>,
        name: Name,
        born_ns: Option<u64>,
    ) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        let names = vec![(born_ns.unwrap_or(0), name)];
        self.threads.push(Thread { tid, process, parent, names, born_ns, ended_ns: None });
        self.by_tid.insert(tid, id);
        let process = &mut self.processes[process.index()];
        process.alive += 1;
        if process.pid == tid {
            process.main.get_or_insert(id);
        }
        id
    }

    fn next_stamp(&mut self) -> u32 {
        self.stamps = self.stamps.wrapping_add(1);
        self.stamps
    }

    /// A thread was started. `time_ns` is `None` for what was there before the recording.
    pub(super) fn fork(
        &mut self,
        (pid, tid): (i32, i32),
        (parent_pid, parent_tid): (i32, i32),
        time_ns: Option<u64>,
        names: &mut Names,
    ) -> ThreadId {
        // What was there before tells of itself in any order.
        if time_ns.is_none()
            && let Some(&known) = self.by_tid.get(&tid)
            && self.process_of(known).pid == pid
            && self.thread(known).ended_ns.is_none()
        {
            return known;
        }
        let parent = self.find(parent_pid, parent_tid, names);
        if !self.has_room() {
            return self.by_tid.get(&tid).copied().unwrap_or(parent);
        }
        let parent_process = self.thread(parent).process;
        let process = if pid == parent_pid {
            parent_process
        } else if pid == tid || !self.by_pid.contains_key(&pid) {
            let id = self.new_process(pid, time_ns);
            let from = self.process(parent_process);
            let (maps, stamp) = (Arc::clone(&from.maps), from.stamp);
            let process = &mut self.processes[id.index()];
            (process.maps, process.stamp, process.parent) = (maps, stamp, Some(parent_process));
            id
        } else {
            self.process_by(pid, time_ns)
        };
        let name = self.thread(parent).name();
        self.begin(process, tid, Some(parent), name, time_ns)
    }

    pub(super) fn exit(&mut self, pid: i32, tid: i32, time_ns: u64) -> Option<ThreadId> {
        let id = *self.by_tid.get(&tid)?;
        let process = self.thread(id).process;
        if self.process(process).pid != pid {
            return None;
        }
        let thread = &mut self.threads[id.index()];
        if thread.ended_ns.replace(time_ns).is_none() {
            let process = &mut self.processes[process.index()];
            process.alive = process.alive.saturating_sub(1);
            if tid == pid {
                process.ended_ns = Some(time_ns);
            }
            // The last one of all that are known takes the mappings along: there may be very many processes.
            if process.alive == 0 && process.ended_ns.is_some() {
                process.maps = Arc::default();
            }
        }
        Some(id)
    }

    pub(super) fn rename(&mut self, id: ThreadId, time_ns: u64, name: Name) {
        let thread = &mut self.threads[id.index()];
        let is_first = thread.names.len() == 1 && thread.born_ns.is_none() && thread.names[0].0 == 0;
        // What was made up because nothing was known gives way.
        if is_first && time_ns == 0 {
            thread.names.clear();
        }
        let is_new = thread.names.last().is_none_or(|(_, last)| *last != name);
        if is_new && (thread.names.is_empty() || self.has_room()) {
            self.threads[id.index()].names.push((time_ns, name));
        }
    }

    /// A process executes another program: what was mapped is gone.
    pub(super) fn exec(&mut self, id: ThreadId, time_ns: u64) {
        let stamp = self.next_stamp();
        let place = self.thread(id).process;
        let process = &mut self.processes[place.index()];
        (process.maps, process.stamp) = (Arc::default(), stamp);
        if time_ns > 0 && self.has_room() {
            self.processes[place.index()].execs_ns.push(time_ns);
        }
    }

    /// Lets the mappings of a process be changed.
    pub(super) fn change_maps(&mut self, pid: i32) -> &mut Maps {
        let process = self.process_by(pid, None);
        let stamp = self.next_stamp();
        let process = &mut self.processes[process.index()];
        process.stamp = stamp;
        Arc::make_mut(&mut process.maps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_given_out_again_is_another_life() {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let shell = tasks.find(10, 10, &mut names);
        tasks.rename(shell, 0, names.intern(b"sh"));
        assert_eq!(tasks.thread(shell).names.len(), 1);
        let first = tasks.fork((20, 20), (10, 10), Some(5), &mut names);
        assert_eq!(names.get(tasks.thread(first).name()), "sh");
        tasks.exec(first, 6);
        tasks.rename(first, 6, names.intern(b"ls"));
        tasks.exit(20, 20, 9);
        let second = tasks.fork((20, 20), (10, 10), Some(12), &mut names);
        assert_ne!(first, second);
        assert_eq!((tasks.thread(first).ended_ns, tasks.thread(second).ended_ns), (Some(9), None));
        assert_eq!((tasks.process_of(first).generation, tasks.process_of(second).generation), (0, 1));
        assert_eq!(tasks.find(20, 20, &mut names), second);
        // A thread whose number is said to be of another process is another one.
        let stray = tasks.find(30, 20, &mut names);
        assert_eq!(names.get(tasks.thread(stray).name()), ":20");
        let idle = tasks.find(0, 0, &mut names);
        assert_eq!(names.get(tasks.thread(idle).name()), "swapper");
    }

    #[test]
    fn a_child_has_its_parents_mappings_until_it_executes() {
        use super::super::maps::{AddressRule, Mapping};
        use super::super::modules::ModuleId;
        use super::super::stacks::Site;
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        let mapping = Mapping { end: 20, module: ModuleId::UNKNOWN, counting: AddressRule::AsTheyAre };
        tasks.change_maps(1).add(10, mapping);
        let child = tasks.fork((2, 2), (1, 1), Some(1), &mut names);
        assert_eq!(tasks.process_of(child).stamp, tasks.processes()[0].stamp);
        assert!(tasks.process_of(child).maps.find(15, Site::Exact).is_some());
        tasks.exec(child, 2);
        assert!(tasks.process_of(child).maps.find(15, Site::Exact).is_none());
        assert!(tasks.processes()[0].maps.find(15, Site::Exact).is_some());
    }

    #[test]
    fn packed_records_do_not_make_any_number_of_lives() {
        let (mut tasks, mut names) = (Tasks::default(), Names::default());
        tasks.find(1, 1, &mut names);
        for time in 0..ALWAYS_KEPT as u64 + 10 {
            tasks.fork((7, 7), (1, 1), Some(1 + time), &mut names);
        }
        assert_eq!((tasks.threads.len(), tasks.left_out), (ALWAYS_KEPT, 11));
        // Of a larger recording more are believed.
        tasks.allow(BYTES_OF_EACH);
        tasks.fork((8, 8), (1, 1), Some(9), &mut names);
        assert_eq!((tasks.threads.len(), tasks.left_out), (ALWAYS_KEPT + 1, 11));
    }
}
