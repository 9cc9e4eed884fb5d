//! Call chains of programs without frame pointers: recorded as pieces of the stack, found out when they are read.

use crate::common::stolen::Stolen;
use crate::common::{
    PMUX, SyncDir, cc, kernel, linux_is_at_least, needs, new_file, perf, pmux, program, skip_unless, start,
};
use crate::off_cpu::{compiled_with, hanging, report, sees_waits, unseen_ns, waits};
use std::path::{Path, PathBuf};

/// Sorts with a function that calls others, one of which needs a frame of a size that is known only at run time; does the same in a
/// signal handler, in a second thread.
const PROGRAM: &str = r"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
volatile unsigned long sink;
APART void spin(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * i; }
APART void leaf(unsigned long n) { char room[64]; memset(room, (int)n, sizeof room); sink += room[3]; spin(n); sink++; }
APART void middle(unsigned long n) {
    char *room = __builtin_alloca(n % 7 * 16 + 16);
    memset(room, 1, 16);
    sink += room[5];
    leaf(n);
    sink++;
}
APART int compare(const void *a, const void *b) { middle(20000); sink++; return *(const int *)a - *(const int *)b; }
APART void outer(void) {
    int v[64];
    for (int i = 0; i < 64; i++) v[i] = i * 37 % 64;
    qsort(v, 64, sizeof *v, compare);
    sink += v[0];
}
APART void handler(int signal) { (void)signal; outer(); sink++; }
APART void raiser(void) { syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1); sink++; }
APART void *second(void *p) { for (int i = 0; i < 8; i++) { raiser(); sink++; } return p; }
int main(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, 0);
    for (int i = 0; i < 16; i++) outer();
    pthread_t thread;
    pthread_create(&thread, 0, second, 0);
    pthread_join(thread, 0);
    return 0;
}
";

/// The program in a new folder, built without frame pointers, and a file beside it.
fn built() -> (SyncDir, PathBuf, PathBuf) {
    let (sync_dir, file) = new_file("it.data");
    let program = cc(sync_dir.path(""), "deep", PROGRAM, &["-O2", "-g", "-fomit-frame-pointer", "-pthread"]);
    (sync_dir, program, file)
}

/// The chains of a script, each from the innermost function on: what stands between two columns of spaces.
fn chains<T>(script: &str, column: impl Fn(&str) -> T) -> Vec<Vec<T>> {
    let samples = script.split("\n\n").filter(|sample| !sample.trim().is_empty());
    samples.map(|sample| sample.lines().filter(|line| line.starts_with('\t')).map(&column).collect()).collect()
}

/// The function of a line, without its offset.
fn function(line: &str) -> String {
    let name = line.split_whitespace().nth(1).unwrap_or_default();
    name.split('+').next().unwrap_or_default().to_owned()
}

/// The address of a line.
fn address(line: &str) -> u64 {
    u64::from_str_radix(line.split_whitespace().next().unwrap_or_default(), 16).unwrap()
}

fn script(file: &Path) -> String {
    pmux(["script", "--no-inline", "-i"]).args([file]).run().good().text()
}

#[test]
fn chains_without_frame_pointers_are_those_of_the_program() {
    skip_unless!(kernel() && program("cc"));
    let (_dir, program, file) = built();
    let record = pmux(["record", "-q", "-e", "cpu-clock:u", "-F", "2000", "--call-graph", "dwarf", "-o"]);
    record.args([&file, &program]).run().good();
    let all = chains(&script(&file), function);
    let deep: Vec<&Vec<String>> = all.iter().filter(|chain| chain[0] == "spin").collect();
    assert!(deep.len() > 20, "{} of {} samples", deep.len(), all.len());
    for chain in &deep {
        assert_eq!(chain[..4], ["spin", "leaf", "middle", "compare"], "{chain:?}");
        let behind = |name: &str| chain.iter().position(|function| function == name);
        let outer = behind("outer").unwrap_or_else(|| panic!("{chain:?}"));
        match behind("second") {
            Some(second) => {
                assert_eq!(chain[outer + 1], "handler", "{chain:?}");
                // Between them is the way out of the handler, and the system call that was interrupted.
                assert!(behind("raiser").unwrap() + 1 == second && second > outer + 3, "{chain:?}");
            }
            None => assert_eq!(chain[outer + 1], "main", "{chain:?}"),
        }
    }
    assert!(deep.iter().any(|chain| chain.iter().any(|function| function == "second")));
    let table = pmux(["report", "--stdio", "--sort", "symbol", "-g", "none", "-i"]).args([&file]).run().good();
    assert!(table.text().lines().any(|line| line.ends_with("[.] outer")), "{}", table.text());
}

#[test]
fn what_perf_recorded_has_the_chains_that_perf_finds() {
    skip_unless!(kernel() && perf() && program("cc"));
    let (_dir, program, file) = built();
    let words = ["record", "-q", "-e", "cpu-clock:u", "-F", "2000", "--call-graph", "dwarf", "-o"];
    // All is bound when it starts: what binds a function at its first call (`_dl_runtime_resolve` of glibc) keeps its frame in `rbx`,
    // which `framehop` does not follow. A chain that meets it is counted among those that could not be followed.
    start("perf", words).args([&file, &program]).env("LD_BIND_NOW", "1").run().good();
    let ours = chains(&script(&file), address);
    let theirs = start("perf", ["script", "--no-inline", "-i"]).args([&file]).run().good().text();
    let theirs = chains(&theirs, address);
    assert_eq!(ours.len(), theirs.len());
    let (mut same, mut compared) = (0, 0);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // What returns from a signal handler it takes for a call, and so shows the byte before it; there it may end, too.
        let common = ours.iter().zip(theirs).take_while(|(a, b)| a.abs_diff(**b) <= 1).count();
        assert_eq!(common, theirs.len(), "{ours:x?}\n{theirs:x?}");
        compared += 1;
        same += u32::from(ours.len() == theirs.len());
    }
    println!("{same} of {compared} chains are as long as perf's");
    assert!(same * 2 > compared);
}

#[test]
fn what_is_missing_is_said() {
    skip_unless!(kernel() && program("cc"));
    let (sync_dir, program, file) = built();
    let short = ["record", "-q", "-e", "cpu-clock:u", "-F", "2000", "--call-graph", "dwarf,256", "-o"];
    pmux(short).args([&file, &program]).run().good();
    let report = |cache: &str, says: &[&str]| {
        let start = pmux(["report", "--stdio", "-i"]).args([&file]).env("XDG_CACHE_HOME", sync_dir.path(cache));
        // Not that in which a `perf record` beside leaves copies of programs.
        start.env("HOME", sync_dir.path("")).run().good().says(says)
    };
    report("a", &["call chains end too early", "--call-graph dwarf,BYTES"]);
    // Another build of the same name: its tables would lead astray.
    cc(sync_dir.path(""), "deep", &PROGRAM.replace("n % 7 * 16", "n % 5 * 64"), &["-O1", "-pthread"]);
    report("b", &["deep has changed since it was recorded", "its functions have no names"]);
    std::fs::remove_file(&program).unwrap();
    report("c", &["deep is not there", "its functions have no names", "frame pointers"]);
    // What was found out when it was there is known by its build id.
    let kept = report("a", &["frame pointers"]).never_says(&["no names"]);
    assert!(kept.text().contains("[.] spin"), "{}", kept.text());
}

/// Without frame pointers, callers are found in the copies of stacks; locks and who ends waits are known as ever.
#[test]
fn stacks_of_waits_are_copied() {
    skip_unless!(sees_waits() && needs("bpf", "Linux 5.15", linux_is_at_least(5, 15)));
    let Some((sync_dir, example, file)) = compiled_with("-fomit-frame-pointer", "w.data") else { return };
    let copied = ["--call-graph", "dwarf", "-m", "32M", "-o"];
    let before = Stolen::now();
    let mut words = pmux(["record", "--off-cpu"]).args(copied).args([&file, Path::new("--"), &example]);
    words.command.current_dir(sync_dir.path(""));
    let ran = words.run().good();
    let unseen = before.since_ns() + unseen_ns(&ran);
    let told = report(&file, &["--wall", "-s", "symbol"]);
    let rows = told["events"][0]["rows"].as_array().unwrap();
    let below = |symbol: &str| {
        let row = rows.iter().find(|row| row["symbol"] == symbol);
        row.map_or(0, |row| row["children"]["period"].as_u64().unwrap()) + unseen
    };
    let (nap, lock) = (below("nap"), below("wait_for_lock"));
    assert!(nap >= 239_000_000 && lock >= 239_000_000 && below("main") >= nap + lock - unseen, "{told}");
    assert!(below("holder") >= 249_000_000, "{told}");
    let locks = report(&file, &["--locks"]);
    assert_eq!(locks["locks"][0]["symbol"], "lock", "{locks}");
    // The one who unlocks is called by the function of its thread.
    let wakers = pmux(["report", "--wakers", "-i"]).args([&file]).run().good().text();
    assert!(wakers.contains("holder: holder"), "{wakers}");
    // Of what hangs since before, the function that has entered the kernel.
    let hangs = hanging(&example);
    let hung = pmux(["record", "--off-cpu", "-p", &hangs.pid().to_string()]).args(copied).args([&file]);
    hung.args(["--", "sleep", "0.1"]).run().good();
    let told = report(&file, &["--wall", "-s", "symbol"]);
    assert!(told.to_string().contains("\"symbol\":\"read\""), "{told}");
    // Where events see waits, they are found as without copies.
    skip_unless!(program("setpriv"));
    let rights =
        ["--bounding-set=-sys_admin,-bpf,-setpcap", "--inh-caps=-sys_admin,-bpf", PMUX, "record", "--off-cpu=0"];
    let events = start("setpriv", rights).args(copied).args([&file]).args(["--", "sleep", "0.1"]).run().good();
    assert!(events.err.contains("their stacks are found by frame pointers"), "{}", events.err);
    let slept = waits(&file)["sleep"]["[sleep]"];
    assert!(slept >= 90_000_000, "{slept}");
}
