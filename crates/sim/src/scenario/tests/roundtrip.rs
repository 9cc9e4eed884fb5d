//! What is printed reads as what it was printed from.

use proptest::prelude::*;

use super::super::{parse, print, render};
use super::generate::scenario;
use super::read;

proptest! {
    #[test]
    fn what_is_printed_reads_as_the_same(scenario in scenario()) {
        let text = print(&scenario);
        match parse(&text) {
            Ok(again) => prop_assert_eq!(again, scenario, "{}", text),
            Err(problems) => prop_assert!(false, "{}", render("printed", &text, &problems)),
        }
    }
}

#[test]
fn other_ways_to_write_it_print_the_one_way() {
    for (written, printed) in [
        ("open c = page-faults on cpu 0", "open c = page-faults on cpu0"),
        ("open c = cycles on cpus 3,0-1,1", "open c = cycles on cpus 0-1,3"),
        ("open c = cycles on A cpu 1", "open c = cycles on A cpu1"),
        ("open b = mem:4096 on A", "open b = mem:0x1000/4:rw on A"),
        ("open b = mem:0x1000:x on A", "open b = mem:0x1000/8:x on A"),
        ("open e = cycles on A pinned inherit pinnedx", ""),
        ("open e = cycles on A pinned inherit", "open e = cycles on A inherit pinned"),
        ("expect open e = cycles on A fails ENOENT", "open e = cycles on A fails ENOENT"),
        ("open {a,b}={cycles,instructions} on A", "open {a, b} = {cycles, instructions} on A"),
        ("expect s.gap cpu1 == 5ms", "expect s.cpu1.gap == 5ms"),
        ("expect e.count-1 == ((2+3)*4)", "expect e.count - 1 == (2 + 3) * 4"),
        ("expect e.count == 1-(2-3)", "expect e.count == 1 - (2 - 3)"),
        ("expect e.count == (1-2)-3", "expect e.count == 1 - 2 - 3"),
        ("expect e.count ~ 1_000 within 2.50%", "expect e.count ~ 1000 within 2.5%"),
        ("expect e.count == truth(running)", "expect e.count == truth"),
        ("expect e.state==active|off", "expect e.state == active|off"),
        ("run A , B 1500us rate cycles=2/1ns page-faults=3", "run A, B 1500us rate cycles=2/ns page-faults=3"),
        ("touch A 1 page", "touch A 1 pages"),
        ("access A 0x10 write 1 time", "access A 0x10 write"),
        ("machine counters=2 cpus=1\nmachine seed=7", "machine cpus=1 counters=2 seed=7"),
        ("machine constrained=branches:3+0-1", "machine constrained=branches:0-1+3"),
        ("requires: pmu\nrequires: cpus=2 # and so on", "requires: pmu, cpus=2"),
        ("sim only:  it is; so  # why", "sim only: it is; so"),
        ("  ;; task A;\r\n\r\n", "task A"),
    ] {
        if printed.is_empty() {
            assert!(parse(written).is_err(), "{written}");
        } else {
            assert_eq!(print(&read(written)), format!("{printed}\n"), "{written}");
        }
    }
}
