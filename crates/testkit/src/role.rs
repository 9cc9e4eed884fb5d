//! The programs that are measured: the test executable itself, started with `role=…`.
//!
//! What it is: each executable of tests has one test called `role`, which calls [`play_if_asked`]. The harness of a program in a role
//! runs that test alone, in a second thread, and it does as the role says.
//!
//! Touched pages are those of a variable with a value other than zero, so they belong to a private mapping of the executable: the first
//! write to each is one page fault, also where huge pages are on, and also in a page that was read before.
//!
//! **Invariant:** without `role=` it does nothing, so it passes as a test.

use crate::{SyncDir, reaper};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes between two writes: the smallest page of any machine that Linux runs on.
const PAGE: usize = 4096;
/// How many threads a process in a role has: the harness's first one waits for the one that plays.
pub const THREADS: usize = 2;
/// How many pages there are to touch.
pub const PAGES: usize = 2048;

/// Pages that they share with nothing else.
#[repr(align(4096))]
struct Data([AtomicU8; PAGES * PAGE]);

static DATA: Data = Data([const { AtomicU8::new(1) }; PAGES * PAGE]);

/// Writes to pages that nothing else of this process writes to.
pub fn touch(first: usize, pages: usize) {
    for page in first..first + pages {
        // Its value is never used: a compiler could leave the write out.
        std::hint::black_box(&DATA.0[page * PAGE]).store(2, Ordering::Relaxed);
    }
}

/// Reads such pages, so that none has to come from the disk when it is written to: that would be a major fault.
pub fn look_at(first: usize, pages: usize) {
    for page in first..first + pages {
        std::hint::black_box(DATA.0[page * PAGE].load(Ordering::Relaxed));
    }
}

/// Whether a page of this machine is as large as [`touch`] takes it to be.
pub fn pages_are_small() -> bool {
    let size = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    size.lines().find_map(|line| line.strip_prefix("KernelPageSize:")).is_some_and(|size| size.trim() == "4 kB")
}

/// Copies this executable to where other users may execute it.
pub fn copy(to: &Path) {
    crate::copy_of(std::env::current_exe().unwrap(), to);
}

/// The words that start this executable in a role.
pub fn words(role: &str) -> Vec<OsString> {
    of(&std::env::current_exe().unwrap(), role)
}

/// The words that start a copy of this executable in a role.
pub fn of(program: &Path, role: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![program.into()];
    words.extend(["role", "--exact", "--nocapture", "--test-threads=1"].map(OsString::from));
    words.push(format!("role={role}").into());
    words
}

/// This executable, about to be started in a role. It ends with the tests at the latest ([`crate::marked`]).
pub fn command(role: &str) -> Command {
    command_of(&std::env::current_exe().unwrap(), role)
}

/// The same of a copy of this executable.
pub fn command_of(program: &Path, role: &str) -> Command {
    let mut command = unmarked(program, role);
    // What a role starts has its mark, and a reaper would be one more process of those that are counted.
    if !std::env::args().any(|word| word.starts_with("role=")) {
        reaper::marked(&mut command);
    }
    command
}

/// As [`command_of`], for what outlives the tests.
pub(crate) fn unmarked(program: &Path, role: &str) -> Command {
    let mut command = Command::new(program);
    command.args(&of(program, role)[1..]);
    command
}

/// [`words`] for a shell: one line.
pub fn line(role: &str) -> String {
    words(role).iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

/// The same without what the harness prints.
pub fn quiet_line(role: &str) -> String {
    format!("{} >/dev/null", line(role))
}

/// The part of a role behind its name, as numbers.
fn numbers(arguments: &str) -> Vec<usize> {
    arguments.split(',').filter_map(|number| number.parse().ok()).collect()
}

/// The whole of the test `role`: does what `role=NAME:ARGUMENTS` on the command line says, and ends the process. `others` plays the
/// roles that are not of this module; it gets the name and the arguments.
pub fn play_if_asked(others: impl FnOnce(&str, &str)) {
    let Some(role) = std::env::args().find_map(|word| word.strip_prefix("role=").map(str::to_owned)) else { return };
    let (name, arguments) = role.split_once(':').unwrap_or((&role, ""));
    if !play(name, arguments) {
        others(name, arguments);
    }
    // Before the harness writes its summary.
    std::process::exit(0);
}

/// `false` where the role is not of this module.
fn play(name: &str, arguments: &str) -> bool {
    match name {
        // reaper:HARNESS
        "reaper" => reaper::play(arguments),
        // touch:PAGES
        "touch" => touch(0, numbers(arguments)[0]),
        // tree:DEPTH,CHILDREN,PAGES, each child with PAGES more than its parent
        "tree" => {
            let [depth, children, pages] = numbers(arguments)[..] else { panic!("{arguments}") };
            touch(0, pages);
            if depth > 0 {
                let below = format!("tree:{},{children},{}", depth - 1, pages + 100);
                let started: Vec<_> = (0..children).map(|_| command(&below).spawn().unwrap()).collect();
                started.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
            }
        }
        // threads:COUNT,PAGES, all alive at once
        "threads" => {
            let [count, pages] = numbers(arguments)[..] else { panic!("{arguments}") };
            let together = std::sync::Barrier::new(count);
            std::thread::scope(|scope| {
                for thread in 0..count {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        touch(thread * pages, pages);
                    });
                }
            });
        }
        // thread-exec:PAGES, by a thread that isn't the first
        "thread-exec" => {
            let mut program = command(&format!("touch:{arguments}"));
            let thread = std::thread::spawn(move || panic!("{}", program.exec()));
            let _ = thread.join();
            panic!("exec replaces all threads");
        }
        // named:NAME,PAGES: a second thread with this name
        "named" => {
            let (thread, pages) = arguments.split_once(',').unwrap();
            let pages = numbers(pages)[0];
            std::thread::Builder::new().name(thread.to_owned()).spawn(move || touch(0, pages)).unwrap().join().unwrap();
        }
        // named-behind:NAME,DOOR: a second thread with this name, until told to leave
        "named-behind" => {
            let (name, sync_dir) = arguments.split_once(',').unwrap();
            let sync_dir = SyncDir::at(sync_dir);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || behind(&sync_dir, 100));
            thread.unwrap().join().unwrap();
        }
        // killed:PAGES, by itself
        "killed" => {
            touch(0, numbers(arguments)[0]);
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-9", &pid]).status().unwrap();
            panic!("no process survives that");
        }
        // behind:PAGES,DOOR: touches when the door is opened, and says so on it
        "behind" => {
            let (pages, sync_dir) = arguments.split_once(',').unwrap();
            behind(&SyncDir::at(sync_dir), numbers(pages)[0]);
        }
        // later-threads:PAGES,DOOR: two threads now, two more with PAGES each when the door is opened
        "later-threads" => {
            let (pages, sync_dir) = arguments.split_once(',').unwrap();
            let (pages, sync_dir) = (numbers(pages)[0], SyncDir::at(sync_dir));
            std::thread::scope(|scope| {
                let waiting = &sync_dir;
                scope.spawn(|| waiting.wait_for("go"));
                sync_dir.arrive();
                sync_dir.wait_for("go");
                let threads = [0, 1].map(|thread| scope.spawn(move || touch(thread * pages, pages)));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                sync_dir.post("done");
                sync_dir.wait_for("leave");
            });
        }
        _ => return false,
    }
    true
}

fn behind(sync_dir: &SyncDir, pages: usize) {
    // A test that counts its page faults may begin between two of these, and the first one has some.
    sync_dir.look(&["go"]);
    sync_dir.arrive();
    sync_dir.wait_for("go");
    touch(0, pages);
    sync_dir.post("done");
    sync_dir.wait_for("leave");
}
