//! `pmux watch`: who touches what, asked as a user would.
//!
//! The program that is watched is a small one in C, compiled here; and the examples.
//! Tests that take debug registers wait for each other, and for other programs of these tests, by a lock file.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Door, Ran, Start, eventually, kernel, needs, pmux, program};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// So many threads pay in, so often each; the second one forgets once.
const TELLERS: u64 = 3;
const PAYMENTS: u64 = 40;
const ALL: u64 = TELLERS * PAYMENTS + 1;

/// The program that is watched.
const BANK: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long balance;
volatile long many[16];

__attribute__((noinline)) static void pay_in(long amount) { balance = balance + amount; }
__attribute__((noinline)) static void forget(void) { balance = 0; }

static void *teller(void *argument)
{
    long number = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "teller-%ld", number);
    pthread_setname_np(pthread_self(), name);
    for (int payment = 0; payment < 40; payment++)
        pay_in(1);
    if (number == 1)
        forget();
    return NULL;
}

static int tellers(void)
{
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, teller, (void *)i);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(int count, char **words)
{
    const char *role = words[1], *file = count > 2 ? words[2] : "";
    if (!strcmp(role, "tellers"))
        return tellers();
    if (!strcmp(role, "fails")) {
        forget();
        return 3;
    }
    if (!strcmp(role, "touches"))
        return fopen(file, "w") == NULL;
    if (!strcmp(role, "forks")) {
        pay_in(1);
        if (fork() == 0) {
            pay_in(1);
            pay_in(1);
            _exit(0);
        }
        int status;
        wait(&status);
        /* The same address, in another program: not watched. */
        execl(words[0], words[0], "fails", (char *)NULL);
        return 1;
    }
    if (!strcmp(role, "writes"))
        for (; access(file, F_OK); usleep(1000))
            pay_in(1);
    if (!strcmp(role, "many"))
        while (access(file, F_OK))
            for (int i = 0; i < 16; i++)
                many[i]++;
    return 0;
}
"#;

/// The program, compiled once; `None` where that can't be done here.
fn bank() -> Option<&'static Path> {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    if !program("cc") {
        return None;
    }
    let path = MADE.get_or_init(|| {
        // Of this process: two runs at once don't write over each other's.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("watch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, path) = (folder.join("bank.c"), folder.join("bank"));
        std::fs::write(&source, BANK).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O0", "-fno-omit-frame-pointer", "-pthread", "-o"]).arg(&path).arg(&source);
        assert!(cc.status().unwrap().success());
        path
    });
    Some(path)
}

/// The registers of the machine.
struct Alone(#[allow(dead_code, reason = "held")] File);

/// Waits for the registers; `None` where there are none to be had.
fn registers() -> Option<Alone> {
    if !kernel() {
        return None;
    }
    let path = std::env::temp_dir().join("pmux-test-breakpoints.lock");
    // Another user may have made it.
    let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
    file.lock().unwrap();
    let event = pmux::Event::breakpoint(8, 8, pmux::event::Access::WRITE);
    let there = pmux::Counter::open(&pmux::Session::new().unwrap(), event, &pmux::Target::CurrentThread);
    let alone = needs("breakpoints", "a debug register that is free", there.is_ok()).then_some(Alone(file));
    alone.filter(|_| bank().is_some())
}

fn watch<A: Into<OsString>>(words: impl IntoIterator<Item = A>) -> Start {
    pmux([OsString::from("watch")].into_iter().chain(words.into_iter().map(Into::into)))
}

/// `pmux watch … -- the program in a role`.
fn watch_role(options: &[&str], role: &[&str]) -> Start {
    let words = options.iter().copied().map(OsString::from).chain(["--".into(), bank().unwrap().into()]);
    watch(words.chain(role.iter().map(OsString::from)))
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
    let ran = watch_role(&["-j", "balance"], &["tellers"]).run().good();
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
    let ran = watch_role(&["balance"], &["tellers"]).run().good();
    ran.says(&["balance (0x", "8 bytes, writes): 121 hits in ", "teller-1", "forget at bank.c:"]);
}

#[test]
fn the_exit_status_is_the_commands() {
    let Some(_alone) = registers() else { return };
    let ran = watch_role(&["balance"], &["fails"]).run();
    assert_eq!(ran.code(), 3, "{}", ran.err);
    ran.says(&["1 hit in "]);
    watch(["main", "--", "/nowhere/at/all"]).run().bad(127, &["/nowhere/at/all"]);
}

#[test]
fn what_is_not_there_is_said_before_the_command_runs() {
    let Some(_alone) = registers() else { return };
    let door = Door::new();
    let ran = door.text("ran");
    let touches = ["touches", &ran];
    watch_role(&["balanse"], &touches).run().bad(125, &["balanse", "did you mean", "balance"]);
    watch_role(&["balance/0y"], &touches).run().bad(125, &["balance/0y"]);
    watch_role(&["0x"], &touches).run().bad(125, &["0x"]);
    assert!(!door.path("ran").exists(), "the command was run");
    watch(["x"]).run().bad(125, &["whom to watch?"]);
    watch(["x", "-a", "-p", "1"]).run().bad(125, &["exclude each other"]);
    watch(["--if", "vale == 1", "x", "-a"]).run().bad(125, &["`vale` is not known of a hit", "^"]);
    watch(["0x1000", "-p", "99999999"]).run().bad(125, &["99999999"]);
    watch_role(&["0x1000"], &["fails"])
        .env("PMUX_BACKEND", "usage")
        .run()
        .bad(125, &["needs the kernel's performance events"]);
}

#[test]
fn each_hit_is_traced_or_counted_as_left_out() {
    let Some(_alone) = registers() else { return };
    let lines = watch_role(&["-j", "--trace", "--rate", "0", "balance"], &["tellers"]).run().good().json();
    let hits = objects(&lines, "hit");
    assert_eq!(hits.len() as u64, ALL);
    assert!(hits.windows(2).all(|pair| pair[0]["time"].as_f64() <= pair[1]["time"].as_f64()));
    assert!(hits.iter().all(|hit| hit["value"].is_u64() || hit["overtaken"] == true || hit["value"].is_null()));
    let lines = watch_role(&["-j", "--trace", "--rate", "7", "balance"], &["tellers"]).run().good().json();
    let printed = objects(&lines, "hit").len() as u64;
    let left_out: u64 = objects(&lines, "left_out").iter().map(|line| line["hits"].as_u64().unwrap()).sum();
    assert_eq!((printed + left_out, count(&lines)), (ALL, ALL));
    let ran = watch_role(&["--trace", "balance"], &["tellers"]).run().good();
    ran.says(&[" teller-0/", " cpu ", "\u{2190}"]);
}

#[test]
fn values_are_seen_before_and_after() {
    let Some(_alone) = registers() else { return };
    let door = Door::new();
    let end = door.text("end");
    let writes = ["writes", &end];
    let ran = watch_role(&["-j", "--trace", "--stop", "3", "--if", "changed", "balance"], &writes).run();
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
        let options: Vec<&str> = ["-j"].iter().chain(options).copied().chain(["balance"]).collect();
        let lines = watch_role(&options, &["tellers"]).run().good().json();
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
    let ran = watch_role(&["-j", "balance"], &["forks"]).run();
    assert_eq!(ran.code(), 3, "{}", ran.err);
    let lines = ran.json();
    assert_eq!(count(&lines), 3);
    let pids: std::collections::BTreeSet<String> =
        objects(&lines, "row").iter().map(|row| row["pid"].to_string()).collect();
    assert_eq!(pids.len(), 2, "{lines:#?}");
    assert!(objects(&lines, "row").iter().all(|row| row.to_string().contains("pay_in")), "{lines:#?}");
}

/// A process in a role that runs until the test ends.
struct Runs {
    child: std::process::Child,
    door: Door,
}

impl Runs {
    fn start(name: &str) -> Self {
        let door = Door::new();
        let child = Command::new(bank().unwrap()).arg(name).arg(door.path("end")).spawn().unwrap();
        Self { child, door }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.door.say("end");
        self.child.wait().unwrap();
    }
}

#[test]
fn a_process_that_runs_is_watched() {
    let Some(_alone) = registers() else { return };
    let runs = Runs::start("writes");
    let pid = runs.pid();
    let ran = watch(["-j", "--stop", "5", "balance", "-p", &pid]).run().good();
    let lines = ran.json();
    assert_eq!(objects(&lines, "target")[0]["told"], 5);
    assert!(objects(&lines, "row").iter().all(|row| row["pid"].as_u64() == pid.parse().ok()), "{lines:#?}");
    watch(["--stop", "1", "balance", "-t", &pid]).run().good().says(&["pay_in"]);
    // A signal ends it, and what was seen is told.
    let file = runs.door.path("report");
    let watching = watch(["-o", file.to_str().unwrap(), "--trace", "balance", "-p", &pid]).spawn();
    eventually("a hit", || std::fs::read_to_string(&file).ok().filter(|text| text.contains("pay_in")));
    watching.signal("INT");
    watching.wait().good();
    assert!(std::fs::read_to_string(&file).unwrap().contains(" hits in "));
    // So does its end.
    let watching = watch(["-o", "-", "--count-only", "balance", "-p", &pid]).spawn();
    drop(runs);
    let ran = watching.wait();
    assert!(ran.code() == 0 && ran.text().contains("balance") || ran.err.contains("no "), "{}", ran.err);
}

#[test]
fn counting_only_is_exact() {
    let Some(_alone) = registers() else { return };
    let ran = watch_role(&["-j", "--count-only", "balance"], &["tellers"]).run().good();
    assert_eq!(count(&ran.json()), ALL);
    assert!(objects(&ran.json(), "row").is_empty());
}

#[test]
fn more_targets_than_registers_take_turns() {
    let Some(_alone) = registers() else { return };
    let targets: Vec<String> = (0..12).map(|index| format!("many+{}/8:w", index * 8)).collect();
    let runs = Runs::start("many");
    let pid = runs.pid();
    let with = |options: &[&str]| -> Ran {
        let words = options.iter().copied().chain(targets.iter().map(String::as_str)).chain(["-p", &pid]);
        watch(words.collect::<Vec<_>>()).run()
    };
    with(&[]).bad(125, &["no debug register is left for many+", "12 are wanted", "--share-time"]);
    let lines = with(&["--share-time", "--timeout", "600", "-j"]).good().json();
    let found = objects(&lines, "target");
    assert_eq!(found.len(), 12);
    for target in found {
        let share = target["share"].as_f64().unwrap();
        assert!((0.0..1.0).contains(&share), "{target}");
        assert!(target["scaled"].is_null() || target["scaled"].as_u64() >= target["count"].as_u64(), "{target}");
    }
}

/// An example, compiled; `None` where that can't be done here.
fn example(compiler: &str, arguments: &[&str], source: &str, folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/watch").join(source);
    if !program(compiler) {
        return None;
    }
    let to = folder.join("writer");
    let status = Command::new(compiler).args(arguments).arg("-o").arg(&to).arg(&source).status().unwrap();
    assert!(status.success(), "{compiler} {}", source.display());
    Some(to)
}

/// As their first lines say: one command finds the thread and the function.
#[test]
fn the_examples_lead_to_the_culprit() {
    let Some(_alone) = registers() else { return };
    let c: &[&str] = &["-g", "-fno-omit-frame-pointer", "-pthread"];
    let rust: &[&str] = &["-g", "-C", "force-frame-pointers=yes"];
    for (compiler, arguments, source) in [("cc", c, "writer.c"), ("c++", c, "writer.cc"), ("rustc", rust, "writer.rs")]
    {
        let folder = tempfile::tempdir().unwrap();
        let Some(writer) = example(compiler, arguments, source, folder.path()) else { continue };
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/watch").join(source))
                .unwrap();
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
