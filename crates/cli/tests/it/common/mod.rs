//! What the black-box tests share: starting the command, reading what it says, skipping.
//!
//! Read first: [`pmux`] and [`CommandResult`]; what other crates use too is in `crates/testkit`.
//!
//! **Invariant:** a command that hangs is ended, and the test fails.
// A benchmark uses some of it.
#![allow(dead_code, unused_imports, unreachable_pub, clippy::unwrap_used)]

pub mod attacks;
pub mod bank;
pub mod hostile;
pub mod mixture;
pub mod recording;
pub mod records;
pub mod roles;
pub mod service;
pub mod stolen;
pub mod terminal;

pub use pmux_testkit::{
    Cgroup, CommandResult, DEBUG_REGISTERS, Killed, PATIENCE, Running, Start, SyncDir, commands_are_programs, copy_of,
    debug_registers, eventually, folder_with, is_installed, kernel_events, lives, lock, needs, paranoid, program, role,
    set_mode, signal, skip_unless, start, with_environment,
};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The command under test.
pub const PMUX: &str = env!("CARGO_BIN_EXE_pmux");

/// Whether performance events can be opened here, asked without the command.
pub fn kernel() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| pmux::Session::with_backend(pmux::BackendChoice::Kernel).is_ok());
    needs("kernel", "performance events", there)
}

/// Whether this user may count what its own programs do in the kernel.
pub fn kernel_mode() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    let may = *MAY.get_or_init(|| opens("page-faults:k"));
    kernel() && needs("root", "the right to count in the kernel", may)
}

/// Whether the tests run as root, with the right to count everything.
pub fn root() -> bool {
    let root = std::fs::OpenOptions::new().append(true).open("/proc/sys/kernel/perf_event_paranoid").is_ok();
    needs("root", "root", root) && kernel()
}

/// Whether tracepoints can be looked up: only the system mounts what they stand in.
pub fn tracefs() -> bool {
    let places = ["/sys/kernel/tracing/events/sched", "/sys/kernel/debug/tracing/events/sched"];
    let there = places.iter().any(|place| Path::new(place).exists());
    needs("tracefs", "tracefs, mounted on /sys/kernel/tracing", there)
}

/// Whether tasks report here what they have counted when they exit.
pub fn reports() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = || {
        let ran = stat(["--tree", "-e", "page-faults:u", "--", "sh", "-c", "(:); :"]).run().good();
        !ran.err.contains("this kernel does not report what processes have counted")
    };
    kernel()
        && needs(
            "reports",
            "a kernel whose tasks report what they have counted when they exit",
            *THERE.get_or_init(there),
        )
}

/// Whether there is no hardware PMU; if there is one, that is a skip.
pub fn without_pmu() -> bool {
    needs("no-pmu", "a machine without a hardware PMU", !has_pmu())
}

pub fn has_pmu() -> bool {
    opens("cycles:u")
}

/// Whether an event of this thread can be opened.
pub fn opens(event: &str) -> bool {
    let session = pmux::Session::new().unwrap();
    let event = pmux::Event::parse_with(event, session.catalog()).unwrap();
    matches!(session.probe(&event, &pmux::Target::CurrentThread), Ok(pmux::Probe::Opens))
}

/// Whether nothing else has all debug registers; the test holds their lock.
pub fn has_free_register() -> bool {
    let event = pmux::Event::breakpoint(8, 8, pmux::event::Access::WRITE);
    let there = pmux::Counter::open(&pmux::Session::new().unwrap(), event, &pmux::Target::CurrentThread);
    needs("breakpoints", "a debug register that is free", there.is_ok())
}

/// Whether the perf that outputs are compared with is there, and works.
pub fn perf() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let there = *THERE.get_or_init(|| {
        let version = Command::new("perf").arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let works = Command::new("perf").args(["stat", "-x,", "-e", "page-faults", "true"]).output();
        version.contains("version 6.1.") && works.is_ok_and(|output| output.status.success())
    });
    needs("perf", "perf 6.1", there)
}

/// A file of this name in a new folder, which goes away with the test.
pub fn new_file(name: &str) -> (SyncDir, PathBuf) {
    let sync_dir = SyncDir::new();
    let file = sync_dir.path(name);
    (sync_dir, file)
}

/// The files of a folder with this ending, by name.
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    found.sort();
    found
}

/// What was packed by gzip.
pub fn unpacked(packed: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// A program in C, compiled in this folder with its source beside it.
pub fn cc(folder: impl AsRef<Path>, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let program = folder.as_ref().join(name);
    let file = program.with_extension("c");
    std::fs::write(&file, source).unwrap();
    start("cc", options).args(["-o"]).args([&program, &file]).run().good();
    program
}

/// A copy in this folder of a program, whose name tells its mode.
pub fn copy_with(folder: &Path, program: impl AsRef<Path>, mode: u32) -> PathBuf {
    let name = program.as_ref().file_name().unwrap().to_str().unwrap();
    let copy = folder.join(format!("{name}-{mode:o}"));
    copy_of(&program, &copy);
    set_mode(&copy, mode);
    copy
}

/// The first CPU that this test may run on.
pub fn own_cpu() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    cpus.split([',', '-']).next().unwrap().parse().unwrap()
}

pub fn pmux<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Start {
    start(PMUX, arguments)
}

/// A process that sleeps until this is dropped.
pub fn sleeping() -> Running {
    let sleeper = start("sleep", ["1000"]).spawn();
    let stat = format!("/proc/{}/stat", sleeper.pid());
    eventually("it sleeps", || std::fs::read_to_string(&stat).ok().filter(|stat| stat.contains("(sleep) S ")));
    sleeper
}

pub fn stat<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Start {
    pmux(["stat"]).args(arguments)
}

/// What is started behind this has no rights.
pub fn unprivileged() -> Start {
    start("setpriv", ["--reuid=65534", "--regid=65534", "--clear-groups"])
}

/// Words of a command line, with those of another command behind them.
pub fn words<A: AsRef<OsStr>>(line: &[A], command: Vec<OsString>) -> Vec<OsString> {
    line.iter().map(|word| word.as_ref().to_owned()).chain(command).collect()
}

/// So many events that anybody may count and no two of which ask the same, separated by commas.
pub fn distinct(count: usize) -> String {
    let names = "page-faults minor-faults major-faults context-switches cpu-migrations cpu-clock task-clock";
    let modifiers = ["u", "uh", "uH", "uhH", "uI", "uhI", "uHI", "uhHI"];
    let each = |modifier: &&str| names.split(' ').map(|name| format!("{name}:{modifier}")).collect::<Vec<_>>();
    let all: Vec<_> = modifiers.iter().flat_map(each).collect();
    assert!(all.len() >= count, "{} are known", all.len());
    all[..count].join(",")
}

/// Whether this is Linux of that version, or a later one.
pub fn linux_is_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// A browser with a profile of its own that shows no window, and that asks neither the user nor a server for anything. It has so long for
/// a page, and prints what that has become.
pub fn browser(profile: &Path, budget_ms: u32) -> Start {
    let words = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
    let browser = start("chromium", words).args(["--disable-component-update", "--disable-sync", "--dump-dom"]);
    let profile = format!("--user-data-dir={}", profile.display());
    browser.args([format!("--virtual-time-budget={budget_ms}"), profile])
}

/// Records the page faults of a program with their stacks, each one a sample: every machine has them, and each run has the same.
pub fn record_faults(file: &Path, options: &[&str], program: impl IntoIterator<Item = OsString>) {
    pmux(record_words(file, &[&["-g"], options].concat(), program)).run().good();
}

/// The words for that.
pub fn record_words(
    file: &Path,
    options: &[&str],
    program: impl IntoIterator<Item = OsString>,
) -> impl IntoIterator<Item = OsString> {
    let mut words: Vec<OsString> = ["record", "-q", "-e", "page-faults:u", "-c", "1"].map(OsString::from).into();
    words.extend(options.iter().map(OsString::from));
    words.extend(["-o".into(), file.into(), "--".into()]);
    words.extend(program);
    words
}
