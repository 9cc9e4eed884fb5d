//! The roles that only tests of the command have. Those of every crate are in `crates/testkit`.

use super::role::{look_at, touch};
use super::service::{self, ServiceClient, faults, on_task};
use super::{Killed, SyncDir, attacks, bank, hostile, mixture, records};
use pmux::abi::{Attr, AttrFlags, EventType};
use pmux_linux::raw_perf_event::{ReadableEvent, can_open};
use std::io::Write as _;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

/// Plays a role: what it is called, and what it is told.
pub fn play(name: &str, arguments: &str) {
    match name {
        // renames:COUNT, itself: each name is one call of write(2)
        "renames" => {
            let mut name = std::fs::OpenOptions::new().write(true).open("/proc/thread-self/comm").unwrap();
            for index in 0..arguments.parse::<u32>().unwrap() {
                name.write_all(format!("name-{index}").as_bytes()).unwrap();
            }
        }
        // holds:DOOR: a second thread waits for a lock until told to go
        "holds" => {
            let (sync_dir, lock) = (SyncDir::at(arguments), std::sync::Mutex::new(()));
            std::thread::scope(|scope| {
                let held = lock.lock().unwrap();
                scope.spawn(|| drop(lock.lock().unwrap()));
                sync_dir.arrive();
                sync_dir.wait_for("go");
                drop(held);
            });
            sync_dir.post("done");
            sync_dir.wait_for("leave");
        }
        // rounds:PAGES,DOOR: touches so many pages when told to, and again when told again, until told to leave
        "rounds" => {
            let (pages, sync_dir) = arguments.split_once(',').unwrap();
            let (pages, sync_dir) = (pages.parse::<usize>().unwrap(), SyncDir::at(sync_dir));
            sync_dir.arrive();
            for round in 0..pmux_testkit::role::PAGES / pages {
                let go = format!("go{round}");
                sync_dir.wait_for_any(&[&go, "leave"]);
                if !sync_dir.path(&go).exists() {
                    break;
                }
                touch(round * pages, pages);
                sync_dir.post(&format!("done{round}"));
            }
            sync_dir.wait_for("leave");
        }
        // crowd:COUNT,DOOR: so many threads, which when told to touch pages, start another one each, and end; until then the first
        // one touches a page now and then
        "crowd" => {
            let (count, sync_dir) = arguments.split_once(',').unwrap();
            let (count, sync_dir) = (count.parse::<usize>().unwrap(), &SyncDir::at(sync_dir));
            let together = Barrier::new(count + 1);
            std::thread::scope(|scope| {
                for thread in 0..count {
                    let together = &together;
                    scope.spawn(move || {
                        together.wait();
                        sync_dir.wait_for("go");
                        touch(thread * 20, 10);
                        std::thread::spawn(move || touch(thread * 20 + 10, 10)).join().unwrap();
                    });
                }
                together.wait();
                sync_dir.arrive();
                // A recorder of the process sees when it does.
                while !sync_dir.path("go").exists() {
                    // Pages that were never touched: kept, or they would be given again.
                    std::mem::forget(std::hint::black_box(vec![1_u8; 4 * 4096]));
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        // successors:PAGES,DOOR: one thread after the other, each started by the one before it, until told to leave; when told to, one of
        // them touches pages
        "successors" => {
            let (pages, sync_dir) = arguments.split_once(',').unwrap();
            succeed(sync_dir.into(), pages.parse().unwrap());
            let sync_dir = SyncDir::at(sync_dir);
            sync_dir.arrive();
            sync_dir.wait_for("leave");
        }
        // chains:COUNT,DOOR: many such threads at a time, until told to leave
        "chains" => {
            let (count, sync_dir) = arguments.split_once(',').unwrap();
            (0..count.parse().unwrap()).for_each(|_| succeed(sync_dir.into(), 0));
            let sync_dir = SyncDir::at(sync_dir);
            sync_dir.arrive();
            sync_dir.wait_for("leave");
        }
        // opens: opens an event that every machine has, and one that none has
        "opens" => {
            let open = |attr: &Attr| can_open(attr).map_or_else(|errno| format!("{errno:?}"), |()| "opened".to_owned());
            let faults = faults();
            println!("page-faults: {}, unknown: {}", open(&faults), open(&Attr { config: 9999, ..faults }));
        }
        // opens-cpu: opens an event of a CPU
        "opens-cpu" => {
            let session = pmux::Session::with_shared(pmux::SharedChoice::Never).unwrap();
            let event = pmux::Event::parse("page-faults:u").unwrap();
            let cpu = pmux::Target::Cpus(pmux::CpuChoice::Only(pmux::CpuList::from_iter([0])));
            let opened = pmux::Counter::open(&session, event, &cpu).is_ok();
            println!("CPU 0: {}", if opened { "opened" } else { "refused" });
        }
        // opens-kernel: opens an event of the kernel mode of tasks of its own, one that there is not, and a CPU
        "opens-kernel" => {
            let faults = faults();
            let attr = Attr { flags: faults.flags - AttrFlags::EXCLUDE_KERNEL, ..faults };
            let say = |what: &str, task: i32, attr: &Attr| {
                let opened = pmux_linux::raw_perf_event::open_all(attr, &[task], &[]);
                println!("{what}: {}", opened.map_or_else(|errno| format!("{errno:?}"), |_| "opened".to_owned()));
            };
            let own = pmux_linux::current_tid();
            say("itself", own, &attr);
            let child = Killed(std::process::Command::new("sleep").arg("1000").spawn().unwrap());
            say("a child", child.0.id().cast_signed(), &attr);
            drop(child);
            let thread = std::thread::spawn(move || say("the thread of another", own, &attr));
            thread.join().unwrap();
            say("no task", 1 << 22, &attr);
            say("a tracepoint", own, &Attr { kind: EventType::TRACEPOINT, config: 1, ..attr });
        }
        // counts-cpu:DOOR: counts on a CPU until it is told to end
        "counts-cpu" => {
            let sync_dir = SyncDir::at(arguments);
            let session = pmux::Session::with_shared(pmux::SharedChoice::Never).unwrap();
            let event = pmux::Event::parse("page-faults").unwrap();
            let cpu = pmux::Target::Cpus(pmux::CpuChoice::Only(pmux::CpuList::from_iter([0])));
            let counter = pmux::Counter::open(&session, event, &cpu).unwrap();
            counter.enable().unwrap();
            sync_dir.arrive();
            sync_dir.wait_for("end");
            println!("counted for {} ns", counter.read().unwrap().enabled.0);
        }
        // opens-later:DOOR: counts, and when told to, goes on counting and opens another event
        "opens-later" => {
            let sync_dir = SyncDir::at(arguments);
            let event = ReadableEvent::open(&faults()).unwrap();
            look_at(0, 60);
            let before = event.read().unwrap();
            sync_dir.arrive();
            sync_dir.wait_for("go");
            let count = |first, pages| {
                let waited = event.read().unwrap();
                assert!(waited >= before);
                touch(first, pages);
                event.read().unwrap() - waited
            };
            // With the first time, its code is there: the kernel maps no page ahead that another process is just mapping.
            count(50, 10);
            let counted = count(0, 50);
            let later = can_open(&faults()).map_or_else(|errno| format!("{errno:?}"), |()| "opened".to_owned());
            std::fs::write(sync_dir.path("counted"), format!("{counted} more, then {later}\n")).unwrap();
        }
        // opens-at-once:THREADS,TIMES
        "opens-at-once" => {
            let (threads, times) = arguments.split_once(',').unwrap();
            let (threads, times): (usize, usize) = (threads.parse().unwrap(), times.parse().unwrap());
            let together = Barrier::new(threads);
            let opened = std::thread::scope(|scope| {
                let open = || {
                    together.wait();
                    (0..times).filter(|_| can_open(&faults()).is_ok()).count()
                };
                let all: Vec<_> = (0..threads).map(|_| scope.spawn(open)).collect();
                all.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            });
            println!("{opened} opened");
        }
        // bank:DEED or bank:DEED,FILE
        "bank" => {
            let (deed, file) = arguments.split_once(',').unwrap_or((arguments, ""));
            bank::play(deed, Path::new(file));
        }
        // holds-events:COUNT,SOCKET,DOOR: has events open through a service until it is killed
        "holds-events" => {
            let [count, socket, sync_dir] = arguments.splitn(3, ',').collect::<Vec<_>>()[..] else {
                panic!("{arguments}")
            };
            let mut conn = ServiceClient::greeted(Path::new(socket));
            for _ in 0..count.parse().unwrap() {
                conn.open(on_task(std::process::id().cast_signed(), &[faults()]));
            }
            SyncDir::at(sync_dir).arrive();
            conn.until_the_end();
        }
        // asks-status:SOCKET
        "asks-status" => {
            let mut conn = ServiceClient::greeted(Path::new(arguments));
            eprintln!("status {}", conn.status());
        }
        // What these are told stands with them.
        "compares" => service::compares(arguments),
        "counts-cpus" => service::counts_cpus(arguments),
        "sends-files" => hostile::sends_files(arguments),
        "takes-all" => hostile::takes_all(arguments),
        "counts" => hostile::counts(arguments),
        "stops-its-opener" => hostile::stops_its_opener(arguments),
        "leaves-its-opener" => hostile::leaves_its_opener(arguments),
        "stops-its-opener-when-a-cpu-comes" => hostile::stops_its_opener_when_a_cpu_comes(arguments),
        "leaves-tracepoints" => hostile::leaves_tracepoints(arguments),
        "subscribes" => records::subscribes(arguments),
        "asks-for-records" => records::asks_for_records(arguments),
        "mixture" => mixture::play(arguments),
        "races-exec" => attacks::races_exec(arguments),
        "samples-stacks" => attacks::samples_stacks(arguments),
        "reuses-a-number" => attacks::reuses_a_number(arguments),
        "leaves-its-connection" => attacks::leaves_its_connection(arguments),
        "asks-on-stdin" => attacks::asks_on_stdin(arguments),
        "connects-then-becomes" => attacks::connects_then_becomes(arguments),
        "connects-then-gives-up" => attacks::connects_then_gives_up(arguments),
        "floods" => attacks::floods(arguments),
        "holds-a-cpu" => attacks::holds_a_cpu(arguments),
        _ => panic!("there is no role {name}"),
    }
}

/// A thread that starts its successor and ends.
fn succeed(folder: std::path::PathBuf, pages: usize) {
    std::thread::spawn(move || {
        let sync_dir = SyncDir::at(&folder);
        if sync_dir.path("go").exists() && !sync_dir.path("done").exists() {
            touch(0, pages);
            sync_dir.post("done");
        }
        if !sync_dir.path("leave").exists() && folder.exists() {
            succeed(folder, pages);
        }
    });
}
