//! Names of functions when the files of a recording are somewhere else, are others by now, or are gone.

use crate::common::{CommandResult, cc, eventually, kernel, new_file, pmux, program, root, skip_unless, start};
use std::ffi::OsStr;
use std::path::Path;

const PROGRAM: &str = "
volatile unsigned long sink;
__attribute__((noinline)) void deep(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * i; }
int main(int argc, char **argv) { (void)argv; for (int i = 0; i < 40 || argc > 1; i++) deep(4000000); return 0; }
";

/// Records the clock with these words behind the file.
fn record<A: AsRef<OsStr>>(file: &Path, words: impl IntoIterator<Item = A>) {
    pmux(["record", "-q", "-e", "cpu-clock:u", "-F", "500", "-o"]).args([file]).args(words).run().good();
}

/// What the table says of symbols.
/// With a home of its own: a `perf record -a` that runs beside puts a copy of each program that it met into `~/.debug`.
fn table(file: &Path, options: &[&str]) -> CommandResult {
    let table = pmux(["report", "--stdio", "--sort", "symbol", "-i"]).env("HOME", file.parent().unwrap());
    table.args([file]).args(options).run().good()
}

fn has_names(ran: &CommandResult) -> bool {
    ran.text().lines().any(|line| line.ends_with("[.] deep"))
}

#[test]
fn files_are_found_below_another_root_and_known_from_before() {
    skip_unless!(kernel() && program("cc"));
    let (sync_dir, file) = new_file("it.data");
    let program = cc(sync_dir.path(""), "it", PROGRAM, &["-g", "-O1"]);
    record(&file, [Path::new("--"), &program]);
    let root = sync_dir.path("root");
    let moved = root.join(program.strip_prefix("/").unwrap());
    std::fs::create_dir_all(moved.parent().unwrap()).unwrap();
    std::fs::rename(&program, &moved).unwrap();
    let gone = table(&file, &["--no-cache"]).says(&["it is not there: its functions have no names"]);
    assert!(!has_names(&gone));
    let elsewhere = table(&file, &["--no-cache", "--symfs", root.to_str().unwrap()]);
    assert!(has_names(&elsewhere), "{}", elsewhere.text());
    // Another build in its place is not taken, and that is said.
    cc(sync_dir.path(""), "it", PROGRAM, &["-g", "-O0"]);
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
    skip_unless!(root() && program("unshare") && program("cc"));
    let (sync_dir, file) = new_file("it.data");
    let program = cc(sync_dir.path(""), "it", PROGRAM, &["-g", "-O1"]);
    let hidden = sync_dir.path("hidden");
    std::fs::create_dir(&hidden).unwrap();
    let folder = hidden.display();
    let inside = format!("mount -t tmpfs none {folder} && cp {} {folder}/it && exec {folder}/it on", program.display());
    let running = start("unshare", ["-m", "sh", "-c", &inside]).spawn();
    let exe = format!("/proc/{}/exe", running.pid());
    eventually("the program", || std::fs::read_link(&exe).ok().filter(|exe| *exe == hidden.join("it")));
    record(&file, ["-p", &running.pid().to_string(), "--", "sleep", "0.5"]);
    let while_it_runs = table(&file, &["--no-cache"]);
    assert!(has_names(&while_it_runs), "{}{}", while_it_runs.text(), while_it_runs.err);
    drop(running);
    // No process is left that has it mounted: that it is missing is said.
    assert!(!has_names(&table(&file, &["--no-cache"]).says(&["it is not there"])));
}
