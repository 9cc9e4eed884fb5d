//! The attributes that `perf stat` makes of the same text, field by field.

use std::collections::BTreeMap;
use std::process::Command;

use pmux_abi::attr::AttrFlags;

use crate::event::*;

/// One printed attribute: the fields that are not 0.
type Printed = BTreeMap<String, u64>;

/// What `perf stat -vv` prints for an event, whether or not it opens. `None` if perf can't be run.
fn perf(event: &str) -> Option<Vec<Printed>> {
    let output = Command::new("perf").args(["stat", "-vv", "-e", event, "true"]).env("LC_ALL", "C").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut attrs = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line.trim_end_matches(':').trim() == "perf_event_attr") {
        let mut attr = Printed::new();
        for line in lines.by_ref().take_while(|line| !line.starts_with("-----")) {
            // `{ bp_addr, config1 }   0x1000`, `config   0x2 (PERF_COUNT_SW_PAGE_FAULTS)`.
            let name = line.trim().trim_start_matches("{ ").split([' ', ',']).next().unwrap_or_default();
            let rest = line.rsplit_once("} ").map_or(line.trim().trim_start_matches(name), |(_, rest)| rest);
            let value = rest.split_whitespace().next().unwrap_or_default();
            let value = value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u64::from_str_radix(hex, 16));
            if let Ok(value) = value {
                attr.insert(name.to_owned(), value);
            }
        }
        attrs.push(attr);
    }
    Some(attrs)
}

/// The same of an event of ours.
fn ours(event: &Event) -> Printed {
    let attr = &event.attr;
    let flag = |flag| u64::from(attr.flags.contains(flag));
    [
        ("type", u64::from(attr.kind.0)),
        ("config", attr.config),
        ("bp_addr", attr.config1),
        ("bp_len", attr.config2),
        ("bp_type", u64::from(attr.bp_type)),
        ("precise_ip", attr.precise.bits()),
        ("pinned", flag(AttrFlags::PINNED)),
        ("exclusive", flag(AttrFlags::EXCLUSIVE)),
        ("exclude_user", flag(AttrFlags::EXCLUDE_USER)),
        ("exclude_kernel", flag(AttrFlags::EXCLUDE_KERNEL)),
        ("exclude_hv", flag(AttrFlags::EXCLUDE_HV)),
        ("exclude_idle", flag(AttrFlags::EXCLUDE_IDLE)),
        ("exclude_host", flag(AttrFlags::EXCLUDE_HOST)),
        ("exclude_guest", flag(AttrFlags::EXCLUDE_GUEST)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Whether this perf sets `exclude_guest` as we do; later versions set it in fewer places.
fn knows_guests_as_we_do() -> Option<bool> {
    let output = Command::new("perf").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().last()?.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    Some((numbers.next()?, numbers.next()?) <= (6, 12))
}

#[test]
fn the_same_text_gives_the_same_attributes() {
    let Some(guests) = knows_guests_as_we_do() else {
        println!("skipped: needs perf");
        return;
    };
    let catalog = Catalog::system();
    let mut compared = 0;
    let texts = "
        page-faults faults:u cs:k migrations:uk task-clock:h cpu-clock:G dummy:H minor-faults:GH major-faults:D
        alignment-faults:I emulation-faults:e bpf-output:S cgroup-switches:uD cs:pk cs:P 1:2:u cycles
        cpu-cycles:u cycles:pp cycles:ppp cycles:pG instructions:uG branches branch-misses:k cache-references
        cache-misses bus-cycles ref-cycles idle-cycles-frontend stalled-cycles-backend 0:1 L1-dcache-load-misses
        l1d L1-icache-prefetches LLC-loads:u LLC-misses dTLB-store-misses d-tlb-stores iTLB-load-misses
        branch-loads bpu-load bpc node-prefetches r1a8 r1a8:k mem:0x1000 mem:0x1000:x mem:0x1000/2:rw
        mem:0x1000/8:w:u mem:4096:rwx software/config=2/ page-faults/name=foo/u duration_time msr/tsc/ msr/tsc/u
        msr/tsc,event=1/ msr/event=0x100/k tsc sched:sched_switch sched:sched_switch:u sched:*fork*
        {page-faults,cs} {page-faults,cs}:u {page-faults:k,cs:u}:u {page-faults:u,cs}:k {page-faults,cs}:D
        {page-faults:G,cs}:p {page-faults,cs}:G {page-faults:P,cs}:P page-faults,cs:u,dummy
    ";
    for text in texts.split_whitespace() {
        let mine = match EventList::parse(&[text], &catalog) {
            Ok(list) => list,
            Err(error) => {
                // Not every machine has the msr PMU or a readable tracefs.
                assert!(text.contains(['/', ':']) || text == "tsc", "{error}");
                println!("skipped: {text} is not here");
                continue;
            }
        };
        // perf opens it for a moment: no test that counts debug registers may be disturbed.
        let _alone = text.starts_with("mem:").then(|| pmux_testkit::lock(pmux_testkit::DEBUG_REGISTERS));
        let Some(theirs) = perf(text).filter(|attrs| !attrs.is_empty()) else {
            println!("skipped: perf says nothing of {text}");
            continue;
        };
        let events: Vec<&Event> = mine.events().collect();
        // Where the kernel refuses an attribute, perf tries again with fewer exclusions. A PMU outside the cores
        // refuses those of guests, which we leave out from the first: there the last try is the one to compare with.
        let last = theirs.len().checked_sub(events.len()).filter(|_| mine.events().any(|e| e.attr.kind.0 >= 6));
        for (event, theirs) in events.iter().zip(theirs.iter().skip(last.unwrap_or(0))) {
            for (field, value) in ours(event) {
                if field == "exclude_guest" && !guests {
                    continue;
                }
                assert_eq!(theirs.get(&field).copied().unwrap_or(0), value, "{text}: {field}; perf: {theirs:?}");
            }
        }
        compared += 1;
    }
    assert!(compared > 0 || !guests, "perf is here, yet nothing could be compared");
}
