//! The threads of a process, guessed.
//!
//! What it is: threads that were started in a row have numbers in a row, and to ask whether a process has a thread costs a
//! fraction of what `/proc` takes for each line of its list.
//!
//! **Invariant:** what is found are threads of the process; that these are all is for the caller to know, by their number.

use crate::sys;

/// So many numbers in vain, and half as many as threads are looked for, and as many as were found; then it is given up. A list
/// would take several times as long.
const PATIENCE: u64 = 64;

/// Whether a process has this thread. Other processes' threads are not among those, nor are ended ones.
#[must_use]
pub fn has(pid: i32, tid: i32) -> bool {
    sys::has_thread(pid, tid)
}

/// The first `count` threads of a process whose numbers come after its own, ascending, the first thread among them. `None`
/// where they are too far apart to be found by trying: then they have to be listed.
#[must_use]
pub fn in_a_row(pid: i32, count: u64) -> Option<Vec<i32>> {
    let mut found = Vec::with_capacity(usize::try_from(count).ok()?);
    let mut misses = 0;
    let mut tid = pid;
    while (found.len() as u64) < count {
        if sys::has_thread(pid, tid) {
            found.push(tid);
        } else {
            misses += 1;
        }
        if misses > found.len() as u64 + count / 2 + PATIENCE {
            return None;
        }
        tid = tid.checked_add(1)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::Proc;
    use pmux_testkit::Killed;
    use std::io::{Read as _, Write as _};
    use std::process::{Command, Stdio};

    /// A process that does nothing more when this returns.
    fn quiet() -> Killed {
        let cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut cat = cat.unwrap();
        cat.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Killed(cat)
    }

    #[test]
    fn what_is_found_is_what_is_listed() {
        let cat = quiet();
        let pid = cat.0.id().cast_signed();
        let count = Proc::system().thread_count(pid).unwrap();
        let found = in_a_row(pid, count);
        let listed = Proc::system().threads_of(pid).unwrap();
        assert_eq!((count, found), (listed.len() as u64, Some(listed)));
        // More than there are: nothing is made up.
        assert_eq!(in_a_row(pid, 5), None);
        drop(cat);
        assert_eq!(in_a_row(pid, 1), None, "no thread is left");
    }

    #[test]
    fn threads_of_others_are_not_found() {
        let cat = quiet();
        let pid = cat.0.id().cast_signed();
        assert!(!sys::has_thread(std::process::id().cast_signed(), pid));
        assert!(sys::has_thread(pid, pid));
        for (pid, tid) in [(0, 0), (-1, 1), (1, -1), (i32::MAX, i32::MAX)] {
            assert!(!sys::has_thread(pid, tid), "{pid} {tid}");
        }
    }

    #[test]
    fn the_newest_task_is_one_that_was_just_born() {
        let Some(before) = Proc::system().newest_task() else {
            return println!("skipped: needs CONFIG_CHECKPOINT_RESTORE");
        };
        let _cat = quiet();
        let after = Proc::system().newest_task().unwrap();
        assert_ne!(before, after, "a task was born in between");
    }
}
