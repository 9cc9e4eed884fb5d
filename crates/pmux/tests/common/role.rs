//! The programs that are counted: this test binary itself, started with `role=…`.
//!
//! What it is: the test harness runs the one test [`role`], in a second thread, and that does as the role says.
//!
//! Touched pages are those of a variable with a value other than zero, so they belong to a private mapping of the
//! executable: the first write to each is one page fault, also where huge pages are on, and also in
//! a page that was read before.
//!
//! **Invariant:** without `role=` it does nothing, so it passes as a test.

use super::files::Door;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
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

/// Writes to pages that nobody has written to.
pub fn touch(first: usize, pages: usize) {
    for page in first..first + pages {
        // Nobody reads it: a compiler could leave the write out.
        std::hint::black_box(&DATA.0[page * PAGE]).store(2, Ordering::Relaxed);
    }
}

/// Whether a page of this machine is as large as [`touch`] takes it to be.
pub fn pages_are_small() -> bool {
    let size = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    size.lines().find_map(|line| line.strip_prefix("KernelPageSize:")).is_some_and(|size| size.trim() == "4 kB")
}

/// The words that start this binary in a role.
pub fn words(role: &str) -> Vec<OsString> {
    of(&std::env::current_exe().unwrap(), role)
}

/// The words that start a copy of this binary in a role.
pub fn of(program: &Path, role: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![program.into()];
    words.extend(["common::role::role", "--exact", "--nocapture", "--test-threads=1"].map(OsString::from));
    words.push(format!("role={role}").into());
    words
}

/// The same for a shell: one line.
pub fn line(role: &str) -> String {
    words(role).iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect::<Vec<_>>().join(" ")
}

fn start(role: &str) -> Child {
    let words = words(role);
    Command::new(&words[0]).args(&words[1..]).spawn().unwrap()
}

/// Runs a role to its end in another process, which must succeed.
pub fn run(role: &str) {
    let status = start(role).wait().unwrap();
    assert!(status.success(), "{role}: {status}");
}

/// The part of a role behind its name, as numbers.
fn numbers(arguments: &str) -> Vec<usize> {
    arguments.split(',').filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn role() {
    let Some(role) = std::env::args().find_map(|word| word.strip_prefix("role=").map(str::to_owned)) else { return };
    play(&role);
    // Before the harness writes its summary.
    std::process::exit(0);
}

fn play(role: &str) {
    let (name, arguments) = role.split_once(':').unwrap_or((role, ""));
    match name {
        // touch:PAGES
        "touch" => touch(0, numbers(arguments)[0]),
        // tree:DEPTH,CHILDREN,PAGES, each child with PAGES more than its parent
        "tree" => {
            let [depth, children, pages] = numbers(arguments)[..] else { panic!("{role}") };
            touch(0, pages);
            if depth > 0 {
                let below = format!("tree:{},{children},{}", depth - 1, pages + 100);
                let started: Vec<_> = (0..children).map(|_| start(&below)).collect();
                started.into_iter().for_each(|mut child| assert!(child.wait().unwrap().success()));
            }
        }
        // threads:COUNT,PAGES, all alive at once
        "threads" => {
            let [count, pages] = numbers(arguments)[..] else { panic!("{role}") };
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
            let thread = std::thread::spawn({
                let words = words(&format!("touch:{arguments}"));
                move || panic!("{}", Command::new(&words[0]).args(&words[1..]).exec())
            });
            let _ = thread.join();
            panic!("exec replaces all threads");
        }
        // named:NAME,PAGES
        "named" => {
            let (thread, pages) = arguments.split_once(',').unwrap();
            let pages = numbers(pages)[0];
            std::thread::Builder::new().name(thread.to_owned()).spawn(move || touch(0, pages)).unwrap().join().unwrap();
        }
        // killed:PAGES, by itself
        "killed" => {
            touch(0, numbers(arguments)[0]);
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-9", &pid]).status().unwrap();
            panic!("nobody survives that");
        }
        // behind:PAGES,DOOR: touches when the door is opened, and says so on it
        "behind" => {
            let (pages, door) = arguments.split_once(',').unwrap();
            let door = Door::at(door);
            door.arrive();
            door.wait_for("go");
            touch(0, numbers(pages)[0]);
            door.say("done");
            door.wait_for("leave");
        }
        // later-threads:PAGES,DOOR: two threads now, two more with PAGES each when the door is opened
        "later-threads" => {
            let (pages, door) = arguments.split_once(',').unwrap();
            let (pages, door) = (numbers(pages)[0], Door::at(door));
            std::thread::scope(|scope| {
                let waiting = &door;
                scope.spawn(|| waiting.wait_for("go"));
                door.arrive();
                door.wait_for("go");
                let threads = [0, 1].map(|thread| scope.spawn(move || touch(thread * pages, pages)));
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                door.say("done");
                door.wait_for("leave");
            });
        }
        _ => crate::role(name, arguments),
    }
}
