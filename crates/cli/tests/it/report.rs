//! `pmux report` and `pmux script` as a user meets them, and held against what `perf` says of the same recording.

use crate::common::{
    CommandResult, PMUX, SyncDir, cc, has_pmu, kernel, needs, new_file, own_cpu, perf, pmux, program, root,
    skip_unless, start, tracefs,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A recording that was made here, with call chains.
fn recorded(sync_dir: &SyncDir, options: &[&str]) -> PathBuf {
    let file = sync_dir.path("it.data");
    let load = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; ls -R /usr/share > /dev/null";
    let start = pmux(["record", "-q", "-o"]).args([&file]).args(options);
    start.args(["--", "sh", "-c", load]).run().good();
    file
}

fn read(command: &str, file: &std::path::Path, options: &[&str]) -> CommandResult {
    pmux([command, "-i"]).args([file]).args(options).run().good()
}

/// The objects of standard output, one a line.
fn objects(ran: &CommandResult) -> Vec<serde_json::Value> {
    ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows by their names: self and children, of a table with or without children, as either program prints it.
fn shares(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = words.iter().take_while(|word| word.ends_with('%')).count();
        // Trees begin with bars, rows with shares.
        if count > 0 && words.len() > count {
            rows.insert(words[count..].join(" "), words[..count].iter().map(|&word| word.to_owned()).collect());
        }
    }
    rows
}

fn percent(text: &str) -> f64 {
    text.trim_end_matches('%').parse().unwrap()
}

#[test]
fn a_recording_is_reported() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = recorded(&sync_dir, &["-e", "cpu-clock:u", "-F", "4000", "-g"]);
    let table = read("report", &file, &[]).text();
    for text in ["# Samples: ", "of event 'cpu-clock", "Children", "Self", "Command", "Shared Object", "Symbol"] {
        assert!(table.contains(text), "{text:?} is not in\n{table}");
    }
    let json = objects(&read("report", &file, &["-j", "--sort", "comm"]));
    let event = &json[0]["events"][0];
    let rows = event["rows"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["self"]["samples"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), event["samples"].as_u64());
    assert!(rows.iter().any(|row| row["comm"] == "sh"), "{rows:?}");
    // Through a pipe it is the same.
    let bytes = std::fs::read(&file).unwrap();
    let piped = pmux(["report", "-i", "-"]).input(bytes).run().good().text();
    assert_eq!(piped, table);
    let lines = read("script", &file, &["-F", "comm,tid,time,ip,sym"]).text();
    assert!(lines.lines().any(|line| line.starts_with("sh ")), "{lines}");
    let all = objects(&read("script", &file, &["--json-lines"]));
    assert_eq!(Some(all.len() as u64), event["samples"].as_u64());
}

#[test]
fn totals_are_those_of_perf() {
    skip_unless!(kernel() && perf() && has_pmu());
    let sync_dir = SyncDir::new();
    let file = recorded(&sync_dir, &["-e", "cycles:u", "-F", "4000", "-g"]);
    for options in [&["--sort", "comm"][..], &["--sort", "comm,dso"], &["--no-children", "--sort", "dso"]] {
        let ours = shares(&read("report", &file, &[options, &["-g", "none"]].concat()).text());
        let words = ["report", "--stdio", "--no-inline", "-g", "none", "-i", file.to_str().unwrap()];
        let theirs = shares(&start("perf", words).args(options).run().good().text());
        assert!(!theirs.is_empty());
        assert!(ours.keys().eq(theirs.keys()), "{options:?}: {ours:?} {theirs:?}");
        for (row, theirs) in &theirs {
            let (own, all) = (&ours[row].last(), &ours[row][0]);
            assert_eq!(*own, theirs.last(), "{options:?}: {row}");
            // Where a chain of frame pointers leads to a number that is no address, perf drops all of it, and pmux that number.
            let more = percent(all) - percent(&theirs[0]);
            assert!((0.0..1.0).contains(&more), "{options:?}: {row}: {all} instead of {theirs:?}");
        }
    }
}

#[test]
fn fields_of_memory_and_registers_are_those_of_perf() {
    skip_unless!(kernel() && perf() && program("cc"));
    let (sync_dir, file) = new_file("fields.data");
    let text = "volatile long sum;\n\
        __attribute__((noinline)) void carry(int n) { for (int i = 0; i < n; i++) sum += i; }\n\
        int main(void) { for (int i = 0; i < 20; i++) { carry(3000000); sum ^= i; } return 0; }\n";
    let made = cc(sync_dir.path(""), "carrier", text, &["-g", "-O1"]);
    let recorded = start("perf", ["record", "-q", "-N", "-e", "cpu-clock", "-F", "4000", "-W", "-d", "--phys-data"])
        .args(["--intr-regs", "--user-regs", "-o"])
        .args([&file])
        .args(["--".as_ref(), made.as_os_str()])
        .run();
    skip_unless!(needs("registers", "perf that records registers and weights", recorded.status.success()));
    let fields = "tid,time,addr,ip,data_src,weight,phys_addr,iregs,uregs";
    let ours = read("script", &file, &["-F", fields]).text();
    let theirs = start("perf", ["script", "-F", fields, "-i"]).args([&file]).run().good().text();
    let lines = |text: &str| text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert!(ours.contains("|OP ") && ours.contains(" ABI:"), "{ours}");
    assert_eq!(lines(&ours), lines(&theirs));
    let ours = read("script", &file, &["-F", "ip,sym,srcline", "--dso", "carrier"]).text();
    assert!(ours.contains("\n  carrier.c:"), "{ours}");
    // Only what was met in the function.
    let json = objects(&read("script", &file, &["-j", "--symbol", "carry"]));
    let all = objects(&read("script", &file, &["-j"]));
    let is_met = |sample: &&serde_json::Value| sample["stack"][0]["symbol"] == "carry";
    assert!(json.iter().all(|sample| is_met(&sample)));
    assert_eq!(json.len(), all.iter().filter(is_met).count());
    assert!(!json.is_empty() && all[0]["iregs"].is_object() && all[0]["weight"].is_u64(), "{}", all[0]);
}

/// A line without what two programs may say in different ways: names of functions.
fn without_symbols(line: &str) -> String {
    let Some(rest) = line.strip_prefix('\t') else { return line.trim_end().to_owned() };
    let (address, rest) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
    format!("\t{address} {}", rest.rsplit_once(" (").map_or("", |(_, dso)| dso))
}

/// The lines of each sample: its head and its frames.
fn samples(text: &str) -> Vec<Vec<&str>> {
    let mut samples: Vec<Vec<&str>> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match samples.last_mut() {
            Some(sample) if line.starts_with('\t') => sample.push(line),
            _ => samples.push(vec![line]),
        }
    }
    samples
}

#[test]
fn lines_are_those_of_perf() {
    skip_unless!(kernel() && perf());
    let sync_dir = SyncDir::new();
    for options in [&["-e", "cpu-clock:u", "-F", "4000", "-g"][..], &["-e", "page-faults:u", "-c", "3"]] {
        let file = recorded(&sync_dir, options);
        let text = read("script", &file, &["--no-inline"]).text();
        let words = ["script", "--no-inline", "-i", file.to_str().unwrap()];
        let theirs = start("perf", words).run().good().text();
        let (mut same, mut all) = (0, 0);
        let (ours, theirs) = (samples(&text), samples(&theirs));
        assert_eq!(ours.len(), theirs.len(), "{options:?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            // perf drops the whole of a chain that has led to where no address is; ours ends there.
            let dropped = theirs.len() == 1 && ours.len() > 1;
            assert!(dropped || ours.len() == theirs.len(), "{ours:#?}\n{theirs:#?}");
            for (ours, theirs) in ours.iter().zip(theirs) {
                if ours.starts_with('\t') || !ours.contains(" (") {
                    assert_eq!(without_symbols(ours), without_symbols(theirs));
                }
                all += 1;
                same += u32::from(ours.trim_end() == theirs.trim_end());
            }
        }
        // A function may have several names, of which perf takes another one.
        println!("{same} of {all} lines are perf's to the letter");
        assert!(same * 2 > all, "{same} of {all}");
    }
}

#[test]
fn the_events_of_a_group_stand_side_by_side() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = recorded(&sync_dir, &["-e", "{cpu-clock:u,task-clock:u}", "-F", "4000"]);
    let table = read("report", &file, &["--stdio"]).text();
    assert!(table.contains("of events 'anon group { cpu-clock:u, task-clock:u }'"), "{table}");
    assert_eq!(table.matches("# Samples: ").count(), 1, "{table}");
    // Each column has the shares of its event, as in a table of its own.
    let alone = read("report", &file, &["--stdio", "--no-group"]).text();
    assert_eq!(alone.matches("# Samples: ").count(), 2, "{alone}");
    let tables: Vec<_> = alone.split("# Samples: ").skip(1).map(shares).collect();
    let together = shares(&table);
    for (name, found) in &together {
        let of =
            |table: &BTreeMap<String, Vec<String>>| table.get(name).map_or("0.00%".to_owned(), |all| all[0].clone());
        assert_eq!(found, &[of(&tables[0]), of(&tables[1])], "{name}");
    }
    assert!(tables.iter().all(|table| table.keys().all(|name| together.contains_key(name))), "{together:?}");
    if perf() {
        // A function may have several names: programs have one.
        let by_program = ["--stdio", "--sort", "comm,dso"];
        let theirs = start("perf", ["report", "-i"]).args([&file]).args(by_program).run().good();
        assert_eq!(shares(&read("report", &file, &by_program).text()), shares(&theirs.text()));
    }
}

#[test]
fn tracepoints_are_printed_as_perf_prints_them() {
    skip_unless!(kernel() && perf() && root() && tracefs());
    let sync_dir = SyncDir::new();
    let file = recorded(&sync_dir, &["-e", "sched:*,raw_syscalls:*"]);
    let ours = read("script", &file, &[]).text();
    let theirs = start("perf", ["script", "-i", file.to_str().unwrap()]).run().good().text();
    assert!(ours.lines().count() > 100);
    assert_eq!(ours.lines().count(), theirs.lines().count());
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours.trim_end(), theirs.trim_end());
    }
    let all = objects(&read("script", &file, &["-j"]));
    let calls = all.iter().filter(|object| object["event"] == "raw_syscalls:sys_enter");
    assert!(calls.clone().count() > 10);
    assert!(
        calls.clone().all(|call| call["fields"]["id"].is_i64() && call["text"].as_str().unwrap().starts_with("NR "))
    );
}

#[test]
fn what_is_wrong_is_said() {
    let sync_dir = SyncDir::new();
    let nowhere = sync_dir.text("nothing.data");
    pmux(["report", "-i", &nowhere]).run().bad(125, &["nothing.data", "no such file", "-i FILE"]);
    pmux(["script", "-i", "/"]).run().bad(125, &["folder"]);
    std::fs::write(sync_dir.path("text.data"), "this is no recording at all").unwrap();
    pmux(["report", "-i", &sync_dir.text("text.data")]).run().bad(125, &["no recording"]);
    pmux(["report", "-i", &sync_dir.text("text.data"), "--sort", "colour"])
        .run()
        .bad(125, &["colour", "comm, dso, symbol"]);
    pmux(["script", "-F", "shape", "-i", &sync_dir.text("text.data")]).run().bad(125, &["shape", "symoff"]);
    pmux(["report", "--percent-limit", "200"]).run().bad(125, &["0 to 100"]);
    skip_unless!(kernel());
    // Cut off in the middle: what is there is shown, and that it is not all.
    let file = recorded(&sync_dir, &["-e", "cpu-clock:u", "-F", "4000"]);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let ran = read("report", &file, &[]);
    assert!(ran.err.contains("cut off"), "{}", ran.err);
}

#[test]
fn parts_of_a_recording_add_up() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = recorded(&sync_dir, &["-e", "cpu-clock:u,page-faults:u", "-c", "1000000"]);
    let samples = |options: &[&str]| {
        let all = [&["-j", "--sort", "comm"], options].concat();
        let events = objects(&read("report", &file, &all))[0]["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["samples"].as_u64().unwrap()).sum::<u64>()
    };
    let lines = |options: &[&str]| read("script", &file, options).text().lines().count() as u64;
    let (all, half) = (samples(&["-e", "cpu-clock"]), "60ms");
    let (before, behind) = (["-e", "cpu-clock", "--to", half], ["-e", "cpu-clock:u", "--from", half]);
    assert!(samples(&before) > 0 && samples(&before) + samples(&behind) == all, "{all}");
    assert_eq!((lines(&before), lines(&behind)), (samples(&before), samples(&behind)));
    for command in ["report", "script"] {
        pmux([command, "-e", "no-such", "-i"]).args([&file]).run().bad(125, &["no event no-such", "cpu-clock:u"]);
        pmux([command, "--from", "2", "--to", "1", "-i"]).args([&file]).run().bad(125, &["--to must be later"]);
        pmux([command, "--from", "1000", "-i"]).args([&file]).run().bad(125, &["no sample matches", "--from"]);
    }
}

/// Builds a program that spends its time in this function.
fn built(sync_dir: &SyncDir, function: &str) -> PathBuf {
    let text = format!(
        "volatile unsigned long sink;\n\
         __attribute__((noinline)) void {function}(void) {{ for (long i = 0; i < 100000000; i++) sink += i; }}\n\
         int main(void) {{ {function}(); return 0; }}\n"
    );
    let _ = std::fs::remove_file(sync_dir.path("it"));
    cc(sync_dir.path(""), "it", &text, &["-O1", "-Wl,--build-id"])
}

#[test]
fn a_program_that_was_built_anew_lends_no_names() {
    skip_unless!(kernel() && program("cc"));
    let sync_dir = SyncDir::new();
    let mut recorders = vec![(PMUX, vec!["record", "-q"], true)];
    if perf() {
        // Without a copy of the program in its cache; with ids behind the records, in the records, through a pipe, and without ids.
        recorders.push(("perf", vec!["record", "-q", "-N"], true));
        recorders.push(("perf", vec!["record", "-q", "-N", "--buildid-mmap"], true));
        recorders.push(("perf", vec!["record", "-q", "-B"], false));
    }
    for (recorder, options, has_ids) in recorders {
        let file = sync_dir.path("it.data");
        let program = built(&sync_dir, "was_recorded");
        let mut start = start(recorder, options.iter().copied()).env("HOME", sync_dir.path(""));
        start.command.args(["-e", "cpu-clock:u", "-F", "1000", "-o"]).arg(&file).arg("--").arg(&program);
        start.run().good();
        // Without names that were kept.
        let told = |cache: &str| {
            let start = pmux(["report", "--stdio", "--no-children", "-i"]).args([&file]);
            start.env("HOME", sync_dir.path(cache)).env("XDG_CACHE_HOME", sync_dir.path(cache)).run().good()
        };
        let before = told("before");
        assert!(before.text().contains("was_recorded"), "{options:?}: {}", before.text());
        assert!(
            !before.err.contains("changed") && !before.err.contains("written after"),
            "{options:?}: {}",
            before.err
        );
        if !has_ids {
            // It has another name beside its own: nothing was written.
            std::fs::hard_link(&program, sync_dir.path("another")).unwrap();
            let linked = told("linked");
            assert!(linked.err.contains("was renamed, linked or"), "{options:?}: {}", linked.err);
            assert!(!linked.err.contains("was written after"), "{options:?}: {}", linked.err);
        }
        built(&sync_dir, "did_not_exist");
        let after = told("after");
        if has_ids {
            assert!(!after.text().contains("did_not_exist"), "{options:?}: {}", after.text());
            assert!(after.err.contains("its build id is another"), "{options:?}: {}", after.err);
        } else {
            assert!(after.err.contains("was written after the recording"), "{options:?}: {}", after.err);
        }
    }
}

#[test]
fn what_has_no_time_shows_none() {
    skip_unless!(kernel() && perf());
    let (_dir, file) = new_file("it.data");
    let words = ["record", "-q", "-N", "--no-timestamp", "-e", "page-faults:u", "-c", "1", "-o"];
    start("perf", words).args([&file]).args(["--", "ls", "/"]).run().good();
    let text = read("script", &file, &[]).text();
    assert!(text.lines().count() > 5 && !text.contains("0.000000"), "{text}");
    assert!(text.lines().all(|line| line.contains(" page-faults:u: ")), "{text}");
}

/// A handler of a signal, and the function that it returns to: no call is in front of that.
#[cfg(target_arch = "x86_64")]
const SIGNALLED: &str = r#"
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
void back_to_work(void);
__asm__(".text\n.type before, @function\nbefore: ret\n.size before, . - before\n.skip 32, 0x90\n.globl back_to_work\n.type back_to_work, @function\n"
        "back_to_work: mov $15, %eax\nsyscall\n.size back_to_work, . - back_to_work\n");
struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
__attribute__((noinline)) void spin(void) { for (volatile long i = 0; i < 100000000; i++); }
void handle(int number) { spin(); (void)number; }
int main(void) {
    struct action action = { handle, 0x04000000, back_to_work, 0 };
    syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8);
    kill(getpid(), SIGUSR1);
    return 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn what_a_signal_handler_returns_to_has_its_name() {
    skip_unless!(kernel() && program("cc"));
    let (sync_dir, file) = new_file("it.data");
    let options = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let program = cc(sync_dir.path(""), "it", SIGNALLED, &options);
    let words = ["record", "-q", "-e", "cpu-clock:u", "-F", "1000", "-g", "-o"];
    pmux(words).args([&file]).args(["--"]).args([&program]).run().good();
    let lines = read("script", &file, &["-F", "ip,sym,symoff"]).text();
    assert!(lines.contains(" handle+") && lines.contains(" back_to_work+0x0"), "{lines}");
}

const ALONE: &str = r#"
static char pages[400 << 12];
/* Anything may be in rbp of code without frame pointers: here a number that is no address. */
__attribute__((noinline)) void touch(void) {
    __asm__ volatile("mov $7, %%ebp" ::: "rbp");
    for (int page = 0; page < 400; page++)
        ((volatile char *)pages)[page << 12] = 1;
}
int main(void) { touch(); return 0; }
"#;

/// A program without any library. Its longer function calls another one: those that do not may keep no frame.
const BY_ITSELF: &str = r#"
static char pages[400 << 12];
__attribute__((noinline)) void store(volatile char *at) { *at = 1; }
__attribute__((noinline)) void touch(void) {
    for (int page = 0; page < 400; page++) {
        store(pages + (page << 12));
        store(pages + (page << 12) + 8);
    }
}
void _start(void) {
    touch();
    __asm__ volatile("mov $60, %%eax; xor %%edi, %%edi; syscall" ::: "rax", "rdi");
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn call_chains_that_break_off_are_said() {
    skip_unless!(kernel() && program("cc"));
    let sync_dir = SyncDir::new();
    let recorded = |name: &str, source: &str, options: &[&str], how: &str| {
        let file = sync_dir.path(&format!("{name}.data"));
        let made = cc(sync_dir.path(""), name, source, &[options, &["-O1"]].concat());
        let words = ["record", "-e", "page-faults:u", "-c", "1", "--call-graph", how, "-o"];
        let said = pmux(words).args([&file]).args(["--"]).args([&made]).run().good().err;
        (file, said)
    };
    let (file, _) = recorded("without", ALONE, &["-fomit-frame-pointer"], "fp");
    let said = read("report", &file, &["--stdio"]).err;
    let line = said.lines().find(|line| line.contains("call chains break off in")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains("without (") && line.contains("--call-graph dwarf"), "{line}");
    // `script` says so of what it prints.
    for words in [&[][..], &["-j"]] {
        let said = read("script", &file, words).err;
        assert!(said.lines().any(|other| other == line), "{said}");
    }
    let said = read("script", &file, &["-F", "comm"]).err;
    assert!(!said.contains("break off"), "{said}");
    let told = read("report", &file, &["-j"]).document();
    let broken = &told["broken_chains"];
    // The first page has other variables as well, and the last one may be shared.
    let most = &broken["modules"][0];
    assert!(most["dso"].as_str().is_some_and(|dso| dso.ends_with("/without")), "{broken}");
    assert!(most["samples"].as_u64() >= Some(390) && broken["of"].as_u64() >= broken["samples"].as_u64(), "{broken}");
    // The chains of the stack itself do not depend on that register.
    let (file, _) = recorded("unwound", ALONE, &["-fomit-frame-pointer"], "dwarf");
    let said = read("report", &file, &["--stdio"]).err;
    assert!(!said.contains("break off"), "{said}");
    // What needs which is found out.
    let (file, told) = recorded("chosen", ALONE, &["-fomit-frame-pointer"], "auto");
    assert!(told.contains("by copies of the stack (dwarf): chosen") && told.contains("no frame pointers"), "{told}");
    let said = read("report", &file, &["--stdio"]).err;
    assert!(!said.contains("break off"), "{said}");
    let options = ["-fno-omit-frame-pointer", "-nostdlib", "-static"];
    let (file, told) = recorded("keeps", BY_ITSELF, &options, "auto");
    assert!(told.contains("call chains by frame pointers (fp): the 1 file that was looked into keeps them"), "{told}");
    let chains = read("script", &file, &["-F", "ip,sym"]).text();
    assert!(chains.contains(" store\n") && chains.contains(" _start\n"), "{chains}");
    // Where there are frame pointers, main has called it.
    let source = ALONE.replace("__asm__ volatile(\"mov $7, %%ebp\" ::: \"rbp\");", "");
    let (file, _) = recorded("with", &source, &["-fno-omit-frame-pointer"], "fp");
    let said = read("report", &file, &["--stdio"]).err;
    assert!(!said.contains("with ("), "{said}");
}

/// Latency of two shells and the one that waits for them: on one CPU it is the time that all ran, on several it is shared by those that ran
/// at once, if any did.
#[test]
fn latency_is_a_share_of_what_ran_at_once() {
    skip_unless!(kernel() && program("taskset"));
    let (sync_dir, file) = new_file("l.data");
    let spin = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let line = format!("({spin}) & ({spin}) & wait");
    let (cpu, file_name) = (own_cpu().to_string(), file.to_str().unwrap().to_owned());
    for is_alone in [true, false] {
        let pinned = ["taskset", "-c", &cpu];
        let words = [PMUX, "record", "--latency", "-q", "-e", "cpu-clock:u", "-F", "2000", "-o", &file_name];
        let words = [&pinned[..if is_alone { 3 } else { 0 }], &words, &["--", "sh", "-c", &line]].concat();
        start(words[0], &words[1..]).run().good();
        let events =
            objects(&read("report", &file, &["--latency", "-j", "-s", "parallelism,comm"]))[0]["events"].clone();
        let [latency, recorded] = &events.as_array().unwrap()[..] else { panic!("{events}") };
        assert_eq!((&latency["name"], &recorded["name"]), (&"cpu-clock:u (latency)".into(), &"cpu-clock:u".into()));
        assert!(recorded["samples"].as_u64().unwrap() > 20, "{recorded}");
        let number = |row: &serde_json::Value| row["self"]["period"].as_u64().unwrap();
        let of = |event: &serde_json::Value| -> BTreeMap<u64, u64> {
            let rows = event["rows"].as_array().unwrap();
            rows.iter().map(|row| (row["parallelism"].as_u64().unwrap(), number(row))).collect()
        };
        let (shared, all) = (of(latency), of(recorded));
        assert!(!is_alone || all.keys().eq(&[1]), "no two have one CPU at once: {all:?}");
        for (threads, period) in &all {
            assert_eq!(shared[threads], period / threads, "{shared:?} of {all:?}");
        }
        let table = read("report", &file, &["--latency", "--stdio", "-g", "none", "-s", "sym"]).text();
        assert!(table.contains("#  Latency  Overhead  Symbol"), "{table}");
    }
    let without = recorded(&sync_dir, &["-e", "cpu-clock:u"]);
    let ran = pmux(["report", "--latency", "-i"]).args([&without]).run();
    assert!(ran.code() != 0 && ran.err.contains("pmux record --latency"), "{}", ran.err);
}
