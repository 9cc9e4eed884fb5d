//! What each way to name an event becomes.

use pmux_abi::attr::{AttrFlags, Precise};
use proptest::prelude::*;

use super::machine;
use crate::event::*;

fn list(text: &str) -> EventList {
    EventList::parse(&[text], &machine().1).unwrap_or_else(|error| panic!("{error}"))
}

fn one(text: &str) -> Event {
    Event::parse_with(text, &machine().1).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> TextError {
    EventList::parse(&[text], &machine().1).expect_err(text)
}

#[test]
fn generic_names_look_at_nothing() {
    // No such directory: any look would be an error or find nothing.
    let nowhere = Catalog::at(std::path::Path::new("/nonexistent"));
    let texts = "page-faults cycles:u {cs,instructions}:W L1-dcache-load-misses r1a8 -1 mem:0x10:x duration_time 0:3";
    let texts: Vec<_> = texts.split(' ').collect();
    assert_eq!(EventList::parse(&texts, &nowhere).unwrap().events().count(), 10);
}

#[test]
fn names_stay_as_typed_and_canonical_names_do_not() {
    for (text, name, canonical) in [
        ("cpu-cycles", "cpu-cycles", "cycles"),
        ("faults:u", "faults:u", "page-faults"),
        ("idle-cycles-frontend", "idle-cycles-frontend", "stalled-cycles-frontend"),
        ("l1d-misses", "l1d-misses", "L1-dcache-load-misses"),
        ("user_time", "user_time", "user_time"),
        ("0", "cycles", "cycles"),
        ("-3:u", "page-faults:u", "page-faults"),
        ("1:2", "1:2", "page-faults"),
        ("3:0x10002", "3:0x10002", "LLC-load-misses"),
        ("4:1", "4:1", ""),
        ("software/config=2/", "software/config=2/", "page-faults"),
        ("r1a8", "r1a8", ""),
        ("cycles/name=foo/u", "foo", "cycles"),
        ("cycles/config=4/", "cycles/config=4/", "branches"),
        ("cpu/cpu-cycles/", "cpu/cpu-cycles/", "cycles"),
        ("cpu/cycles/u", "cpu/cycles/u", "cycles"),
        ("cpu/cpu-cycles,umask=1/", "cpu/cpu-cycles,umask=1/", ""),
        ("msr/tsc,name='a b'/", "a b", ""),
        ("sched:sched_switch:k", "sched:sched_switch:k", ""),
    ] {
        let event = one(text);
        assert_eq!((event.name.as_str(), event.canonical.as_str()), (name, canonical), "{text}");
    }
}

#[test]
fn the_numbers_of_timec() {
    let names: Vec<String> = (-5..=5).map(|n: i32| one(&n.to_string()).canonical).collect();
    let expected = "cpu-migrations context-switches page-faults task-clock cpu-clock cycles instructions \
                    cache-references cache-misses branches branch-misses";
    assert_eq!(names.join(" "), expected);
    assert!(error("6").problem.starts_with("no event has the number 6: 0 cycles, 1 instructions, "));
}

#[test]
fn clocks_are_shown_in_milliseconds() {
    assert_eq!((one("task-clock").unit.as_str(), one("cpu-clock:u").scale), ("msec", 1e-6));
    assert_eq!((one("page-faults").unit.as_str(), one("page-faults").scale), ("", 1.0));
    assert_eq!(one("1:1").unit, "msec");
    assert_eq!(one("duration_time").unit, "ns");
    assert_eq!(one("duration_time").source, EventSource::Tool(ToolEvent::DurationTime));
}

#[test]
fn terms_go_to_their_bits() {
    for (text, kind, words) in [
        ("cpu/event=0x1a8,umask=2/", 4, [0x1_0000_02a8, 0]),
        ("cpu/edge,event=1/", 4, [0x4_0001, 0]),
        ("cpu/mem-loads/", 4, [0x1cd, 3]),
        ("cpu/mem-loads,ldlat=30/", 4, [0x1cd, 30]),
        ("cpu/ldlat=30,mem-loads/", 4, [0x1cd, 3]),
        ("cpu/event=mem-loads/", 4, [0x1cd, 3]),
        ("cpu/r1a8/", 4, [0x1a8, 0]),
        ("cpu/config=5,config1=3/", 4, [5, 3]),
        ("mem-loads", 4, [0x1cd, 3]),
        ("cpu_atom/cpu-cycles/", 10, [0x3c, 0]),
        ("msr//", 9, [0, 0]),
        ("hv/open,core=3/", 30, [0x3_0007, 0]),
    ] {
        let attr = one(text).attr;
        assert_eq!((attr.kind.0, [attr.config, attr.config1]), (kind, words), "{text}");
    }
    assert_eq!(one("cpu/config2=7,config3=8/").attr.config3, 8);
    let sampled = one("cpu/event=1,period=1000/");
    assert_eq!((sampled.sampling, sampled.attr.sampling), (Sampling::Period(1000), Sampling::None));
}

#[test]
fn what_stands_beside_a_named_event() {
    let energy = one("power/energy-pkg/");
    assert_eq!((energy.unit.as_str(), energy.scale), ("Joules", 2.5e-10));
    assert_eq!((energy.kind, energy.extent), (AliasKind::Snapshot, AliasExtent::Package));
    assert_eq!(energy.package_cpus(), Some([0, 18].as_slice()));
    assert_eq!(energy.source, EventSource::Kernel { pmu: "power".into() });
    assert!(energy.attr.flags.is_empty(), "a PMU outside the cores takes no exclusion");
    assert_eq!(one("cpu_atom/cpu-cycles/").cpus, PmuCpus::Only(vec![2, 3]));
    assert_eq!(one("cpu_atom/cpu-cycles/").attr.flags, AttrFlags::EXCLUDE_GUEST);
}

#[test]
fn one_name_can_be_several_events() {
    let ticks = list("imc/clockticks/,msr/tsc/");
    let found: Vec<_> = ticks.events().map(|event| (event.attr.kind.0, event.name.as_str(), event.spread)).collect();
    assert_eq!(found, [(41, "imc/clockticks/", Some(1)), (42, "imc/clockticks/", Some(1)), (9, "msr/tsc/", None)]);
    let bare = EventList::parse(&["clockticks", "clockticks:u"], &machine().1).unwrap();
    let spreads: Vec<_> = bare.events().map(|event| event.spread).collect();
    assert_eq!(spreads, [Some(1), Some(1), Some(2), Some(2)]);
    // A group over several PMUs is a group for each.
    let groups = list("{imc/clockticks/,imc/event=2/}").groups;
    let kinds: Vec<Vec<u32>> =
        groups.iter().map(|group| group.events.iter().map(|e| e.attr.kind.0).collect()).collect();
    assert_eq!(kinds, [[41, 41], [42, 42]]);
}

#[test]
fn tracepoints_and_patterns() {
    assert_eq!(one("sched:sched_switch").attr.config, 316);
    let all = list("raw_syscalls:*:u");
    let names: Vec<_> = all.events().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["raw_syscalls:sys_enter:u", "raw_syscalls:sys_exit:u"]);
    assert_eq!((all.groups.len(), all.groups[0].kind), (2, GroupKind::Single));
    assert_eq!(list("*:s*_s*").events().count(), 1);
    let group = list("{raw_syscalls:*:D}").groups.remove(0);
    let pinned: Vec<bool> = group.events.iter().map(|event| event.attr.flags.contains(AttrFlags::PINNED)).collect();
    assert_eq!(pinned, [true, false], "only the leader can be pinned");
}

#[test]
fn group_modifiers_add_to_those_of_the_events() {
    let (u, k, h) = (AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_KERNEL, AttrFlags::EXCLUDE_HV);
    let (g, host) = (AttrFlags::EXCLUDE_GUEST, AttrFlags::EXCLUDE_HOST);
    for (text, first, second) in [
        ("{cs,faults}", g, g),
        ("{cs,faults}:u", k | h | g, k | h | g),
        ("{cs:k,faults:u}:u", h | g, k | h | g),
        ("{cs:u,faults}:k", h | g, u | h | g),
        ("{cs:G,faults}:p", host, g),
        ("{cs,faults}:G", host, host),
        ("{cs,faults}:D", g | AttrFlags::PINNED, g),
        ("{cs:e,faults}", AttrFlags::EXCLUSIVE, g),
    ] {
        let group = list(text).groups.remove(0);
        assert_eq!((group.events[0].attr.flags, group.events[1].attr.flags), (first, second), "{text}");
    }
    let precise = list("{cs:p,faults}:pp").groups.remove(0);
    assert_eq!(precise.events[0].attr.precise, Precise::MustHaveZeroSkid);
    assert_eq!(precise.events[1].attr.precise, Precise::RequestZeroSkid);
    assert_eq!(list("g{cs,faults}:WS").groups[0].strength, GroupStrength::Weak);
    assert_eq!(list("g{cs,faults}").groups[0].name.as_deref(), Some("g"));
    assert_eq!(error("{cs:pp,faults}:pp").problem, "more than three 'p': 'ppp' is the most precise");
    assert!(error("{cs,faults:D}").problem.starts_with("'D' holds for a whole group: "));
}

#[test]
fn breakpoints() {
    let attr = one("mem:0x1000").attr;
    assert_eq!((attr.kind, attr.bp_type, attr.config1, attr.config2), (EventType::BREAKPOINT, 3, 0x1000, 4));
    assert_eq!(one("mem:0x1000:x").attr.config2, size_of::<std::ffi::c_long>() as u64);
    assert_eq!(one("mem:0x1000/8:w").attr.config2, 8);
    assert_eq!(one("mem:0x1000/8:w").attr, Event::breakpoint(0x1000, 8, Access::WRITE).attr);
}

#[test]
fn faults_say_what_was_meant() {
    for (text, column, near) in [
        ("cs,page-fautls:u", 3, "page-faults"),
        ("L1-dcache-laod-misses", 0, "L1-dcache-load-misses"),
        ("msr/tcs/", 4, "tsc"),
        ("mrs/tsc/", 0, "msr/"),
        ("cpu/evnt=1/", 4, "event"),
        ("msr", 0, "msr/tsc/"),
        ("energy_pkg", 0, "power/energy-pkg/"),
        ("sched:sched_swich", 0, "sched:sched_switch"),
        ("shced:sched_switch", 0, "sched:sched_switch"),
        ("sched_switch", 0, "sched:sched_switch"),
        ("cycles/nmae=x/", 7, "name"),
    ] {
        let error = error(text);
        assert_eq!(
            (error.column(), error.suggestions.first().map(String::as_str)),
            (column, Some(near)),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(near));
    }
}

#[test]
fn faults_name_the_place() {
    const RAW: &str = "a raw event has at most 64 bits: expected 'r' and up to 16 hexadecimal digits";
    const STEERS: &str = "the term 'percore' is not supported: it steers how samples are recorded, not what is counted";
    const NUMBER: &str = "the term 'config' is not supported: the number of a tracepoint comes from tracefs";
    const SCALES: &str = "'energy-ram' has a unit of its own: it cannot be joined to another event with one";
    for (text, column, problem) in [
        ("cpu/event=0x1000/", 10, "0x1000 does not fit into 'event': at most 0xfff"),
        ("cpu/umask/", 4, "'umask' needs a number: 'umask=0x1'"),
        ("cpu/umask=x/", 10, "'umask' needs a number: 'umask=0x1'"),
        ("cpu/mem-loads=2/", 14, "'mem-loads' is a named event and takes no value"),
        ("cpu/config=x/", 11, "'config' needs a number: 'config=0x1'"),
        ("cycles/name=/", 12, "expected a value, found '/'"),
        ("cycles/name=''/", 12, "'name' needs a text: 'name=text'"),
        ("hv/open/", 3, "the event 'open' also needs 'core=NUMBER'"),
        ("power/energy-pkg,energy-ram/", 17, SCALES),
        ("r11112222333344445", 0, RAW),
        ("cs,iTLB-stores", 3, "iTLB has no store events"),
        ("nosuch:thing", 0, "this kernel has no tracepoint 'nosuch:thing'"),
        ("sched:zz*", 0, "this kernel has no tracepoint 'sched:zz*'"),
        ("cycles/event=1/", 7, "a generic event has no term 'event'"),
        ("msr/foo/", 4, "the PMU 'msr' has neither a field nor an event named 'foo'"),
        ("x/y/", 0, "this machine has no PMU named 'x': `pmux list` shows the events that it has"),
        ("cpu/event=1,percore/", 12, STEERS),
        ("sched:sched_switch/config=1/", 19, NUMBER),
    ] {
        let error = error(text);
        assert_eq!((error.column(), error.problem.as_str()), (column, problem), "{text}");
    }
    let two = Event::parse_with("cs,faults", &machine().1).unwrap_err();
    assert_eq!(two.problem, "expected one event, found 2");
}

#[test]
fn a_missing_tracefs_is_not_a_missing_tracepoint() {
    let nowhere = Catalog::at(std::path::Path::new("/nonexistent"));
    for (text, says) in [
        ("sched:sched_switch", "no tracefs is mounted (looked at"),
        ("sched:*", "no tracefs is mounted (looked at"),
        ("msr/tsc/", "no sysfs: /nonexistent"),
    ] {
        let problem = EventList::parse(&[text], &nowhere).unwrap_err().problem;
        assert!(problem.starts_with(says), "{text}: {problem}");
    }
}

#[test]
fn typed_events_are_those_of_the_syntax() {
    let (_dir, catalog) = machine();
    for event in Hardware::ALL {
        assert_eq!(Event::hardware(*event), one(event.canonical()));
    }
    for event in Software::ALL {
        assert_eq!(Event::software(*event), one(event.canonical()));
    }
    for event in CacheEvent::all() {
        assert_eq!(Event::cache(event), one(&event.name()));
    }
    assert_eq!(Event::raw(0x1a8), one("r1a8"));
    assert_eq!(Event::breakpoint(0x1000, 4, Access::READ_WRITE), one("mem:0x1000/4:rw"));
    assert_eq!(Event::tracepoint(&catalog, "sched", "sched_switch").unwrap(), one("sched:sched_switch"));
    assert_eq!(Event::tool(ToolEvent::UserTime), one("user_time"));
    assert_eq!(Event::hardware(Hardware::Cycles).with_modifiers("u").unwrap(), one("cycles:u"));
    assert_eq!(one("msr/tsc/").with_modifiers("u").unwrap().name, "msr/tsc/u");
}

#[test]
fn encodings() {
    for (text, encoding) in [
        ("cpu/event=0x3c,umask=0/GH", "cpu/event=0x3c,umask=0x0/  type 4 (PERF_TYPE_RAW), config 0x3c"),
        ("msr/tsc/", "msr/event=0x0/  type 9, config 0x0"),
        (
            "cycles:u",
            "cpu//  type 0 (PERF_TYPE_HARDWARE), config 0x0 (PERF_COUNT_HW_CPU_CYCLES), exclude_kernel, exclude_hv, exclude_guest",
        ),
        ("mem:0x10:w", "breakpoint//  type 5 (PERF_TYPE_BREAKPOINT), bp_addr 0x10, bp_len 4, bp_type 2, exclude_guest"),
        (
            "cpu/mem-loads/ppGH",
            "cpu/event=0xcd,umask=0x1,ldlat=0x3/  type 4 (PERF_TYPE_RAW), config 0x1cd, config1 0x3, precise_ip 2",
        ),
    ] {
        assert_eq!(one(text).encoding(), encoding, "{text}");
    }
}

#[test]
fn the_pmu_of_the_cores_has_the_name_of_the_machine() {
    let on = |pmus: &[(&str, &str)], text: &str| {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in pmus {
            super::write(dir.path(), &format!("bus/event_source/devices/{file}"), text);
        }
        let catalog = Catalog::at(dir.path());
        let event = Event::parse_with(text, &catalog).unwrap();
        let encoding = event.encoding_on(&catalog);
        (event.counted_by(&catalog).map(|pmus| pmus.join(" ")), encoding[..encoding.find("  ").unwrap()].to_owned())
    };
    let is = |pmus: &str, encoding: &str| (Some(pmus.to_owned()), encoding.to_owned());
    let arm = [("armv8_pmuv3_0/type", "10\n"), ("armv8_pmuv3_0/cpus", "0-3\n"), ("software/type", "1\n")];
    assert_eq!(on(&arm, "cycles"), is("armv8_pmuv3_0", "armv8_pmuv3_0//"));
    assert_eq!(on(&arm, "r11"), is("armv8_pmuv3_0", "armv8_pmuv3_0//"));
    assert_eq!(on(&arm, "page-faults"), is("software", "software//"));
    let mixed = [("cpu_core/type", "4\n"), ("cpu_atom/type", "10\n"), ("cpu_atom/cpus", "2-3\n")];
    assert_eq!(on(&mixed, "cycles"), is("cpu_atom cpu_core", "cpu_atom|cpu_core//"));
    assert_eq!(on(&[("cpu/type", "4\n")], "cycles"), is("cpu", "cpu//"));
    assert_eq!(on(&[("software/type", "1\n")], "cycles"), is("cpu", "cpu//"), "there is none");
    let (_dir, catalog) = machine();
    assert_eq!(Event::tool(ToolEvent::UserTime).counted_by(&catalog), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in "([a-z]{1,3}|cpu|msr|imc|event|tsc|sched|\\*|cs|mem|[0-9]|[,{}:/=' ?-]|[ukpDe]|\\PC){0,20}") {
        let (_dir, catalog) = machine();
        if let Err(error) = EventList::parse(&[&text], &catalog) {
            prop_assert!(error.column() <= text.chars().count());
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
