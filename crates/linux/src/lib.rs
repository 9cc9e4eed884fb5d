//! The Linux host of the pmux engine.
//!
//! What it is: the only crate with system calls. [`host`] makes the kernel's event fds the engine's counter slots; the other
//! modules say what this machine has ([`catalog`], [`cpus`], [`cgroup`], [`procfs`]), start and await programs ([`spawn`],
//! [`wait`]), follow hotplug ([`uevent`]) and explain refusals ([`diagnose`]).
//! Read first: [`host::LinuxHost`].
//!
//! **Invariant:** `unsafe` is in the private module `sys` and nowhere else; nothing here decides what is counted. Nothing writes to
//! sysfs or to a cgroup; only [`probe`] writes to tracefs.
//!
//! **Invariant:** every event that counts is opened by a bank of [`host`]. Past the engine, [`lineage`], [`execs`] and [`seccomp`] open
//! events that count nothing, and [`raw_perf_event`] opens events that measure the kernel's own price.
#![deny(unsafe_code)]

pub mod affinity;
pub mod bench_threads;
pub mod bpf;
mod btf;
pub mod build_id;
pub mod capacity;
pub mod catalog;
pub mod cgroup;
pub mod cgroup_counts;
pub mod cpus;
pub mod credentials;
pub mod diagnose;
mod dummies;
pub mod execs;
pub mod filter;
pub mod host;
mod kept_text;
pub mod limits;
pub mod lineage;
pub mod machine;
pub mod off_cpu;
#[doc(hidden)]
pub mod order;
pub mod peer;
pub mod plain_file;
pub mod pressure;
pub mod probe;
pub mod procfs;
pub mod raw_perf_event;
pub mod regions;
pub mod ring;
pub mod seccomp;
pub mod selinux;
pub mod shared;
pub mod spawn;
#[allow(unsafe_code)]
pub(crate) mod sys;
pub mod threads;
pub mod trace;
pub mod uevent;
pub mod usage;
pub mod wait;
pub mod worker;

pub use sys::Errno;

/// The number of the calling thread.
#[must_use]
pub fn current_tid() -> i32 {
    sys::current_tid()
}

/// The time on the clock of the counts (`CLOCK_MONOTONIC`), in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    sys::clock::monotonic_ns()
}

/// The time on the clock by which tasks begin (`CLOCK_BOOTTIME`), in nanoseconds.
#[must_use]
pub fn since_boot_ns() -> u64 {
    sys::clock::since_boot_ns()
}

/// What [`now_ns`] was at the kernel's last tick.
#[must_use]
pub fn tick_ns() -> u64 {
    sys::clock::monotonic_at_tick_ns()
}

/// Bytes of a page of memory.
#[must_use]
pub fn page_bytes() -> u32 {
    u32::try_from(sys::page_bytes()).unwrap_or(4096)
}
