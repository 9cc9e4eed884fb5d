//! The programs that are measured: the test binary itself, started with `role=…`.
//!
//! What it is: the test harness runs the one test [`role`], in its main thread, and that does as the role says.
//!
//! Touched pages are those of a variable with a value other than zero, so they belong to a private mapping of the
//! executable: the first write to each is one page fault, also where huge pages are on.
//!
//! **Invariant:** without `role=` it does nothing, so it passes as a test.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Bytes between two writes: the smallest page of any machine that Linux runs on.
const PAGE: usize = 4096;
/// How many pages there are to touch.
pub const PAGES: usize = 2048;

static DATA: [AtomicU8; (PAGES + 1) * PAGE] = [const { AtomicU8::new(1) }; (PAGES + 1) * PAGE];

fn touch(first: usize, pages: usize) {
    for page in first..first + pages {
        // Not the very first: it may share its page with other data. Nobody reads it: a compiler could leave the write out.
        std::hint::black_box(&DATA[(page + 1) * PAGE]).store(2, Ordering::Relaxed);
    }
}

/// As [`touch`], for a test that is counted itself.
pub fn touch_page(first: usize, pages: usize) {
    touch(first, pages);
}

/// Copies this binary to where others may execute it.
pub fn copy(to: &Path) {
    // By another process: one that a test of another thread forks meanwhile would inherit the file as it is written.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(to).status().unwrap().success());
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
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

/// The same for a shell: one line. What the harness says is kept out of the way.
pub fn line(role: &str) -> String {
    let words: Vec<String> = words(role).iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    format!("{} >/dev/null", words.join(" "))
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
    let numbers: Vec<usize> = arguments.split(',').filter_map(|number| number.parse().ok()).collect();
    match name {
        // touch:PAGES
        "touch" => touch(0, numbers[0]),
        // threads:COUNT,PAGES, all alive at once
        "threads" => {
            let (count, pages) = (numbers[0], numbers[1]);
            let together = Barrier::new(count);
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
        // killed:PAGES, by itself
        "killed" => {
            touch(0, numbers[0]);
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-9", &pid]).status().unwrap();
            panic!("nobody survives that");
        }
        // behind:PAGES,DOOR: touches when told to, and leaves when told to
        "behind" => {
            let (pages, door) = arguments.split_once(',').unwrap();
            let door = Path::new(door);
            std::fs::write(door.join("here"), format!("{}\n", std::process::id())).unwrap();
            wait_for(door, "go");
            touch(0, pages.parse().unwrap());
            std::fs::write(door.join("done"), "\n").unwrap();
            wait_for(door, "leave");
        }
        // named:NAME,DOOR: a second thread with this name, until told to leave
        "named" => {
            let (name, door) = arguments.split_once(',').unwrap();
            let door = Path::new(door).to_owned();
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                std::fs::write(door.join("here"), format!("{}\n", std::process::id())).unwrap();
                wait_for(&door, "go");
                touch(0, 100);
                std::fs::write(door.join("done"), "\n").unwrap();
                wait_for(&door, "leave");
            });
            thread.unwrap().join().unwrap();
        }
        // renames:COUNT, itself: each name is one call of write(2)
        "renames" => {
            let mut name = std::fs::OpenOptions::new().write(true).open("/proc/thread-self/comm").unwrap();
            for index in 0..numbers[0] {
                name.write_all(format!("name-{index}").as_bytes()).unwrap();
            }
        }
        // crowd:COUNT,DOOR: so many threads, which when told to touch pages, start another one each, and end; until then the first
        // one touches a page now and then
        "crowd" => {
            let (count, door) = arguments.split_once(',').unwrap();
            let (count, door) = (count.parse::<usize>().unwrap(), Path::new(door));
            let together = Barrier::new(count + 1);
            std::thread::scope(|scope| {
                for thread in 0..count {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        wait_for(door, "go");
                        touch(thread * 20, 10);
                        std::thread::spawn(move || touch(thread * 20 + 10, 10)).join().unwrap();
                    });
                }
                together.wait();
                std::fs::write(door.join("here"), format!("{}\n", std::process::id())).unwrap();
                // Whoever records the process sees when it does.
                while !door.join("go").exists() {
                    // Pages that were never touched: kept, or they would be given again.
                    std::mem::forget(std::hint::black_box(vec![1_u8; 4 * PAGE]));
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        // successors:PAGES,DOOR: one thread after the other, each started by the one before it, until told to leave; when told to, one of
        // them touches pages
        "successors" => {
            let (pages, door) = arguments.split_once(',').unwrap();
            let door = Path::new(door).to_owned();
            succeed(door.clone(), pages.parse().unwrap());
            std::fs::write(door.join("here"), format!("{}\n", std::process::id())).unwrap();
            wait_for(&door, "leave");
        }
        // bank:DEED or bank:DEED,FILE
        "bank" => {
            let (deed, file) = arguments.split_once(',').unwrap_or((arguments, ""));
            super::bank::play(deed, Path::new(file));
        }
        // holds-events:COUNT,SOCKET,DOOR: has events open through a service until it is killed
        "holds-events" => {
            let [count, socket, door] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else { panic!("{role}") };
            let mut asker = super::service::Asker::connect(Path::new(socket));
            asker.greet();
            for _ in 0..count.parse().unwrap() {
                asker.open(super::service::on_task(std::process::id().cast_signed(), &[super::service::faults()]));
            }
            std::fs::write(Path::new(door).join("here"), "\n").unwrap();
            asker.until_the_end();
        }
        // compares:SOCKET,TASK...: what the kernel says and what a service says
        "compares" => super::service::compares(arguments),
        // counts-cpus:SOCKET
        "counts-cpus" => super::service::counts_cpus(arguments),
        // asks-status:SOCKET
        "asks-status" => {
            let mut asker = super::service::Asker::connect(Path::new(arguments));
            asker.greet();
            eprintln!("status {}", asker.status());
        }
        // sends-files:SOCKET
        "sends-files" => super::hostile::sends_files(arguments),
        // takes-all:SOCKET,DOOR
        "takes-all" => super::hostile::takes_all(arguments),
        // leaves-tracepoints:SOCKET,FILE
        "leaves-tracepoints" => super::hostile::leaves_tracepoints(arguments),
        // subscribes:THREAD,SOCKET,DOOR
        "subscribes" => super::records::subscribes(arguments),
        // asks-for-records:SOCKET,THREAD
        "asks-for-records" => super::records::asks_for_records(arguments),
        // mixture:NAME,SEED,SOCKET,SETUID
        "mixture" => super::mixture::play(arguments),
        // races-exec:SOCKET,HELPER,ROUNDS
        "races-exec" => super::attacks::races_exec(arguments),
        // samples-stacks:SOCKET,PROGRAM,WANTED
        "samples-stacks" => super::attacks::samples_stacks(arguments),
        // reuses-a-number:PROGRAM
        "reuses-a-number" => super::attacks::reuses_a_number(arguments),
        // leaves-its-connection:SOCKET,DOOR,PROGRAM
        "leaves-its-connection" => super::attacks::leaves_its_connection(arguments),
        // asks-on-stdin:TASK or asks-on-stdin:TASK,DOOR
        "asks-on-stdin" => super::attacks::asks_on_stdin(arguments),
        // connects-then-becomes:SOCKET,PROGRAM,USER
        "connects-then-becomes" => super::attacks::connects_then_becomes(arguments),
        // holds-a-cpu:SOCKET,DOOR
        "holds-a-cpu" => super::attacks::holds_a_cpu(arguments),
        _ => panic!("there is no role {role}"),
    }
}

/// A thread that starts its successor and ends.
fn succeed(door: std::path::PathBuf, pages: usize) {
    std::thread::spawn(move || {
        if door.join("go").exists() && !door.join("done").exists() {
            touch(0, pages);
            std::fs::write(door.join("done"), "\n").unwrap();
        }
        if !door.join("leave").exists() && door.exists() {
            succeed(door, pages);
        }
    });
}

/// Waits for a file. A folder that is gone means that the test has failed.
pub fn wait_for(folder: &Path, name: &str) {
    while !folder.join(name).exists() {
        if !folder.exists() {
            std::process::exit(3);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
