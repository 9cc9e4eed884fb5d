//! Names of functions when the files of a recording are somewhere else, are others by now, or are gone.

use crate::common;
use crate::common::{CommandResult, Start, SyncDir, is_installed, kernel, needs, pmux, root, skip_unless, start};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "
volatile unsigned long sink;
__attribute__((noinline)) void deep(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * i; }
int main(int argc, char **argv) { (void)argv; for (int i = 0; i < 40 || argc > 1; i++) deep(4000000); return 0; }
";

/// Builds the program; `None` where there is no compiler.
fn build(sync_dir: &SyncDir, flags: &[&str]) -> Option<PathBuf> {
    if !needs("cc", "a C compiler", is_installed("cc")) {
        return None;
    }
    let (source, file) = (sync_dir.path("it.c"), sync_dir.path("it"));
    std::fs::write(&source, PROGRAM).unwrap();
    start("cc", ["-g", "-o"]).args([&file, &source]).args(flags).run().good();
    Some(file)
}

fn record(sync_dir: &SyncDir, command: &[&Path]) -> PathBuf {
    let file = sync_dir.path("it.data");
    pmux(["record", "-q", "-e", "cpu-clock:u", "-F", "500", "-o"])
        .args([&file])
        .args(["--"])
        .args(command)
        .run()
        .good();
    file
}

/// What the table says of symbols.
fn table(file: &Path, options: &[&str]) -> CommandResult {
    reading(file, options).run().good()
}

fn reading(file: &Path, options: &[&str]) -> Start {
    pmux(["report", "--stdio", "--sort", "symbol", "-i"]).args([file]).args(options)
}

fn has_names(ran: &CommandResult) -> bool {
    ran.text().lines().any(|line| line.ends_with("[.] deep"))
}

#[test]
fn files_are_found_below_another_root_and_known_from_before() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let Some(program) = build(&sync_dir, &["-O1"]) else { return };
    let file = record(&sync_dir, &[&program]);
    let root = sync_dir.path("root");
    let moved = root.join(program.strip_prefix("/").unwrap());
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(&program, &moved).unwrap();
    let gone = table(&file, &["--no-cache"]).says(&["it is not there: its functions have no names"]);
    assert!(!has_names(&gone));
    let elsewhere = table(&file, &["--no-cache", "--symfs", root.to_str().unwrap()]);
    assert!(has_names(&elsewhere), "{}", elsewhere.text());
    // Another build in its place is not taken, and that is said.
    build(&sync_dir, &["-O0"]).unwrap();
    let other = table(&file, &["--no-cache"]).says(&["it has changed since it was recorded", "build id"]);
    assert!(!has_names(&other));
    // What was found out once is known, whatever became of the file.
    std::fs::rename(&moved, &program).unwrap();
    assert!(has_names(&table(&file, &[])));
    std::fs::remove_file(&program).unwrap();
    let kept = table(&file, &[]).never_says(&["not there"]);
    assert!(has_names(&kept), "{}", kept.text());
    assert!(!has_names(&table(&file, &["--no-cache"])));
}

#[test]
fn what_a_container_has_mounted_is_read_while_it_runs() {
    skip_unless!(root() && common::program("unshare"));
    let sync_dir = SyncDir::new();
    let Some(program) = build(&sync_dir, &["-O1"]) else { return };
    let hidden = sync_dir.path("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let folder = hidden.display();
    let inside = format!("mount -t tmpfs none {folder} && cp {} {folder}/it && exec {folder}/it on", program.display());
    let running = start("unshare", ["-m", "sh", "-c", &inside]).spawn();
    let exe = format!("/proc/{}/exe", running.pid());
    common::eventually("the program", || std::fs::read_link(&exe).ok().filter(|exe| *exe == hidden.join("it")));
    let (file, pid) = (sync_dir.path("it.data"), running.pid().to_string());
    let recorder = pmux(["record", "-q", "-e", "cpu-clock:u", "-F", "500", "-p", &pid, "-o"]).args([&file]);
    recorder.args(["--", "sleep", "0.5"]).run().good();
    let while_it_runs = table(&file, &["--no-cache"]);
    assert!(has_names(&while_it_runs), "{}{}", while_it_runs.text(), while_it_runs.err);
    drop(running);
    // No process is left that has it mounted: that it is missing is said.
    assert!(!has_names(&table(&file, &["--no-cache"]).says(&["it is not there"])));
}
