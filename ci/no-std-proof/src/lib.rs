//! A machine without an operating system that counts with the pmux engine.
//!
//! What it is: the least that a kernel has to supply ([`Machine`], in `machine`), and one event's life on it. That it builds
//! is the proof; it need not be run.
//!
//! **Invariant:** `core`, `alloc`, `pmux-abi` and `pmux-engine`, and nothing else.
#![no_std]

extern crate alloc;

mod bare;
mod machine;

use machine::{CLOCK_TICKS, Machine};
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::{CpuId, Engine, GroupSpec, Target, TaskId};

/// Counts clock ticks of a task from its fork to its exit, and of a CPU. Returns what was counted.
#[unsafe(no_mangle)]
pub extern "C" fn pmux_no_std_proof() -> u64 {
    let engine = Engine::new(Machine::default(), [CpuId(0)].into_iter().collect());
    let ticks = GroupSpec::single(CLOCK_TICKS, Attr::default());
    let inherited = GroupSpec::single(CLOCK_TICKS, Attr { flags: AttrFlags::INHERIT, ..Attr::default() });
    let Ok(task) = engine.open(&inherited, Target::task(TaskId(1))) else { return 0 };
    let Ok(cpu) = engine.open(&ticks, Target::cpu(CpuId(0))) else { return 0 };
    let mut sum = 0;
    for opened in [&task, &cpu] {
        if engine.enable_group(opened.group).is_err() {
            return 0;
        }
    }
    // A child that can't be counted is missing in the sum.
    let _ = engine.task_fork(TaskId(1), TaskId(2));
    // What the kernel's scheduler calls, and its interrupts.
    let [parent, child] = [1, 2].map(|task| engine.task(TaskId(task)));
    engine.switch(CpuId(0), None, Some(&parent));
    engine.tick(CpuId(0));
    engine.switch(CpuId(0), Some(&parent), Some(&child));
    engine.counters_interrupted(CpuId(0));
    engine.handle_ipi(CpuId(0));
    engine.switch(CpuId(0), Some(&child), None);
    engine.task_exit(TaskId(2));
    engine.cpu_offline(CpuId(0));
    for opened in [&task, &cpu] {
        for count in engine.read_group(opened.group).unwrap_or_default() {
            sum += count.map(|count| count.value).unwrap_or_default();
        }
        engine.close(opened.group);
    }
    sum
}
