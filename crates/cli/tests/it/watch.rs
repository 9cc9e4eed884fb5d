//! `pmux watch`: who touches what, asked as a user would.
//!
//! The program that is watched is the bank of [`common::bank`]; and the examples, compiled here.
//! Tests that take debug registers wait for each other, and for other programs of these tests, by a lock file.

use crate::common;
use crate::common::bank::{ALL, Bank, PAYMENTS, TELLERS};
use crate::common::{
    CommandResult, Running, Start, SyncDir, eventually, kernel, needs, pmux, program, root, skip_unless, start,
};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

/// Waits for the registers; `None` where there are none to be had, and where the test has run in a process of its own.
fn registers() -> Option<File> {
    if !kernel() {
        return None;
    }
    let file = common::debug_registers()?;
    (common::has_free_register() && Bank::open().is_some()).then_some(file)
}

fn watch<A: Into<OsString>>(words: impl IntoIterator<Item = A>) -> Start {
    pmux([OsString::from("watch")].into_iter().chain(words.into_iter().map(Into::into)))
}

/// `pmux watch … -- the bank, doing something`.
fn watch_bank(options: &[&str], deed: &str) -> Start {
    watch_bank_with(options, deed, "")
}

/// As [`watch_bank`], with a file that it makes or waits for.
fn watch_bank_with(options: &[&str], deed: &str, file: &str) -> Start {
    let words = options.iter().copied().map(OsString::from).chain(["--".into()]);
    watch(words.chain(Bank::open().unwrap().words(deed, file)))
}

/// Whether values were seen at the hit. If not, the skip is told.
fn looks_at_hits(lines: &[Value]) -> bool {
    let notes: Vec<_> = objects(lines, "note").iter().map(|note| note["text"].to_string()).collect();
    let there = notes.iter().any(|note| note.contains("seen by a BPF program"));
    assert!(
        there || notes.iter().any(|note| note.contains("values were read after the hit, not at it: ")),
        "{notes:?}"
    );
    needs("bpf", &format!("BPF programs ({notes:?})"), there)
}

fn objects<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

fn count(lines: &[Value]) -> u64 {
    objects(lines, "target")[0]["count"].as_u64().unwrap()
}

#[test]
fn the_writer_is_found() {
    let Some(_alone) = registers() else { return };
    let ran = watch_bank(&["-j", "vault"], "tellers").run().good();
    let lines = ran.json();
    assert_eq!(count(&lines), ALL);
    let rows = objects(&lines, "row");
    let called = |row: &Value, name: &str| row["command"].as_str() == Some(name);
    for number in 0..TELLERS {
        let name = format!("teller-{number}");
        let own: u64 = rows.iter().filter(|row| called(row, &name)).map(|row| row["hits"].as_u64().unwrap()).sum();
        assert_eq!(own, PAYMENTS + u64::from(number == 1), "{name}: {rows:#?}");
    }
    let odd: Vec<_> = rows.iter().filter(|row| row.to_string().contains("forget")).collect();
    assert_eq!(odd.len(), 1, "{rows:#?}");
    assert!(called(odd[0], "teller-1") && odd[0]["hits"] == 1, "{odd:#?}");
    // For people, too.
    let ran = watch_bank(&["vault"], "tellers").run().good();
    ran.says(&["vault (0x", "8 bytes, writes): 121 hits in ", "teller-1", "forget"]);
}

/// Counted one by one or by thread and place: the numbers are the same.
#[test]
fn many_hits_of_one_place_are_one_row() {
    let Some(_alone) = registers() else { return };
    for options in [&["-j", "vault"][..], &["-j", "--values", "later", "vault"], &["-j", "--callers", "main", "vault"]]
    {
        if options.contains(&"--callers") && *Bank::open().unwrap() == Bank::Played {
            continue;
        }
        let lines = watch_bank(options, "counts").run().good().json();
        let target = objects(&lines, "target")[0];
        assert_eq!((count(&lines), &target["told"]), (500, &500.into()), "{lines:#?}");
        let rows = objects(&lines, "row");
        assert_eq!(rows.iter().map(|row| row["hits"].as_u64().unwrap()).sum::<u64>(), 500);
        for row in rows {
            assert!(row.to_string().contains("pay_in") && row["callers"] != serde_json::json!([]), "{row}");
            assert!(
                row["first"].as_f64() <= row["last"].as_f64() && row["last"].as_f64() <= target["seconds"].as_f64()
            );
            assert_ne!(row["cpus"], serde_json::json!([]), "{row}");
        }
        assert_eq!(objects(&lines, "note").len(), 0, "{lines:#?}");
    }
}

#[test]
fn the_exit_status_is_the_commands() {
    let Some(_alone) = registers() else { return };
    let ran = watch_bank(&["vault"], "fails").run();
    assert_eq!(ran.code(), 3, "{}", ran.err);
    ran.says(&["1 hit in "]);
    // A hit that comes late ends a program so.
    let ran = watch(["0x1000", "--", "sh", "-c", "kill -TRAP $$"]).run();
    assert_eq!(ran.code(), 133, "{}", ran.err);
    ran.says(&["the command was ended by SIGTRAP"]);
    watch(["main", "--", "/nowhere/at/all"]).run().bad(127, &["/nowhere/at/all"]);
}

#[test]
fn what_is_not_there_is_said_before_the_command_runs() {
    let Some(_alone) = registers() else { return };
    let sync_dir = SyncDir::new();
    let ran = sync_dir.text("ran");
    // Among a hundred thousand names, pmux does not look for what is near.
    let near: &[&str] = if Bank::open() == Some(&Bank::Played) { &[] } else { &["did you mean", "vault"] };
    watch_bank_with(&["vautl"], "touches", &ran).run().bad(125, &[&["vautl"], near].concat());
    watch_bank_with(&["vault/0y"], "touches", &ran).run().bad(125, &["vault/0y"]);
    watch_bank_with(&["0x"], "touches", &ran).run().bad(125, &["0x"]);
    assert!(!sync_dir.path("ran").exists(), "the command was run");
    watch(["--if", "vale == 1", "x", "-a"]).run().bad(125, &["`vale` is not known of a hit", "^"]);
    watch(["0x1000", "-p", "99999999"]).run().bad(125, &["99999999"]);
    watch_bank(&["0x1000"], "fails")
        .env("PMUX_BACKEND", "usage")
        .run()
        .bad(125, &["needs the kernel's performance events"]);
}

#[test]
fn each_hit_is_traced_or_counted_as_left_out() {
    let Some(_alone) = registers() else { return };
    let lines = watch_bank(&["-j", "--trace", "--rate", "0", "vault"], "tellers").run().good().json();
    let hits = objects(&lines, "hit");
    assert_eq!(hits.len() as u64, ALL);
    assert!(hits.windows(2).all(|pair| pair[0]["time"].as_f64() <= pair[1]["time"].as_f64()));
    assert!(hits.iter().all(|hit| hit["value"].is_u64() || hit["overtaken"] == true || hit["value"].is_null()));
    let lines = watch_bank(&["-j", "--trace", "--rate", "7", "vault"], "tellers").run().good().json();
    let printed = objects(&lines, "hit").len() as u64;
    let left_out: u64 = objects(&lines, "left_out").iter().map(|line| line["hits"].as_u64().unwrap()).sum();
    assert_eq!((printed + left_out, count(&lines)), (ALL, ALL));
    let ran = watch_bank(&["--trace", "vault"], "tellers").run().good();
    ran.says(&[" teller-0/", " cpu ", "\u{2190}"]);
}

/// However fast they come.
#[test]
fn each_hit_has_its_values() {
    let Some(_alone) = registers() else { return };
    let lines = watch_bank(&["-j", "--trace", "--rate", "0", "vault"], "counts").run().good().json();
    skip_unless!(looks_at_hits(&lines));
    let hits = objects(&lines, "hit");
    assert_eq!(hits.len(), 500);
    for (hit, value) in hits.iter().zip(1_u64..) {
        // Where the machine reports in front of the access, the last one is read from a process that may be gone.
        assert!(hit["value"] == value || value == 500 && hit["seen"] == "in_front", "{hit}");
        assert_eq!(hit["old"], value - 1, "{hit}");
    }
    // Asked in the kernel, where it knows the answer.
    let lines =
        watch_bank(&["-j", "--trace", "--if", "old == 77 || old == 333", "vault"], "counts").run().good().json();
    let values: Vec<_> = objects(&lines, "hit").iter().map(|hit| hit["value"].as_u64().unwrap()).collect();
    assert_eq!(values, [78, 334], "{lines:#?}");
    assert_eq!((count(&lines), &objects(&lines, "target")[0]["told"]), (500, &Value::from(2)));
    // For people: what was seen, and how.
    let ran = watch_bank(&["--trace", "--rate", "3", "vault"], "counts").run().good();
    ran.says(&["0 \u{2192} 1 ", "1 \u{2192} 2 ", "497 more hits", "seen by a BPF program"]);
    // It is optional.
    let lines = watch_bank(&["-j", "--trace", "--values", "later", "vault"], "counts").run().good().json();
    assert!(objects(&lines, "note").iter().all(|note| !note.to_string().contains("BPF")), "{lines:#?}");
    let seen = |hit: &&&Value| !(hit["seen"] == "later" || hit["seen"].is_null());
    assert_eq!(objects(&lines, "hit").iter().filter(seen).count(), 0);
}

#[test]
fn values_are_seen_before_and_after() {
    let Some(_alone) = registers() else { return };
    let sync_dir = SyncDir::new();
    let end = sync_dir.text("end");
    let ran = watch_bank_with(&["-j", "--trace", "--stop", "3", "--if", "changed", "vault"], "writes", &end).run();
    let lines = ran.json();
    let hits = objects(&lines, "hit");
    assert_eq!(hits.len(), 3, "{}", ran.err);
    for hit in hits {
        assert!(hit["old"].as_u64().unwrap() < hit["value"].as_u64().unwrap(), "{hit}");
    }
    assert_eq!(ran.code(), 143, "enough hits end the command");
}

#[test]
fn conditions_and_callers_filter() {
    let Some(_alone) = registers() else { return };
    let told = |options: &[&str]| {
        let options: Vec<&str> = ["-j"].iter().chain(options).copied().chain(["vault"]).collect();
        let lines = watch_bank(&options, "tellers").run().good().json();
        assert_eq!(count(&lines), ALL);
        objects(&lines, "target")[0]["told"].as_u64().unwrap()
    };
    assert_eq!(told(&["--callers", "forget"]), 1);
    assert_eq!(told(&["--callers", "pay_in"]), TELLERS * PAYMENTS);
    assert_eq!(told(&["--callers", "pay_in", "--callers", "forget"]), ALL);
    assert_eq!(told(&["--if", "tid == 1"]), 0);
    assert_eq!(told(&["--if", "pid > 1 && !kernel"]), ALL);
}

/// Children are watched; a program that they execute is not.
#[test]
fn children_are_watched_until_they_become_something_else() {
    let Some(_alone) = registers() else { return };
    if *Bank::open().unwrap() == Bank::Played {
        needs("cc", "cc, for a program that forks", false);
        return;
    }
    let ran = watch_bank(&["-j", "--trace", "vault"], "forks").run();
    assert_eq!(ran.code(), 3, "{}", ran.err);
    let lines = ran.json();
    assert_eq!(count(&lines), 3);
    let pids: std::collections::BTreeSet<String> =
        objects(&lines, "row").iter().map(|row| row["pid"].to_string()).collect();
    assert_eq!(pids.len(), 2, "{lines:#?}");
    assert!(objects(&lines, "row").iter().all(|row| row.to_string().contains("pay_in")), "{lines:#?}");
    if looks_at_hits(&lines) {
        // Of the child's first hit, pmux has not seen what stood there before, unless the machine reports it before it is done.
        let values: Vec<_> = objects(&lines, "hit").iter().map(|hit| hit["value"].as_u64()).collect();
        assert_eq!(values, [Some(1), Some(2), Some(3)], "{lines:#?}");
        let old: Vec<_> = objects(&lines, "hit").iter().map(|hit| hit["old"].as_u64()).collect();
        assert!(old == [Some(0), None, Some(2)] || old == [Some(0), Some(1), Some(2)], "{lines:#?}");
    }
}

/// Each program that has it is watched, and each process that executes it anew.
#[test]
fn what_comes_later_is_watched_wherever_it_comes() {
    let Some(_alone) = registers() else { return };
    let bank = |deed: &str| {
        let words = Bank::open().unwrap().words(deed, "");
        words.iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
    };
    let total = |ran: CommandResult| {
        let lines = ran.json();
        let [target] = &objects(&lines, "target")[..] else { panic!("{lines:#?}") };
        let rows = objects(&lines, "row").iter().map(|row| row["hits"].as_u64().unwrap()).sum::<u64>();
        assert_eq!(target["count"].as_u64(), Some(rows), "{lines:#?}");
        rows
    };
    let counts = bank("counts");
    let line = format!("true; {counts}; {counts} & {counts}; wait; true");
    let ran = watch(["-j", "--later", "vault", "--", "sh", "-c", &line]).run().good();
    assert_eq!(total(ran), 1500);
    if Bank::open() != Some(&Bank::Played) {
        // One hit, two of a child, and one of the program that it executes.
        let ran =
            watch(["-j", "--later", "vault", "--", "sh", "-c", &format!("{}; exit 0", bank("forks"))]).run().good();
        assert_eq!(total(ran), 4);
    }
}

/// What was not watched, and which rights were left out, is said.
#[test]
fn programs_that_are_not_looked_into_are_told() {
    let Some(_alone) = registers() else { return };
    let Some(Bank::Compiled(bank)) = Bank::open() else { return };
    let executed = "executed another program, bank: ";
    let not_watched = "from then on such a process is not watched; --later ";
    // Its last program ends with 3.
    watch_bank(&["vault"], "forks").run().bad(3, &["3 hits", executed, not_watched]);
    watch_bank(&["--across-exec", "vault"], "forks").run().bad(3, &[executed, "at the same addresses"]);
    watch_bank(&["--later", "vault"], "forks").run().bad(3, &["4 hits"]).never_says(&["executed another"]);
    watch_bank(&["vault"], "counts").run().good().never_says(&["executed another"]);

    skip_unless!(root() && program("setpriv"));
    let folder = common::folder_with(0o755);
    let (own, copy) = (common::copy_with(folder.path(), common::PMUX, 0o755), folder.path().join("bank"));
    common::copy_of(bank, &copy);
    let as_user = |mode: u32| {
        common::set_mode(&copy, mode);
        let watch = common::unprivileged().args([&own]).args(["watch", "vault", "--"]);
        watch.args([&copy]).args(["forks"]).run()
    };
    let left_out = "ran without the rights that its file gives (set-user-id";
    let flown = |mode: u32| {
        common::set_mode(&copy, mode);
        let out = folder.path().join("flights");
        std::fs::create_dir_all(&out).unwrap();
        common::set_mode(&out, 0o777);
        let words = ["flight", "-e", "page-faults:u", "--on", "watch:vault:w", "-o"];
        let flight = common::unprivileged().args([&own]).args(words).args([&out]);
        flight.args(["--"]).args([&copy]).args(["forks"]).run()
    };
    flown(0o755).never_says(&[left_out]);
    flown(0o4755).says(&[left_out]);
    as_user(0o755).bad(3, &[executed]).never_says(&[left_out]);
    as_user(0o4755).bad(3, &[left_out]);
    as_user(0o2755).bad(3, &[left_out]);
    as_user(0o711).bad(125, &["this user may not read"]);
}

/// A process in a role that runs until the test ends.
struct Runs {
    running: Running,
    sync_dir: SyncDir,
}

impl Runs {
    fn start(name: &str) -> Self {
        let sync_dir = SyncDir::new();
        let words = Bank::open().unwrap().words(name, &sync_dir.text("end"));
        Self { running: start(&words[0], &words[1..]).spawn(), sync_dir }
    }

    fn pid(&self) -> String {
        self.running.pid().to_string()
    }

    /// The thread that writes: a test harness may have another one that waits for it.
    fn newest_thread(&self) -> String {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let numbers = threads.filter_map(|thread| thread.unwrap().file_name().to_str()?.parse::<u32>().ok());
        numbers.max().unwrap().to_string()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.sync_dir.post("end");
        self.running.child.0.wait().unwrap();
    }
}

#[test]
fn a_process_that_runs_is_watched() {
    let Some(_alone) = registers() else { return };
    let runs = Runs::start("writes");
    let pid = runs.pid();
    let ran = watch(["-j", "--stop", "5", "vault", "-p", &pid]).run().good();
    let lines = ran.json();
    assert_eq!(objects(&lines, "target")[0]["told"], 5);
    assert!(objects(&lines, "row").iter().all(|row| row["pid"].as_u64() == pid.parse().ok()), "{lines:#?}");
    watch(["--stop", "1", "vault", "-t", &runs.newest_thread()]).run().good().says(&["pay_in"]);
    // A signal ends it, and what was seen is told.
    let file = runs.sync_dir.path("report");
    let watching = watch(["-o", file.to_str().unwrap(), "--trace", "vault", "-p", &pid]).spawn();
    eventually("a hit", || std::fs::read_to_string(&file).ok().filter(|text| text.contains("pay_in")));
    watching.signal("INT");
    watching.wait().good();
    assert!(std::fs::read_to_string(&file).unwrap().contains(" hits in "));
    // So does its end.
    let watching = watch(["-o", "-", "--count-only", "vault", "-p", &pid]).spawn();
    drop(runs);
    let ran = watching.wait();
    assert!(ran.code() == 0 && ran.text().contains("vault") || ran.err.contains("no "), "{}", ran.err);
}

#[test]
fn a_process_that_executes_another_program_is_told() {
    let Some(_alone) = registers() else { return };
    let Some(Bank::Compiled(_)) = Bank::open() else { return };
    // The number of a process that becomes another program, and what is told of it.
    let told = |options: &[&str]| {
        let runs = Runs::start("becomes");
        let (file, pid) = (runs.sync_dir.path("report"), runs.pid());
        let watch = watch(["-o", file.to_str().unwrap(), "--trace"]).args(options).args(["vault", "-p", &pid]);
        let watching = watch.spawn();
        eventually("a hit", || std::fs::read_to_string(&file).ok().filter(|text| text.contains("pay_in")));
        runs.sync_dir.post("end");
        watching.wait().good();
        (pid, std::fs::read_to_string(&file).unwrap())
    };
    let not_watched = "from then on such a process is not watched";
    for (options, what) in
        [(&[][..], not_watched), (&["--later"], not_watched), (&["--across-exec"], "at the same addresses")]
    {
        let (pid, text) = told(options);
        let line = text.lines().find(|line| line.contains("executed another program")).unwrap();
        let program = format!("process {pid} executed another program, exe: ");
        assert!(line.contains(&program) && line.contains(what), "{line}");
    }
    // What was hit before was hit in the program of then.
    let (_, text) = told(&["-j", "--across-exec"]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows = objects(&lines, "row");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["where"]["function"] == "pay_in"), "{rows:#?}");
    assert!(rows.iter().all(|row| row["command"] == "bank"), "{rows:#?}");
}

#[test]
fn counting_only_is_exact() {
    let Some(_alone) = registers() else { return };
    let ran = watch_bank(&["-j", "--count-only", "vault"], "tellers").run().good();
    assert_eq!(count(&ran.json()), ALL);
    assert!(objects(&ran.json(), "row").is_empty());
}

#[test]
fn more_targets_than_registers_take_turns() {
    let Some(_alone) = registers() else { return };
    let targets: Vec<String> = (0..12).map(|index| format!("drawers+{}/8:w", index * 8)).collect();
    let runs = Runs::start("many");
    let pid = runs.pid();
    let with = |options: &[&str]| -> CommandResult {
        let words = options.iter().copied().chain(targets.iter().map(String::as_str)).chain(["-p", &pid]);
        watch(words.collect::<Vec<_>>()).run()
    };
    with(&[]).bad(125, &["no debug register is left for ", "drawers+", "12 are wanted", "--share-time"]);
    // How many there are: so many targets are watched without turns.
    let at_once = (1..targets.len()).take_while(|&most| {
        let words =
            ["--timeout", "1"].into_iter().chain(targets[..most].iter().map(String::as_str)).chain(["-p", &pid]);
        watch(words.collect::<Vec<_>>()).run().code() == 0
    });
    let registers = at_once.count() as f64;
    // Turns may be long where CPUs are slow: a longer look sees more of them.
    for timeout_ms in [600, 2_000, 6_000, 20_000, 60_000] {
        let lines = with(&["--share-time", "--timeout", &timeout_ms.to_string(), "-j"]).good().json();
        let found = objects(&lines, "target");
        assert_eq!(found.len(), 12);
        let shares: Vec<f64> = found.iter().map(|target| target["share"].as_f64().unwrap()).collect();
        // No target is said to have been watched while others had the registers.
        assert!(shares.iter().sum::<f64>() <= registers + 0.01, "{registers} registers: {shares:?}");
        for target in found {
            assert!(target["count"].is_u64() && target.get("scaled").is_none(), "time tells no number: {target}");
        }
        if shares.iter().all(|share| *share > 0.0 && *share < 1.0) {
            return;
        }
        println!("{timeout_ms} ms were not enough for a turn of each target: {shares:?}");
    }
    panic!("the turn of a target never came, or never ended");
}

/// As their first lines say: one command finds the thread and the function.
#[test]
fn the_examples_lead_to_the_culprit() {
    let Some(_alone) = registers() else { return };
    let c: &[&str] = &["-g", "-fno-omit-frame-pointer", "-pthread"];
    let rust: &[&str] = &["-g", "-C", "force-frame-pointers=yes"];
    for (compiler, arguments, source) in [("cc", c, "writer.c"), ("c++", c, "writer.cc"), ("rustc", rust, "writer.rs")]
    {
        if !program(compiler) {
            continue;
        }
        let (_dir, writer) = common::new_file("writer");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/watch").join(source);
        start(compiler, arguments).args(["-o"]).args([&writer, &path]).run().good();
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.split_once("pmux watch ")).unwrap().1;
        let target = line.split(" -- ").next().unwrap().trim().trim_matches('\'');
        let words = [OsString::from("-j"), target.into(), "--".into(), writer.into()];
        let lines = watch(words).run().good().json();
        let rows = objects(&lines, "row");
        let odd: Vec<_> = rows.iter().filter(|row| row["command"] == "teller-2").collect();
        assert!(odd.len() >= 2, "{source}: {rows:#?}");
        assert!(odd.iter().any(|row| row["hits"] == 2 && row.to_string().contains("forget")), "{source}: {odd:#?}");
    }
}
