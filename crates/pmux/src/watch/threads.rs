//! Threads: which there are, and everything on each of them.
//!
//! **Invariant:** a thread has all events or none.

use super::{Held, Piece};
use crate::error::Error;
use crate::session::Session;
use pmux_engine::{GroupSpec, OpenError, Target};
use pmux_linux::host::LinuxHost;
use pmux_linux::procfs::{Proc, ProcError};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many threads are armed in the time that it takes to start one that helps, many times over.
const WORTH_A_HAND: usize = 128;
/// More that help get into each other's way.
const MOST_HANDS: usize = 4;

/// Who is watched.
pub(super) enum Tasks<'t> {
    /// These threads.
    Threads(Vec<i32>),
    /// All threads of these processes.
    Processes(&'t [i32]),
}

/// The threads that were not known yet.
pub(super) fn list(tasks: &Tasks<'_>, known: &mut HashSet<i32>) -> Result<Vec<i32>, Error> {
    let all = match tasks {
        Tasks::Threads(tids) => tids.clone(),
        Tasks::Processes(pids) => {
            let proc = Proc::system();
            let mut all = Vec::new();
            for &pid in *pids {
                match proc.threads_of(pid) {
                    Ok(tids) => all.extend(tids),
                    // It was there before.
                    Err(ProcError::Gone { .. }) if !known.is_empty() => {}
                    Err(error) => return Err(Error::Process(error)),
                }
            }
            all
        }
    };
    Ok(all.into_iter().filter(|&tid| known.insert(tid)).collect())
}

/// All events on one thread, or which of them was refused, and why.
pub(super) type Armed = Result<Vec<Held>, (usize, OpenError)>;

/// Opens all events on each of these threads. Where one is refused with an errno that is not tolerated, some of the others are not
/// tried any more.
pub(super) fn open_on(
    session: &Session,
    tids: &[i32],
    events: &[(Piece, GroupSpec)],
    tolerated: &[i32],
) -> Vec<(i32, Armed)> {
    let failed = AtomicBool::new(false);
    let some = |tids: &[i32]| {
        let mut armed = Vec::with_capacity(tids.len());
        for &tid in tids {
            // Relaxed: whoever sees it late opens a few in vain.
            if failed.load(Ordering::Relaxed) {
                break;
            }
            let result = open_all(session, tid, events);
            if result.as_ref().is_err_and(|(_, error)| !tolerated.contains(&error.errno())) {
                failed.store(true, Ordering::Relaxed);
            }
            armed.push((tid, result));
        }
        armed
    };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let hands = cpus.min(MOST_HANDS).min(tids.len() / WORTH_A_HAND).max(1);
    if hands == 1 {
        return some(tids);
    }
    // Most of it is waiting for other CPUs: to be done in less time, it is done side by side.
    std::thread::scope(|scope| {
        let (own, others) = tids.split_at(tids.len() / hands);
        let others = others.chunks(others.len().div_ceil(hands - 1)).map(|tids| scope.spawn(|| some(tids)));
        let others: Vec<_> = others.collect();
        let mut armed = some(own);
        // A panic over there has been printed, and what it had opened is closed with the session.
        armed.extend(others.into_iter().filter_map(|other| other.join().ok()).flatten());
        armed
    })
}

fn open_all(session: &Session, tid: i32, events: &[(Piece, GroupSpec)]) -> Armed {
    let engine = session.engine();
    let mut held = Vec::with_capacity(events.len());
    for (index, (piece, spec)) in events.iter().enumerate() {
        match engine.open(spec, Target::task(LinuxHost::task(tid))) {
            Ok(opened) => {
                held.push(Held::Thread { tid, spot: piece.spot, group: opened.group, event: opened.events[0] });
            }
            Err(error) => {
                for held in held {
                    if let Held::Thread { group, .. } = held {
                        engine.close(group);
                    }
                }
                return Err((index, error));
            }
        }
    }
    Ok(held)
}
