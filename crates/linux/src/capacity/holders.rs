//! Who else has events open.
//!
//! What it is: a look at the open files of all processes, for a remark when counters were taken by another process. Events
//! that the kernel opens for itself (its watchdog) or that programs in the kernel hold are not there to be seen.
//!
//! **Invariant:** it only looks.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const EVENT: &str = "anon_inode:[perf_event]";

/// A process that has events open.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Holder {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub command: String,
    /// The descriptors of its events.
    pub events: Vec<i32>,
}

/// The other processes that have events open, as far as this user may see that.
#[must_use]
pub fn holders() -> Vec<Holder> {
    survey().0
}

/// The same, and how many processes this user may not look into.
#[must_use]
pub fn survey() -> (Vec<Holder>, usize) {
    survey_in(Path::new("/proc"), Some(std::process::id().cast_signed()))
}

pub(super) fn survey_in(proc: &Path, own: Option<i32>) -> (Vec<Holder>, usize) {
    let (mut found, mut unseen) = (Vec::new(), 0);
    for pid in numbers(proc).into_iter().filter(|&pid| Some(pid) != own) {
        let folder = proc.join(pid.to_string());
        let files = match fs::read_dir(folder.join("fd")) {
            Ok(files) => files.flatten(),
            Err(error) => {
                unseen += usize::from(error.kind() == ErrorKind::PermissionDenied);
                continue;
            }
        };
        let is_event = |file: &fs::DirEntry| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == EVENT);
        let number = |file: fs::DirEntry| file.file_name().to_str()?.parse().ok();
        let mut events: Vec<i32> = files.filter(is_event).filter_map(number).collect();
        if !events.is_empty() {
            events.sort_unstable();
            let command = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            found.push(Holder { pid, command: command.trim_end().to_owned(), events });
        }
    }
    crate::order::sort(&mut found);
    (found, unseen)
}

/// A process that traces others: a debugger, as a rule. It may hold debug registers of theirs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tracer {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub command: String,
    /// The threads that it traces.
    pub traces: Vec<i32>,
}

/// The other processes that trace a thread, as far as this user may see that.
#[must_use]
pub fn tracers() -> Vec<Tracer> {
    tracers_in(Path::new("/proc"), std::process::id())
}

fn numbers(folder: &Path) -> Vec<i32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn tracers_in(proc: &Path, own: u32) -> Vec<Tracer> {
    let mut found: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in numbers(proc) {
        let tasks = proc.join(format!("{pid}/task"));
        for tid in numbers(&tasks) {
            let status = fs::read_to_string(tasks.join(format!("{tid}/status"))).unwrap_or_default();
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse::<i32>().ok());
            // A tracer is a thread, and may be one of ours.
            let is_own =
                |tracer: i32| tracer.unsigned_abs() == own || proc.join(format!("{own}/task/{tracer}")).exists();
            if let Some(tracer) = tracer.filter(|&tracer| tracer != 0 && !is_own(tracer)) {
                found.entry(tracer).or_default().push(tid);
            }
        }
    }
    let name = |pid: i32| fs::read_to_string(proc.join(format!("{pid}/comm"))).unwrap_or_default();
    let tracer = |(pid, mut traces): (i32, Vec<i32>)| {
        traces.sort_unstable();
        Tracer { pid, command: name(pid).trim_end().to_owned(), traces }
    };
    found.into_iter().map(tracer).collect()
}

/// Whether the kernel's watchdog has a counter on each CPU.
#[must_use]
pub fn watchdog_counts() -> bool {
    fs::read_to_string("/proc/sys/kernel/nmi_watchdog").is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn processes_with_events_are_found_by_their_files() {
        let root = tempfile::tempdir().unwrap();
        let file = |pid: u32, fd: u32, what: &str| {
            let dir = root.path().join(format!("{pid}/fd"));
            fs::create_dir_all(&dir).unwrap();
            symlink(what, dir.join(fd.to_string())).unwrap();
            fs::write(root.path().join(format!("{pid}/comm")), format!("program-{pid}\n")).unwrap();
        };
        file(30, 0, "/dev/null");
        file(30, 7, EVENT);
        file(4, 3, EVENT);
        file(5, 3, "socket:[1]");
        file(9, 3, EVENT);
        fs::create_dir(root.path().join("sys")).unwrap();
        file(30, 12, EVENT);
        let holder = |pid, events: &[i32]| Holder { pid, command: format!("program-{pid}"), events: events.to_vec() };
        assert_eq!(survey_in(root.path(), Some(9)), (vec![holder(4, &[3]), holder(30, &[7, 12])], 0));
    }

    #[test]
    fn tracers_are_found_by_their_tracees() {
        let root = tempfile::tempdir().unwrap();
        let task = |pid: u32, tid: u32, tracer: u32| {
            let dir = root.path().join(format!("{pid}/task/{tid}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("status"), format!("Name:\tx\nTracerPid:\t{tracer}\nUid:\t0\n")).unwrap();
            fs::write(root.path().join(format!("{pid}/comm")), format!("program-{pid}\n")).unwrap();
        };
        task(30, 31, 4);
        task(30, 30, 4);
        task(4, 4, 0);
        task(50, 50, 9);
        task(9, 91, 0);
        task(60, 60, 91);
        let found = tracers_in(root.path(), 9);
        assert_eq!(found, [Tracer { pid: 4, command: "program-4".to_owned(), traces: vec![30, 31] }]);
    }
}
