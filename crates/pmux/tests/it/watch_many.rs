//! Watching many threads at once, on this kernel: all of them or none.

use crate::common::watching::session_for;
use crate::common::{self, Killed, debug_registers, open_events};
use pmux::event::Access;
use pmux::watch::{RegisterSharing, Watch, WatchDetail, WatchOptions, WatchTarget};
use pmux::{Error, Session, Slice, Target};
use pmux_testkit::late_hits;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

static WORDS: [AtomicU64; 12] = [const { AtomicU64::new(0) }; 12];

const WORDS_ARE: &str = "words at ";

/// What this program is in another process: so many threads, each of which writes once for each line of its input, or the same
/// number of threads that come and go.
pub(crate) fn role(name: &str, argument: &str) {
    let count: usize = argument.parse().unwrap();
    pmux_testkit::survive_late_hits();
    // The harness has begun a line.
    println!("\n{WORDS_ARE}{:x}", (&raw const WORDS) as usize);
    match name {
        "threads" => threads_of_a_process(count),
        "churn" => churn(count),
        _ => panic!("there is no role {name}"),
    }
}

fn threads_of_a_process(count: usize) {
    let round = std::sync::Arc::new(std::sync::Barrier::new(count));
    let run = |round: &std::sync::Barrier| {
        loop {
            round.wait();
            WORDS[0].fetch_add(1, Ordering::Relaxed);
            round.wait();
        }
    };
    for _ in 1..count {
        let round = std::sync::Arc::clone(&round);
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || run(&round)).unwrap();
    }
    println!("{count}");
    for line in std::io::stdin().lines() {
        line.unwrap();
        round.wait();
        WORDS[0].fetch_add(1, Ordering::Relaxed);
        round.wait();
        println!("{}", late_hits());
    }
    std::process::exit(0);
}

/// Most threads stay, some are always new.
fn churn(count: usize) {
    for _ in 1..count {
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(|| {
                loop {
                    std::thread::park();
                }
            })
            .unwrap();
    }
    println!("{count}");
    loop {
        let short: Vec<_> = (0..8).map(|_| std::thread::spawn(|| WORDS[1].fetch_add(1, Ordering::Relaxed))).collect();
        short.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Another process of this program.
struct Other {
    child: Killed,
    lines: BufReader<std::process::ChildStdout>,
    words: u64,
}

impl Other {
    fn start(role: &str, threads: usize) -> Self {
        let mut command = common::role::command(&format!("{role}:{threads}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut other = Self { child: Killed(child), lines, words: 0 };
        other.words = loop {
            let line = other.line();
            if let Some(words) = line.strip_prefix(WORDS_ARE) {
                break u64::from_str_radix(words, 16).unwrap();
            }
        };
        assert_eq!(other.line(), threads.to_string());
        other
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the other process has ended");
        line.trim().to_owned()
    }

    /// Each thread writes once; how many of these hits come late, so that no event counts them.
    fn write(&mut self) -> u64 {
        self.child.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line().parse().unwrap()
    }

    fn pid(&self) -> i32 {
        self.child.0.id().cast_signed()
    }

    fn target(&self) -> Target<'static> {
        Target::Processes(vec![self.pid()])
    }

    fn tids(&self) -> Vec<i32> {
        pmux_linux::procfs::Proc::system().threads_of(self.pid()).unwrap()
    }

    fn watch_target(&self, word: usize) -> WatchTarget {
        let address = self.words + 8 * word as u64;
        WatchTarget { name: format!("WORDS[{word}]"), address, len: 8, access: Access::WRITE }
    }
}

/// A session, where this thread may watch `other`.
fn session(other: &Other) -> Option<Session> {
    session_for(&other.watch_target(0), &Target::Threads(vec![other.pid()]))
}

fn options(detail: WatchDetail) -> WatchOptions {
    WatchOptions { detail, ..WatchOptions::default() }
}

const HITS: WatchDetail = WatchDetail::Hits { max_stack: 4 };
const MANY: usize = 600;

#[test]
fn where_one_thread_has_no_register_left_no_thread_is_watched() {
    let Some(_registers) = debug_registers() else { return };
    let mut other = Other::start("watch_many/threads", MANY);
    let Some(session) = session(&other) else { return };
    let tids = other.tids();
    assert_eq!(tids.len(), MANY + 1);
    let full = tids[450];
    let taken: Vec<_> = (1..12)
        .map_while(|word| {
            let only = Target::Threads(vec![full]);
            Watch::open(&session, vec![other.watch_target(word)], &only, options(WatchDetail::Counts)).ok()
        })
        .collect();
    assert!((1..11).contains(&taken.len()));
    let before = (session.census(), open_events());
    let turns = WatchOptions { sharing: RegisterSharing::InTurns(Slice::default()), ..options(HITS) };
    for options in [options(WatchDetail::Counts), options(HITS), turns] {
        let refused = Watch::open(&session, vec![other.watch_target(0)], &other.target(), options);
        match refused.map(drop) {
            Err(Error::Shortage(shortage)) if options.sharing == RegisterSharing::Refuse => {
                assert_eq!((shortage.tid, shortage.granted), (Some(full), 0), "{shortage}");
            }
            // Turns may be had without any register now: they are asked for as each one comes.
            Ok(()) | Err(Error::Shortage(_)) if options.sharing != RegisterSharing::Refuse => {}
            other => panic!("{other:?}"),
        }
        assert_eq!((session.census(), open_events()), before, "{options:?}");
    }
    drop(taken);
    for detail in [WatchDetail::Counts, HITS] {
        let mut watch = Watch::open(&session, vec![other.watch_target(0)], &other.target(), options(detail)).unwrap();
        assert_eq!(watch.threads(), MANY + 1);
        let hits = MANY as u64 - other.write();
        watch.disarm().unwrap();
        assert_eq!(other.write(), 0);
        assert_eq!(watch.count(0).unwrap().value, hits, "{detail:?}");
        let events = watch.finish().unwrap();
        assert_eq!(events.len() as u64, if detail == HITS { hits } else { 0 });
    }
    assert_eq!(session.census(), Default::default());
}

#[test]
fn each_write_after_arming_is_counted_once() {
    let Some(_registers) = debug_registers() else { return };
    let mut other = Other::start("watch_many/threads", 40);
    let Some(session) = session(&other) else { return };
    for detail in [WatchDetail::Counts, HITS] {
        other.write();
        let watch = Watch::open(&session, vec![other.watch_target(0)], &other.target(), options(detail)).unwrap();
        assert_eq!(watch.count(0).unwrap().value, 0);
        let late = other.write();
        assert_eq!(watch.count(0).unwrap().value, 40 - late);
        let late = late + other.write();
        assert_eq!(watch.count(0).unwrap().value, 80 - late);
    }
}

#[test]
fn threads_that_end_meanwhile_are_left_out() {
    let Some(_registers) = debug_registers() else { return };
    let mut other = Other::start("watch_many/churn", 400);
    let Some(session) = session(&other) else { return };
    let before = open_events();
    for round in 0..30 {
        let detail = if round % 2 == 0 { HITS } else { WatchDetail::Counts };
        let watch = Watch::open(&session, vec![other.watch_target(1)], &other.target(), options(detail)).unwrap();
        assert!(watch.threads() >= 400, "those that stay");
        while watch.count(0).unwrap().value < 10 {
            assert_eq!(other.child.0.try_wait().unwrap(), None, "it writes on");
            std::thread::yield_now();
        }
        drop(watch);
        assert_eq!((session.census(), open_events()), (Default::default(), before));
    }
    let tids = other.tids();
    drop(other);
    let gone = Watch::open(
        &session,
        vec![WatchTarget { name: "gone".to_owned(), address: 0x1000, len: 8, access: Access::WRITE }],
        &Target::Threads(tids),
        options(HITS),
    );
    assert!(gone.is_err(), "there is no such process");
    assert_eq!((session.census(), open_events()), (Default::default(), before));
}
