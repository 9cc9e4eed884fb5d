//! Threads that may be in clone(2) while events are opened on them.
//!
//! What it is: the new thread has none of the events, because the kernel copies them early (Linux: `perf_event_init_task` in
//! `copy_process`, kernel/fork.c), and it is listed only when it is whole. So threads are listed once more when none can be in a call of
//! clone that began before. Read first: [`Cloning`].
//!
//! **Invariant:** it takes [`PATIENCE`] at most.

use pmux_linux::procfs::Proc;
use std::time::{Duration, Instant};

/// How long a thread is waited for that does not run.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);
/// A clone(2) that starts a thread takes less of the CPU.
const CLONE_NS: u64 = 1_000_000;
const LAG: Duration = Duration::from_millis(2);

/// Threads on which events were opened, and which may be in a clone(2) that began before.
#[derive(Default)]
pub(crate) struct Cloning {
    tids: Vec<i32>,
}

impl Cloning {
    /// Events are opened on these.
    pub(crate) fn add(&mut self, tids: &[i32]) {
        self.tids.extend_from_slice(tids);
    }

    /// Where no thread is new: whether they are to be listed once more. Waits until that finds what was being started.
    pub(crate) fn list_again(&mut self) -> bool {
        self.list_again_after(await_clones)
    }

    fn list_again_after(&mut self, wait: impl FnOnce(&[i32])) -> bool {
        // What they start from now on has inherited: each is waited for once.
        let tids = std::mem::take(&mut self.tids);
        if tids.is_empty() {
            return false;
        }
        wait(&tids);
        true
    }
}

/// Waits until none of these threads is in a clone(2) that has begun before. For [`PATIENCE`] at most: a thread that gets no CPU for so
/// long is taken to be in none.
///
/// A thread that sleeps interruptibly is in none. One that runs has left it when it has had a CPU for [`CLONE_NS`]. Its time is brought
/// up to date from tick to tick only, so it is taken from the first change on.
pub(crate) fn await_clones(tids: &[i32]) {
    let proc = Proc::system();
    let deadline = Instant::now() + PATIENCE;
    let mut since: Vec<(i32, Option<u64>, bool)> = tids.iter().map(|&tid| (tid, None, false)).collect();
    loop {
        since.retain_mut(|(tid, ran_ns, changed)| {
            let may_clone =
                proc.thread_stat(*tid).is_ok_and(|stat| !stat.is_ending() && matches!(stat.state, 'R' | 'D'));
            let Some(now_ns) = proc.schedstat(*tid).ok().filter(|_| may_clone) else { return false };
            let before_ns = *ran_ns.get_or_insert(now_ns);
            if !*changed {
                (*ran_ns, *changed) = (Some(now_ns), now_ns != before_ns);
                return true;
            }
            now_ns.saturating_sub(before_ns) < CLONE_NS
        });
        if since.is_empty() || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(LAG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_listed_until_none_was_being_started() {
        // What is new at each look: 3 was being started by 1 at the first one, 4 by 3.
        let looks: [&[i32]; 6] = [&[1, 2], &[], &[3], &[], &[4], &[]];
        let (mut cloning, mut looks, mut opened, mut awaited) =
            (Cloning::default(), looks.into_iter(), Vec::new(), Vec::new());
        loop {
            let fresh = looks.next().unwrap_or_default();
            opened.extend_from_slice(fresh);
            cloning.add(fresh);
            if fresh.is_empty() && !cloning.list_again_after(|tids| awaited.push(tids.to_vec())) {
                break;
            }
        }
        assert_eq!(opened, [1, 2, 3, 4]);
        assert_eq!(awaited, [vec![1, 2], vec![3], vec![4]], "each once");
    }

    #[test]
    fn one_that_has_ended_or_sleeps_is_not_waited_for() {
        let (stay, leave) = std::sync::mpsc::channel::<()>();
        let (sender, tid) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            sender.send(pmux_linux::current_tid()).unwrap();
            let _ = leave.recv();
        });
        let mut cloning = Cloning::default();
        cloning.add(&[tid.recv().unwrap(), i32::MAX]);
        assert!(cloning.list_again());
        assert!(!cloning.list_again(), "once");
        drop(stay);
        sleeper.join().unwrap();
    }
}
