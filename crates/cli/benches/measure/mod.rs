//! What benchmarks of commands share: running one, and medians.
// Each uses some of it.
#![allow(dead_code)]

use pmux::{Command, Session};
use std::time::Instant;

/// One run of a command.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall_ms: f64,
    pub(crate) cpu_ms: f64,
    pub(crate) memory_kib: f64,
}

/// Runs a shell line with its output thrown away.
pub(crate) fn run(session: &Session, line: &str) -> Cost {
    let command = Command::hold(["sh", "-c", &format!("exec {line} >/dev/null 2>&1")]).unwrap();
    let started = Instant::now();
    let exited = command.release(&[]).unwrap().wait(session).unwrap();
    let wall = started.elapsed();
    assert!(exited.status.success(), "`{line}` failed: {}", exited.status);
    Cost {
        wall_ms: wall.as_secs_f64() * 1e3,
        cpu_ms: (exited.usage.user + exited.usage.system).as_secs_f64() * 1e3,
        memory_kib: exited.usage.max_rss_kib as f64,
    }
}

pub(crate) fn median<T>(costs: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<_> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Whether everything is to run once and small.
pub(crate) fn is_small() -> bool {
    std::env::args().any(|word| word == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some()
}
