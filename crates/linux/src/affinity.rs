//! Doing something on a given CPU.
//!
//! Opening and reading the event of another CPU makes the kernel interrupt that CPU and wait; a thread that visits
//! each CPU in turn does the same work locally. Being refused is no error: the work is done from where the thread is,
//! only slower.
//!
//! **Invariant:** the thread can run where it could before, whatever happens in between.

use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::cpus::{CpuList, Cpus};
use crate::diagnose::version;
use crate::sys::{CpuMask, Errno, set_thread_affinity, thread_affinity};

/// The first kernel that gives a thread a CPU back which was offline when its set was set. Source: commit 8f9ea86fdf99 ("sched: Always
/// preserve the user requested cpumask").
const GIVES_BACK_SINCE: (u32, u32) = (6, 2);

/// Where the calling thread may run, also when CPUs come back: the system call leaves out those that are offline, and code that sets
/// what it answered keeps the thread away from them for ever. Where the kernel does so whatever is set, it is `EBUSY`: better not to go
/// anywhere.
fn home() -> Result<CpuMask, Errno> {
    static POSSIBLE: OnceLock<usize> = OnceLock::new();
    static GIVES_BACK: OnceLock<bool> = OnceLock::new();
    let mut home = thread_affinity()?;
    let possible = *POSSIBLE.get_or_init(|| Cpus::system().possible().map_or(usize::MAX, |cpus| cpus.len()));
    if (home.len() as usize) >= possible {
        return Ok(home);
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let offline: Vec<u32> =
        allowed_list(&status).iter().flat_map(CpuList::iter).filter(|&cpu| !home.contains(cpu)).collect();
    let gives_back = || {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        version(&release).is_some_and(|version| version >= GIVES_BACK_SINCE)
    };
    if !offline.is_empty() && !*GIVES_BACK.get_or_init(gives_back) {
        return Err(Errno::EBUSY);
    }
    offline.into_iter().for_each(|cpu| home.insert(cpu));
    Ok(home)
}

/// The list of CPUs in a task's `status`.
fn allowed_list(status: &str) -> Option<CpuList> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    CpuList::parse_kernel(list.trim()).ok()
}

/// Whether the thread could go to the CPU that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// It is on that CPU.
    Moved,
    /// It is where it was: the CPU is offline, or not one of those that it may use.
    NotMoved(Errno),
}

/// Takes the calling thread to CPUs, and puts its own set of CPUs back at the end.
#[derive(Debug)]
pub struct CpuVisitor {
    home: Result<CpuMask, Errno>,
    away: bool,
    // A set of CPUs belongs to a thread: the visitor can't go to another.
    _this_thread: PhantomData<*const ()>,
}

impl CpuVisitor {
    /// Remembers where the thread may run.
    #[must_use]
    pub fn new() -> Self {
        Self { home: home(), away: false, _this_thread: PhantomData }
    }

    /// Goes to a CPU, until the next visit or the end.
    pub fn visit(&mut self, cpu: u32) -> Placement {
        match self.try_visit(cpu) {
            Ok(()) => Placement::Moved,
            Err(errno) => {
                // Not left on the last CPU: it may be busy, or about to go.
                self.go_home();
                Placement::NotMoved(errno)
            }
        }
    }

    fn try_visit(&mut self, cpu: u32) -> Result<(), Errno> {
        let home = self.home.as_ref().map_err(|errno| *errno)?;
        // Root could leave its own set, for instance one given with `taskset`; that is respected.
        if !home.contains(cpu) {
            return Err(Errno::EINVAL);
        }
        if home.len() > 1 {
            set_thread_affinity(&CpuMask::of(cpu)?)?;
            self.away = true;
        }
        Ok(())
    }

    fn go_home(&mut self) {
        if let (true, Ok(home)) = (self.away, &self.home) {
            // Can only fail if all CPUs of the set have gone since; then the kernel has chosen others already.
            let _ = set_thread_affinity(home);
            self.away = false;
        }
    }
}

impl Default for CpuVisitor {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CpuVisitor {
    fn drop(&mut self) {
        self.go_home();
    }
}

/// Calls `work` on a CPU if the thread may go there, and where it is otherwise.
pub fn on_cpu<R>(cpu: u32, work: impl FnOnce() -> R) -> (R, Placement) {
    let mut visitor = CpuVisitor::new();
    let placement = visitor.visit(cpu);
    (work(), placement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs of this thread's set.
    fn allowed() -> Vec<u32> {
        let mask = thread_affinity().unwrap();
        (0..4096).filter(|&cpu| mask.contains(cpu)).collect()
    }

    #[test]
    fn visits_every_cpu_and_comes_home() {
        let home = thread_affinity().unwrap();
        let mut visitor = CpuVisitor::new();
        for cpu in allowed() {
            match visitor.visit(cpu) {
                Placement::Moved => assert_eq!(allowed(), [cpu]),
                // It went offline meanwhile.
                Placement::NotMoved(errno) => println!("CPU {cpu} not visited: {errno}"),
            }
        }
        drop(visitor);
        assert_eq!(thread_affinity().unwrap(), home);
    }

    #[test]
    fn what_a_task_may_use_is_in_its_status() {
        let list = |text| allowed_list(text).map(|cpus| cpus.as_slice().to_vec());
        assert_eq!(
            list("Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-2,5\nMems_allowed:\t1\n"),
            Some(vec![0, 1, 2, 5])
        );
        assert_eq!(list("Name:\tx\n"), None);
        // What is offline now may come back.
        match home() {
            Ok(home) => assert!(allowed().into_iter().all(|cpu| home.contains(cpu))),
            Err(errno) => assert_eq!(errno, Errno::EBUSY),
        }
    }

    #[test]
    fn a_cpu_that_cannot_be_reached_is_no_error() {
        let home = thread_affinity().unwrap();
        let (answer, placement) = on_cpu(4_000_000, || 42);
        assert_eq!(answer, 42);
        assert!(matches!(placement, Placement::NotMoved(_)));
        assert_eq!(thread_affinity().unwrap(), home);
    }

    #[test]
    fn a_panic_leaves_the_set_as_it_was() {
        let home = thread_affinity().unwrap();
        let first = allowed()[0];
        let caught = std::panic::catch_unwind(|| on_cpu(first, || panic!("meant")));
        assert!(caught.is_err());
        assert_eq!(thread_affinity().unwrap(), home);
    }

    #[test]
    fn a_narrow_set_is_respected() {
        let cpus = allowed();
        let [first, .., last] = cpus[..] else { return println!("skipped: needs two CPUs") };
        // On a thread of its own: the set dies with it.
        std::thread::spawn(move || {
            set_thread_affinity(&CpuMask::of(first).unwrap()).unwrap();
            let ((), placement) = on_cpu(last, || assert_eq!(allowed(), [first]));
            assert_eq!(placement, Placement::NotMoved(Errno::EINVAL));
            assert_eq!(on_cpu(first, allowed), (vec![first], Placement::Moved));
        })
        .join()
        .unwrap();
    }
}
