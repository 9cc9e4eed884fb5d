//! The bytes of instructions; and programs that the kernel takes, runs, or refuses.

use super::*;
use crate::host::bytes_of;
use crate::sys::Errno;
use crate::sys::perf::{self, TargetTask};
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling, breakpoint};
use pmux_testkit::skip_unless;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether programs of a kind can be had; says so where not.
fn can_have(kind: ProgramKind) -> bool {
    match why_not(kind) {
        None => true,
        Some(why) => {
            println!("skipped: needs BPF programs: {why}");
            false
        }
    }
}

#[test]
fn instructions_have_the_bytes_of_the_standard() {
    let mut asm = Assembler::new();
    let end = asm.label();
    asm.set(Reg::R6, Reg::R1)
        .set(Reg::R0, -1)
        .set_wide(Reg::R2, 0x1122_3344_5566_7788)
        .alu(Alu::Add, Reg::R2, Reg::R3)
        .alu(Alu::And, Reg::R2, 7)
        .load(Size::Double, Reg::R1, Reg::R6, 16)
        .load(Size::Word, Reg::R1, Reg::R6, 4)
        .store(Size::Double, Reg::R10, -8, Reg::R1)
        .store(Size::Word, Reg::R10, -12, 5)
        .atomic_add(Reg::R0, 0, Reg::R1)
        .jump_if(Reg::R1, Compare::Less, 9, end)
        .jump(end)
        .call(Helper::ProbeReadUser)
        .place(end)
        .negate(Reg::R0)
        .exit();
    let code = asm.finish().unwrap();
    let expected: [[u8; 8]; 16] = [
        [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
        [0xb7, 0x00, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [0x18, 0x02, 0, 0, 0x88, 0x77, 0x66, 0x55],
        [0x00, 0x00, 0, 0, 0x44, 0x33, 0x22, 0x11],
        [0x0f, 0x32, 0, 0, 0, 0, 0, 0],
        [0x57, 0x02, 0, 0, 7, 0, 0, 0],
        [0x79, 0x61, 16, 0, 0, 0, 0, 0],
        [0x61, 0x61, 4, 0, 0, 0, 0, 0],
        [0x7b, 0x1a, 0xf8, 0xff, 0, 0, 0, 0],
        [0x62, 0x0a, 0xf4, 0xff, 5, 0, 0, 0],
        [0xdb, 0x10, 0, 0, 0, 0, 0, 0],
        [0xa5, 0x01, 2, 0, 9, 0, 0, 0],
        [0x05, 0x00, 1, 0, 0, 0, 0, 0],
        [0x85, 0x00, 0, 0, 112, 0, 0, 0],
        [0x87, 0x00, 0, 0, 0, 0, 0, 0],
        [0x95, 0x00, 0, 0, 0, 0, 0, 0],
    ];
    if cfg!(target_endian = "little") {
        assert_eq!(code.bytes(), expected);
    }
    assert_eq!(code.len(), 16);
}

#[test]
fn jumps_lead_somewhere_near() {
    let mut asm = Assembler::new();
    let nowhere = asm.label();
    asm.set(Reg::R0, 0).jump(nowhere).exit();
    assert!(asm.finish().is_none());
    let mut asm = Assembler::new();
    let far = asm.label();
    asm.jump(far);
    for _ in 0..40_000 {
        asm.set(Reg::R0, 0);
    }
    asm.place(far).exit();
    assert!(asm.finish().is_none());
}

#[test]
fn maps_keep_what_they_are_given() {
    skip_unless!(can_have(ProgramKind::PerfEvent));
    let hash = Map::new(MapKind::Hash, 12, 4, 1000, "pmux_test").unwrap();
    let key = |number: u32| [number.to_ne_bytes(); 3].concat();
    for number in 0..1000_u32 {
        hash.set(&key(number), &(number * 3).to_ne_bytes(), Update::New).unwrap();
    }
    assert_eq!(hash.set(&key(1), &[0; 4], Update::New), Err(Errno::EEXIST));
    assert_eq!(hash.set(&key(1000), &[0; 4], Update::Present), Err(Errno::ENOENT));
    assert_eq!(hash.set(&key(1000), &[0; 4], Update::Set), Err(Errno::E2BIG));
    assert_eq!(hash.get(&key(7)).unwrap(), Some(21_u32.to_ne_bytes().to_vec()));
    let entries = hash.entries().unwrap();
    assert_eq!(entries.len(), 1000);
    assert!(entries.iter().all(|(key, value)| {
        let number = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        number(value) == number(key) * 3
    }));
    assert_eq!((hash.remove(&key(7)), hash.remove(&key(7))), (Ok(true), Ok(false)));
    assert_eq!(hash.get(&key(7)).unwrap(), None);
    assert_eq!(hash.entries().unwrap().len(), 999);
    // No other length reaches the kernel.
    assert_eq!(hash.get(&[0; 11]), Err(Errno::EINVAL));
    assert_eq!(hash.set(&key(1), &[0; 5], Update::Set), Err(Errno::EINVAL));
    assert_eq!(hash.set_event(0, hash.as_fd()), Err(Errno::EINVAL));

    let array = Map::new(MapKind::PerCpuArray, 4, 4, 3, "pmux_test").unwrap();
    let cpus = crate::cpus::Cpus::system().possible().unwrap().len();
    assert_eq!(array.entry_bytes(), 8 * cpus);
    let values: Vec<u8> = (0..cpus as u64).flat_map(|cpu| (cpu + 5).to_ne_bytes()).collect();
    array.set(&2_u32.to_ne_bytes(), &values, Update::Set).unwrap();
    assert_eq!(array.get(&2_u32.to_ne_bytes()).unwrap(), Some(values));
    assert_eq!(array.entries().unwrap().len(), 3);
    assert_eq!(array.remove(&2_u32.to_ne_bytes()), Err(Errno::EINVAL));
}

#[test]
fn the_verifier_says_why() {
    skip_unless!(can_have(ProgramKind::PerfEvent));
    let mut asm = Assembler::new();
    asm.load(Size::Double, Reg::R0, Reg::R5, 0).exit();
    let error = Program::load(ProgramKind::PerfEvent, &asm.finish().unwrap(), "pmux_test").unwrap_err();
    assert_eq!(error.errno, Errno::EACCES);
    assert!(error.to_string().contains("R5 !read_ok"), "{error}");
}

static WATCHED: AtomicU64 = AtomicU64::new(0);

/// A breakpoint of the calling thread on [`WATCHED`].
fn watching() -> Option<OwnedFd> {
    let attr = Attr {
        kind: EventType::BREAKPOINT,
        bp_type: breakpoint::W,
        config1: (&raw const WATCHED) as u64,
        config2: 8,
        sampling: Sampling::Period(1),
        flags: AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV,
        ..Attr::default()
    };
    let own = TargetTask::Task(crate::current_tid().unsigned_abs());
    match perf::open(&bytes_of(&attr), own, None, None) {
        Ok(fd) => Some(fd),
        Err(errno) => {
            println!("skipped: needs a debug register: {errno}");
            None
        }
    }
}

#[test]
fn a_program_reads_what_was_written() {
    skip_unless!(can_have(ProgramKind::PerfEvent));
    let Some(context) = EventContext::HERE else {
        return println!("skipped: needs an architecture whose registers are known");
    };
    let Some(event) = watching() else { return };
    // 0: how often, 1: the sum of what was read.
    let sums = Map::new(MapKind::Array, 4, 8, 2, "pmux_test").unwrap();
    let mut asm = Assembler::new();
    let out = asm.label();
    asm.set(Reg::R6, Reg::R1);
    asm.store(Size::Double, Reg::R10, -8, 0).store(Size::Word, Reg::R10, -12, 0).store(Size::Word, Reg::R10, -16, 1);
    asm.set(Reg::R1, Reg::R10).alu(Alu::Add, Reg::R1, -8).set(Reg::R2, 8);
    asm.load(Size::Double, Reg::R3, Reg::R6, context.address).call(Helper::ProbeReadUser);
    for (key, what) in [(-12, None), (-16, Some(-8))] {
        asm.look_up(&sums, key).jump_if(Reg::R0, Compare::Equal, 0, out);
        match what {
            None => asm.set(Reg::R1, 1),
            Some(place) => asm.load(Size::Double, Reg::R1, Reg::R10, place),
        };
        asm.atomic_add(Reg::R0, 0, Reg::R1);
    }
    asm.place(out).set(Reg::R0, 0).exit();
    let program = Program::load(ProgramKind::PerfEvent, &asm.finish().unwrap(), "pmux_test").unwrap();
    program.attach(event.as_fd()).unwrap();
    assert_eq!(program.attach(event.as_fd()), Err(Errno::EEXIST));
    for number in 1..=100 {
        WATCHED.store(number, Ordering::Relaxed);
    }
    drop(event);
    WATCHED.store(1 << 40, Ordering::Relaxed);
    let sum = |index: u32| u64::from_ne_bytes(sums.get(&index.to_ne_bytes()).unwrap().unwrap().try_into().unwrap());
    assert_eq!(sum(0), 100);
    // x86 stops behind the store, others in front of it.
    let sums = if cfg!(target_arch = "x86_64") { [5050, 5050] } else { [4950, 5050] };
    assert!(sums.contains(&sum(1)), "{}", sum(1));
}

#[test]
fn a_raw_tracepoint_runs_until_it_is_dropped() {
    skip_unless!(can_have(ProgramKind::RawTracepoint));
    let counts = Map::new(MapKind::PerCpuArray, 4, 8, 1, "pmux_test").unwrap();
    let mut asm = Assembler::new();
    let out = asm.label();
    asm.store(Size::Word, Reg::R10, -4, 0).look_up(&counts, -4).jump_if(Reg::R0, Compare::Equal, 0, out);
    asm.load(Size::Double, Reg::R1, Reg::R0, 0).alu(Alu::Add, Reg::R1, 1).store(Size::Double, Reg::R0, 0, Reg::R1);
    asm.place(out).set(Reg::R0, 0).exit();
    let program = Program::load(ProgramKind::RawTracepoint, &asm.finish().unwrap(), "pmux_test").unwrap();
    assert_eq!(program.attach_raw_tracepoint("no_such_tracepoint").unwrap_err(), Errno::ENOENT);
    let switches = || -> u64 {
        let values = counts.get(&[0; 4]).unwrap().unwrap();
        values.chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap())).sum()
    };
    let attached = program.attach_raw_tracepoint("sched_switch").unwrap();
    while switches() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(attached);
    drop(program);
}

/// What a program writes into a shared array is seen without a call.
#[test]
fn shared_values_are_seen_as_they_are_written() {
    let kind = ProgramKind::RawTracepoint;
    skip_unless!(can_have(kind));
    let map = match Map::new(MapKind::SharedArray, 4, 16, 1000, "pmux_test") {
        Ok(map) => map,
        // Before Linux 5.5.
        Err(Errno::EINVAL) => return println!("skipped: needs maps that can be mapped"),
        Err(errno) => panic!("{errno}"),
    };
    let values = map.values().unwrap();
    assert_eq!((values.load(0), values.load(1999), values.load(2000)), (0, 0, 0));
    // Of its last value the second word.
    let mut asm = Assembler::new();
    let end = asm.label();
    asm.store(Size::Word, Reg::R10, -4, 999).look_up(&map, -4);
    asm.jump_if(Reg::R0, Compare::Equal, 0, end).set(Reg::R6, Reg::R0);
    asm.call(Helper::GetPrandomU32).alu(Alu::Or, Reg::R0, 1).store(Size::Double, Reg::R6, 8, Reg::R0);
    asm.place(end).set(Reg::R0, 0).exit();
    let program = Program::load(kind, &asm.finish().unwrap(), "pmux_test").unwrap();
    if let Err(errno) = program.run_on(0) {
        return println!("skipped: needs programs that can be run once ({errno})");
    }
    let seen = values.load(1999);
    assert!(seen & 1 == 1 && u32::try_from(seen).is_ok(), "{seen:#x}");
    map.set(&3_u32.to_ne_bytes(), &[7; 16], Update::Set).unwrap();
    assert_eq!(values.load(7), u64::from_ne_bytes([7; 8]));
    // It stays as long as a reader looks.
    drop((map, program));
    assert_eq!(values.load(1999), seen);
    let array = Map::new(MapKind::Array, 4, 8, 3, "pmux_test").unwrap();
    assert_eq!(array.values().err(), Some(Errno::EINVAL));
}
