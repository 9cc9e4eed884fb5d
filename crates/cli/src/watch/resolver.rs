//! Names of threads, and places in code.
//!
//! What it is: what is learnt while the processes live, because afterwards no process is left to ask: names of threads at their
//! first hit, the mappings of a process at its first hit.
//!
//! **Invariant:** a process that was forked and ended before it could be looked at has the places of its parent.

use pmux::symbol::{Mapping, ResolvedAddress, Symbolizer};
use std::collections::HashMap;
use std::sync::Arc;

/// Who is who, and where is what.
#[derive(Default)]
pub(super) struct Resolver {
    pub(super) symbolizer: Symbolizer,
    /// By thread.
    names: HashMap<i32, String>,
    /// Processes that were looked at, and whose mappings stand for each.
    images: HashMap<i32, i32>,
    /// Whether a call chain led to where no code is.
    pub(super) astray: bool,
}

/// How an address is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressKind {
    /// It lies in the instruction.
    Instruction,
    /// It is where a call returns to.
    Return,
}

impl Resolver {
    /// A process as it is mapped now: its places are known from here on, also after its end.
    pub(super) fn remember(&mut self, pid: i32) {
        // One that is gone already has no places.
        let _ = self.symbolizer.remember(pid);
        self.images.insert(pid, pid);
    }

    /// A process was started by another one, and has the same mappings until it says otherwise.
    pub(super) fn started(&mut self, pid: i32, tid: i32, parent: i32) {
        if pid != parent && pid == tid {
            let stands = self.images.get(&parent).copied().unwrap_or(parent);
            self.images.insert(pid, stands);
        }
        if let Some(name) = self.names.get(&parent).cloned() {
            self.names.entry(tid).or_insert(name);
        }
    }

    /// A thread has a new name.
    pub(super) fn named(&mut self, tid: i32, name: String) {
        self.names.insert(tid, name);
    }

    /// A process executes another program.
    pub(super) fn executed(&mut self, pid: i32) {
        self.symbolizer.forget(pid);
        self.images.remove(&pid);
    }

    /// The mappings of a process have changed.
    pub(super) fn mapped(&mut self, pid: i32, mapping: Option<Mapping>) {
        // Read again, a process that is known would show what it has become since: other mappings, after an exec.
        let known = mapping.is_some() && self.images.get(&pid) == Some(&pid);
        if !known && self.symbolizer.remember(pid).is_ok() {
            self.images.insert(pid, pid);
        } else if let Some(mapping) = mapping {
            // It keeps the mappings that it had, and the record says what was added.
            let stands = self.images.get(&pid).copied().unwrap_or(pid);
            self.symbolizer.note(stands, mapping);
        }
    }

    /// The name of a thread; empty where it ended before it was seen.
    pub(super) fn name(&mut self, pid: i32, tid: i32) -> &str {
        // Where it ended before it was seen, it had the name of its process, which may have been seen.
        let of_process = self.names.get(&pid).cloned();
        self.names.entry(tid).or_insert_with(|| {
            let comm = |path: String| std::fs::read(path).ok();
            let comm = comm(format!("/proc/{pid}/task/{tid}/comm")).or_else(|| comm(format!("/proc/{pid}/comm")));
            let Some(comm) = comm else { return of_process.unwrap_or_default() };
            let comm = String::from_utf8_lossy(&comm);
            comm.strip_suffix('\n').unwrap_or(&comm).to_owned()
        })
    }

    /// The places of a call chain, as far as it leads through code.
    pub(super) fn callers(&mut self, pid: i32, chain: &[u64]) -> Vec<Arc<ResolvedAddress>> {
        let mut places = Vec::with_capacity(chain.len());
        for &caller in chain {
            // Asked first: then the process is known.
            let place = self.place(pid, caller, AddressKind::Return);
            let stands = self.images.get(&pid).copied().unwrap_or(pid);
            if !self.symbolizer.may_return_to(stands, caller) {
                self.astray = true;
                break;
            }
            places.push(place);
        }
        places
    }

    pub(super) fn place(&mut self, pid: i32, address: u64, how: AddressKind) -> Arc<ResolvedAddress> {
        if !self.images.contains_key(&pid) {
            self.remember(pid);
        }
        let stands = self.images.get(&pid).copied().unwrap_or(pid);
        match how {
            AddressKind::Instruction => self.symbolizer.place(stands, address),
            AddressKind::Return => self.symbolizer.place_of_return(stands, address),
        }
    }
}
