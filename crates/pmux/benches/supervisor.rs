//! What supervision costs a program: any system call, the opening of an event, and reading an event of a CPU, which is virtual under a
//! supervisor and needs the right to count CPUs.
//!
//! `cargo bench -p pmux --bench supervisor` prints a table; both columns come from the same run, in turn. With `--test`, with
//! `PMUX_BENCH_SMALL` and as `cargo test` runs it, everything is done once, small, so that it can't rot.
#![allow(clippy::unwrap_used)]

use pmux::Command;
use pmux::abi::{Attr, AttrFlags, EventType, sw};
use pmux::supervisor::{Answers, Call};
use pmux_linux::raw_perf_event::can_open;
use std::ffi::OsString;
use std::hint::black_box;
use std::time::Instant;

/// What the measured program does: so many of each, and prints the nanoseconds of one.
fn measured(calls: u32, opens: u32) {
    let each = |count: u32, call: &dyn Fn()| {
        let began = Instant::now();
        (0..count).for_each(|_| call());
        began.elapsed().as_nanos() / u128::from(count)
    };
    let call = each(calls, &|| _ = black_box(std::os::unix::process::parent_id()));
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let faults = Attr { kind: EventType::SOFTWARE, config: sw::PAGE_FAULTS, flags, ..Attr::default() };
    let open = each(opens, &|| can_open(&faults).unwrap());
    let session = pmux::Session::with_shared(pmux::SharedChoice::Never).unwrap();
    let event = pmux::Event::parse("page-faults:u").unwrap();
    let last = session.online().iter().last().unwrap();
    let cpu = pmux::Target::Cpus(pmux::CpuChoice::Only(pmux::CpuList::from_iter([last])));
    let read = pmux::Counter::open(&session, event, &cpu)
        .map_or(0, |counter| each(opens, &|| _ = black_box(counter.read().unwrap())));
    std::fs::write(std::env::var_os("PMUX_BENCH_OUT").unwrap(), format!("{call} {open} {read}")).unwrap();
}

/// Runs this program under a supervisor, to its end.
fn supervise(words: &[OsString]) {
    let session = pmux::Session::new().unwrap();
    let mut command = Command::hold_supervised(words.iter().cloned()).unwrap().release(&[]).unwrap();
    let supervisor = command.take_supervisor(&session, Answers::Virtual).unwrap().unwrap();
    while let Some(call) = supervisor.receive().unwrap() {
        match call {
            Call::Open(call) => {
                if supervisor.open(&call, false).is_none_or(|attempt| !attempt.answer.is_given()) {
                    supervisor.go_on(&call).unwrap();
                }
            }
            Call::Fd(call) => supervisor.carry_out(&call),
        }
    }
    assert!(command.try_end().unwrap().is_none_or(|exited| exited.status.success()));
}

fn main() {
    let small = std::env::args().any(|word| word == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let small = small || !std::env::args().any(|word| word == "--bench");
    let (runs, calls, opens) = if small { (1, 1000, 10) } else { (9, 2_000_000, 20_000) };
    if std::env::var_os("PMUX_BENCH_OUT").is_some() {
        return measured(calls, opens);
    }
    if pmux::Session::with_backend(pmux::BackendChoice::Kernel).is_err() {
        println!("skipped: needs performance events");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let mode = if small { "--test" } else { "--bench" };
    let variable = format!("PMUX_BENCH_OUT={}", file.path().display());
    let words: Vec<OsString> = vec!["env".into(), variable.into(), program.into(), mode.into()];
    let mut all: [[Vec<u64>; 2]; 3] = std::array::from_fn(|_| std::array::from_fn(|_| Vec::new()));
    for _ in 0..runs {
        for supervised in [false, true] {
            if supervised {
                supervise(&words);
            } else {
                assert!(std::process::Command::new(&words[0]).args(&words[1..]).status().unwrap().success());
            }
            let text = std::fs::read_to_string(file.path()).unwrap();
            for (times, time) in all.iter_mut().zip(text.split(' ')) {
                times[usize::from(supervised)].push(time.parse().unwrap());
            }
        }
    }
    println!("{:<24}  {:>8}  {:>10}  {:>6}", "ns, median", "without", "supervised", "ratio");
    for (name, times) in ["a call that passes", "perf_event_open + close", "read of a CPU's event"].iter().zip(&mut all)
    {
        let [without, with] = times.each_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        println!("{name:<24}  {without:>8}  {with:>10}  {:>6.2}", with as f64 / without.max(1) as f64);
    }
}
