//! `pmux run`: programs that know nothing of pmux.

use crate::common::service::Service;
use crate::common::{
    CommandResult, PMUX, Start, SyncDir, copy_with, eventually, folder_with, kernel, kernel_events, lives, perf, pmux,
    program, role, root, signal, skip_unless, start, tracefs,
};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;

/// `pmux run` with these words before the command.
pub(super) fn run(options: &[&str], command: Vec<OsString>) -> Start {
    pmux(["run"]).args(options).args(["--"]).args(command)
}

pub(super) fn shell(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).into()
}

#[test]
fn the_status_is_that_of_the_command() {
    for (script, status) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let ran = run(&[], shell(script)).run();
        assert_eq!((ran.code(), &ran.err[..]), (status, ""), "{script}");
    }
    pmux(["run", "no-such-command"]).run().bad(127, &["no-such-command: command not found"]);
    pmux(["run", "/tmp"]).run().bad(126, &["/tmp: is a directory"]);
    pmux(["run"]).run().bad(125, &["COMMAND"]);
}

#[test]
fn each_call_is_explained() {
    skip_unless!(kernel());
    let ran = run(&["--explain"], role::words("opens")).run().good();
    // As the role says, and as pmux does.
    assert!(ran.text().contains("page-faults: opened, unknown: ENOENT"), "{}", ran.text());
    ran.says(&[
        "]: page-faults:u of task ",
        ": own\n",
        "]: PMU 1 config=0x270f:u of task ",
        ": refused: ",
        " (ENOENT)",
        "pmux: 2 calls of perf_event_open: 1 own, 1 refused",
    ]);
}

#[test]
fn programs_read_it_as_json() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = sync_dir.text("opens");
    let ran = run(&["-j", "-o", &file], role::words("opens")).run().good();
    assert_eq!(ran.err, "");
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [opened, unknown, summary] = &lines[..] else { panic!("{text}") };
    assert_eq!((&opened["event"], &opened["answer"]), (&"page-faults:u".into(), &"own".into()));
    assert_eq!(opened["task"], opened["tid"]);
    assert_eq!((&unknown["answer"], &unknown["errno"]), (&"refused".into(), &2.into()));
    assert!(unknown["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{unknown}");
    assert_eq!(summary["summary"]["opens"], 2);
    assert_eq!(summary["status"], 0);
}

#[test]
fn explanations_that_can_not_be_written_are_no_success() {
    let ran = run(&["-o", "/nowhere/opens"], shell("echo started")).run().bad(125, &["can't write /nowhere/opens"]);
    assert_eq!(ran.text(), "");
    run(&["-o", "/dev/full"], shell("true")).run().bad(125, &["can't write the explanations"]);
}

#[test]
fn there_is_one_supervisor() {
    let inner = [PMUX, "run", "true"].map(OsString::from);
    run(&[], inner.into()).run().bad(125, &["a supervisor is there already"]);
}

/// What is open counts on without the supervisor; what is asked afterwards fails as if the kernel had no such call.
#[test]
fn a_supervisor_may_be_killed() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let role = role::quiet_line(&format!("opens-later:{}", sync_dir.text("")));
    // It holds none of the pipes of which the test awaits the end.
    let supervisor = run(&[], shell(&format!("exec {role} 2>/dev/null"))).spawn();
    let caller = sync_dir.arrived_pid();
    supervisor.signal("KILL");
    supervisor.wait();
    sync_dir.post("go");
    assert_eq!(sync_dir.read("counted"), "50 more, then ENOSYS");
    eventually("it has ended", || (!lives(caller)).then_some(()));
}

#[test]
fn what_the_command_leaves_running_is_waited_for() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let child = format!("while ! [ -e '{}' ]; do sleep 0.01; done; {}", sync_dir.text("go"), role::quiet_line("opens"));
    let running = run(&["--explain"], shell(&format!("({child}) & : >'{}'; exit 3", sync_dir.text("here")))).spawn();
    sync_dir.wait_for("here");
    sync_dir.post("go");
    running.wait().bad(3, &["2 calls of perf_event_open: 1 own, 1 refused"]);
}

#[test]
fn signals_reach_the_command() {
    let sync_dir = SyncDir::new();
    let script = format!("echo $$ >'{}'; exec sleep 1000", sync_dir.text("here"));
    let running = run(&["--explain"], shell(&script)).group().spawn();
    sync_dir.read("here");
    running.signal("TERM");
    running.wait().bad(143, &["0 calls of perf_event_open"]);
    // Once it has ended, the signal ends what waits for the rest.
    let script = format!("sleep 1000 >/dev/null 2>&1 & echo $! >'{}'; exit 4", sync_dir.text("left"));
    let running = run(&[], shell(&script)).spawn();
    let left = sync_dir.read("left");
    let children = format!("/proc/{0}/task/{0}/children", running.pid());
    eventually("the command is reaped", || fs::read_to_string(&children).ok()?.is_empty().then_some(()));
    running.signal("TERM");
    let ran = running.wait();
    signal(&left, "KILL");
    ran.bad(4, &["can't open events any more (ENOSYS)"]);
}

/// Users have no new privileges under a filter, root has.
#[test]
fn rights_are_those_of_the_caller() {
    skip_unless!(root() && program("setpriv"));
    let folder = folder_with(0o755);
    let (own, caller) = (copy_with(folder.path(), PMUX, 0o755), folder.path().join("caller"));
    role::copy(&caller);
    let unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let user = || start(unprivileged[0], &unprivileged[1..]).args([&own]).args(["run", "--explain", "--"]);
    user().args(role::of(&caller, "opens")).run().good().says(&["page-faults:u of task ", ": own", "1 refused"]);
    assert_eq!(user().args([copy_with(folder.path(), "id", 0o4755)]).args(["-u"]).run().good().text(), "65534\n");
    // A supervisor that may do more than the caller does not lend it that.
    let words = unprivileged.iter().map(OsString::from).chain(role::of(&caller, "opens")).collect();
    let ran = run(&["--explain"], words).run().good();
    let ran = ran.says(&["left to the kernel: it runs as user 65534", "0 own, 0 refused, 2 left to the kernel"]);
    assert!(ran.text().contains("page-faults: opened, unknown: ENOENT"), "{}", ran.text());
}

#[test]
fn many_call_at_once() {
    skip_unless!(kernel());
    let ran = run(&["--explain"], role::words("opens-at-once:100,20")).run().good();
    assert!(ran.text().contains("2000 opened"), "{}", ran.text());
    ran.says(&["2000 calls of perf_event_open"]);
    run(&[], role::words("opens-at-once:100,20")).run().good();
}

/// perf counts what it counts without, in the same form.
#[test]
fn perf_works_as_ever() {
    skip_unless!(kernel() && perf());
    let count = |ran: CommandResult| -> u64 {
        let line = ran.err.lines().find(|line| line.contains("page-faults")).unwrap_or_else(|| panic!("{}", ran.err));
        line.split(',').next().unwrap().parse().unwrap()
    };
    let perf = |more: &[&str], command: Vec<OsString>| {
        let words = ["perf", "stat", "-x,", "-e", "page-faults:u"].iter().chain(more).map(OsString::from);
        run(&[], words.chain(command).collect()).run().good()
    };
    assert!(count(perf(&[], role::words("touch:500"))) >= 500);
    assert!(count(perf(&["-p", &std::process::id().to_string()], shell("true"))) < 1_000_000);
    if root() {
        count(perf(&["-a"], shell("true")));
    }
    let sync_dir = SyncDir::new();
    let data = sync_dir.text("data");
    let record = ["perf", "record", "-q", "-e", "page-faults:u", "-c", "1", "-o", &data, "--"].map(OsString::from);
    run(&[], record.into_iter().chain(role::words("touch:500")).collect()).run().good();
    let lines = pmux(["script", "-i", &data]).run().good().text().lines().count();
    assert!(lines >= 500, "{lines}");
}

/// A static program that calls by every ABI that the machine has for it.
const STATIC: &str = r#"
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long fd) {
    long long count = 0;
    printf("%s %ld, read %d\n", what, fd < 0 ? fd : 0, (int)read(fd, &count, sizeof count));
}

int main(void) {
    int low = 0;
#ifdef __x86_64__
    low = MAP_32BIT;
#endif
    struct perf_event_attr *attr = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | low, -1, 0);
    attr->type = PERF_TYPE_SOFTWARE;
    attr->config = PERF_COUNT_SW_PAGE_FAULTS;
    attr->size = sizeof *attr;
    attr->exclude_kernel = 1;
    say("itself", syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
    say("a CPU", syscall(SYS_perf_event_open, attr, -1, 0, -1, 0));
#ifdef __x86_64__
    int fd;
    __asm__ volatile("int $0x80" : "=a"(fd) : "a"(336), "b"(attr), "c"(0), "d"(-1), "S"(-1), "D"(0) : "memory");
    say("itself, 32 bits", fd);
    __asm__ volatile("int $0x80" : "=a"(fd) : "a"(336), "b"(16), "c"(0), "d"(-1), "S"(-1), "D"(0) : "memory");
    say("a bad address, 32 bits", fd);
#endif
}
"#;

/// Programs that were not written for this do under supervision what they do without.
#[test]
fn programs_of_others_work_as_ever() {
    skip_unless!(kernel());
    let both = |words: &[&str], keep: fn(&str) -> bool| {
        let lines = |ran: CommandResult| {
            let (status, text) = (ran.code(), format!("{}{}", ran.text(), ran.err));
            (status, text.lines().filter(|line| keep(line)).map(str::to_owned).collect::<Vec<_>>())
        };
        let plain = lines(start(words[0], &words[1..]).run());
        assert_eq!(lines(run(&[], words.iter().map(OsString::from).collect()).run()), plain, "{words:?}");
        assert!(!plain.1.is_empty(), "{words:?}");
    };
    let folder = tempfile::tempdir().unwrap();
    if program("cc") {
        let [source, built] = ["static.c", "static"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
        fs::write(&source, STATIC).unwrap();
        // Not every machine has the libraries for that.
        if start("cc", ["-static", "-o", &built, &source]).run().code() == 0 {
            both(&[&built], |_| true);
        }
    }
    if program("papi_command_line") {
        both(&["papi_command_line", "perf::PAGE-FAULTS", "perf::NOTHING"], |line| line.contains("added"));
    }
    if root() && program("bpftrace") {
        let script = "software:page-faults:1 { @ = count(); } interval:ms:300 { exit(); }";
        both(&["bpftrace", "-e", script], |line| line.contains("Attaching"));
    }
    if perf() {
        both(&["perf", "test", "Event times"], |line| line.contains("Event times"));
        both(&["perf", "test", "Read samples using"], |line| line.contains("Read samples using"));
        both(&["perf", "bench", "syscall", "basic", "-l", "1000"], |line| line.contains("Executed"));
    }
}

/// Calls with whatever arguments fail or succeed as they do without a supervisor.
const RAW: &str = r#"
import ctypes, mmap, os, random, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 8192)
base = ctypes.addressof(ctypes.c_char.from_buffer(page))
number = {'x86_64': 298, 'aarch64': 241}[os.uname().machine]
chance = random.Random(int(sys.argv[1]))
for _ in range(300):
    size = chance.choice([0, 8, 63, 64, 72, 112, 136, 4096, 5000, 2**32 - 1])
    kind, config = chance.choice([0, 1, 1, 1, 3, 4, 99]), chance.choice([0, 2, 3, 9999])
    flags = chance.getrandbits(38) if chance.random() < 0.2 else chance.choice([1, 1 | 1 << 5, 1 | 1 << 1])
    attr = struct.pack('<IIQQQQQ', kind, size, config, 0, 0, chance.choice([0, 3, 1 << 40]), flags).ljust(8192, b'\0')
    page[:] = attr
    at = base if chance.random() < 0.9 else chance.choice([0, 1, 2**63, 2**64 - 8])
    pid, cpu = chance.choice([0, 0, 0, -1, -5, os.getpid(), 2**22 + 5]), chance.choice([-1, -1, 0, 99999, -2])
    group, of = chance.choice([-1, -1, -1, 0, 77]), chance.choice([8, 8, 8, 9, 12, 1 << 20, 2**64 - 1])
    ctypes.set_errno(0)
    fd = libc.syscall(ctypes.c_long(number), ctypes.c_ulong(at), pid, cpu, group, ctypes.c_ulong(of))
    print('opened' if fd >= 0 else ctypes.get_errno(), kind, size, config, hex(flags), pid == 0, cpu, group, of)
    if fd >= 0:
        os.close(fd)
"#;

#[test]
fn whatever_is_asked_the_answer_is_the_kernels() {
    skip_unless!(kernel() && program("python3"));
    for seed in 1..=4 {
        let words = ["python3", "-c", RAW, &seed.to_string()].map(OsString::from);
        let plain = start(&words[0], &words[1..]).run().good();
        for options in [&[][..], &["-o", "/dev/null"]] {
            let supervised = run(options, words.clone().into()).run().good();
            let (plain, supervised) = (plain.text(), supervised.text());
            assert_eq!(plain.lines().count(), 300);
            assert_eq!(plain.lines().zip(supervised.lines()).find(|(one, other)| one != other), None, "seed {seed}");
        }
    }
}

/// What scripts begin with.
pub(super) const CALLS: &str = r#"
import ctypes, mmap, os, random, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
number = {'x86_64': 298, 'aarch64': 241}[os.uname().machine]
def call(made):
    return made if made >= 0 else -ctypes.get_errno()
def opened(cpu=0, flags=1, form=3, group=-1, config=2, task=-1):
    attr = struct.pack('<IIQQQQQ', 1, 64, config, 0, 0, form, flags | 1 << 5).ljust(64, b'\0')
    return call(libc.syscall(ctypes.c_long(number), attr, task, cpu, group, ctypes.c_ulong(8)))
def control(fd, request, argument=0):
    return call(libc.ioctl(fd, ctypes.c_ulong(request), ctypes.c_ulong(argument)))
room = ctypes.create_string_buffer(4096)
def value(fd):
    return struct.unpack_from('<Q', room)[0] if libc.read(fd, room, ctypes.c_size_t(4096)) >= 8 else None
"#;

/// Events of a CPU or of a task, with whatever is done to them, are as those of the kernel, but for what they have counted.
const VIRTUAL: &str = r#"
chance = random.Random(int(sys.argv[1]))
fds, zero, on, child = [], {}, {}, 0
if sys.argv[2] == 'task':
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends[1])
        os.read(ends[0], 1)
        os._exit(0)
    # It waits before it is counted.
    while open(f'/proc/{child}/stat').read().split(')')[1].split()[0] != 'S':
        time.sleep(0.001)
waits = child != 0
cpus = [-1, -1, -1, 0, 99999, -2] if child else [0, 0, 0, 99999]
for step in range(300):
    what = chance.choice(['open'] * 3 + ['read'] * 6 + ['control'] * 6 + ['id', 'dup', 'fork', 'close', 'map', 'member', 'flag', 'end'])
    fd = chance.choice(fds) if fds and what != 'open' else None
    if what == 'open' and len(fds) < 8:
        form, flags = chance.choice([0, 1, 2, 3, 4, 7, 8, 11]), chance.choice([1, 1, 0, 1 | 1 << 1])
        fd = opened(chance.choice(cpus), flags, form, config=chance.choice([2, 2, 3, 9999]), task=child or -1)
        print(what, 'opened' if fd >= 0 else fd, form, flags)
        if fd >= 0:
            fds.append(fd)
            on[fd], zero[fd] = flags & 1 == 0, flags & 1 == 1
    elif fd is None or child and not waits and what in ('dup', 'map', 'member'):
        # What has to be replaced needs the task.
        continue
    elif what == 'read':
        size = chance.choice([0, 7, 8, 16, 24, 32, 40, 4096])
        count = call(libc.read(fd, chance.choice([room, room, room, None]) if size >= 40 else room, ctypes.c_size_t(size)))
        print(what, size, count, (waits or zero[fd] and not child) and count >= 8 and struct.unpack_from('<Q', room)[0])
    elif what == 'control':
        request = chance.choice([0x2400, 0x2400, 0x2401, 0x2401, 0x2402, 0x2403, 0x2403, 0x40082404, 0x2499, 0x5451, 0x5401])
        print(what, hex(request), control(fd, request, chance.choice([0, 1]) if request < 0x2404 or request == 0x5451 else chance.choice([0, ctypes.addressof(room)])))
        if request in (0x2400, 0x2401):
            on[fd] = request == 0x2400
            zero[fd] = zero[fd] and not on[fd]
        elif request == 0x2403:
            zero[fd] = not on[fd]
    elif what == 'id':
        bad = chance.random() < 0.3
        print(what, bad, control(fd, 0x80082407, 8 if bad else ctypes.addressof(room)), bad or struct.unpack_from('<Q', room)[0] > 0)
    elif what == 'dup':
        other = os.dup(fd)
        print(what, call(libc.read(other, room, ctypes.c_size_t(4096))) >= 8)
        os.close(other)
    elif what == 'fork':
        sys.stdout.flush()
        other = os.fork()
        if other == 0:
            print(what, value(fd) is not None, control(fd, 0x2407), flush=True)
            os._exit(0)
        os.waitpid(other, 0)
    elif what == 'close':
        fds.remove(fd)
        print(what, call(libc.close(fd)), call(libc.read(fd, room, ctypes.c_size_t(4096))))
    elif what == 'map' and chance.random() < 0.3:
        try:
            mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ).close()
            print(what, 'mapped')
        except OSError as error:
            print(what, error.errno)
    elif what == 'member' and chance.random() < 0.5:
        member = opened(-1 if child else 0, 1, 3, fd, 3, child or -1)
        print(what, member >= 0 or member)
        if member >= 0:
            os.close(member)
    elif what == 'flag':
        import fcntl
        print(what, fcntl.fcntl(fd, fcntl.F_GETFD))
    elif what == 'end' and waits and step > 200:
        os.write(ends[1], b'.')
        os.waitpid(child, 0)
        waits = False
        print(what, opened(-1, 1, 3, task=child))
"#;

#[test]
fn virtual_events_are_as_those_of_the_kernel() {
    skip_unless!(root() && program("python3"));
    for (seed, what) in (1..=5).flat_map(|seed| [(seed, "cpu"), (seed, "task")]) {
        let words = ["python3", "-c", &format!("{CALLS}{VIRTUAL}"), &seed.to_string(), what].map(OsString::from);
        let plain = start(&words[0], &words[1..]).run().good().text();
        let supervised = run(&[], words.clone().into()).run().good().text();
        assert!(plain.lines().count() > 100, "{plain}");
        let differ = plain.lines().zip(supervised.lines()).position(|(one, other)| one != other);
        let around = |text: &str, at: usize| text.lines().take(at + 1).collect::<Vec<_>>().join("\n");
        assert!(
            differ.is_none(),
            "seed {seed}, {what}:\n{}\n\n{}",
            around(&plain, differ.unwrap()),
            around(&supervised, differ.unwrap())
        );
    }
}

/// Counts on CPU 0, or a task and its children, until it is told to end.
const AGENT: &str = r#"
fd = opened(-1, 1 | 1 << 1, task=int(sys.argv[3])) if len(sys.argv) > 3 else opened()
if fd < 0:
    print('refused', -fd)
    sys.exit(0)
control(fd, 0x2400)
open(sys.argv[1], 'w').write(f'{os.getpid()}\n')
while not os.path.exists(sys.argv[2]):
    time.sleep(0.005)
# At once: another agent may write into the same pipe.
os.write(1, b'counted\n' if value(fd) is not None else b'nothing\n')
"#;

/// A shell line that starts such an agent.
pub(super) fn agent(sync_dir: &SyncDir, name: &str) -> String {
    format!("python3 -c \"$0\" '{}' '{}'", sync_dir.text(name), sync_dir.text("end"))
}

pub(super) fn with_agents(script: &str) -> Vec<OsString> {
    shell(script).into_iter().chain([format!("{CALLS}{AGENT}").into()]).collect()
}

#[test]
fn equal_events_of_a_cpu_are_one_of_the_kernel() {
    skip_unless!(root() && program("python3"));
    let sync_dir = SyncDir::new();
    let [one, other, third] = ["one", "other", "third"].map(|name| agent(&sync_dir, name));
    let running = run(&["--explain"], with_agents(&format!("{one} & {other} & {third} & wait"))).spawn();
    let processes = ["one", "other", "third"].map(|name| sync_dir.read(name));
    assert_eq!(kernel_events(running.pid()), 1);
    // One that is killed takes nothing with it, and leaves nothing behind.
    signal(&processes[0], "KILL");
    signal(&processes[1], "KILL");
    assert_eq!(kernel_events(running.pid()), 1);
    signal(&processes[2], "KILL");
    let ran = running.wait().good();
    ran.says(&[": page-faults:u of CPU 0: virtual", "3 virtual (at most 2 events of the kernel saved at a time)"]);
    // Nor does one that ends while others go on.
    let sync_dir = SyncDir::new();
    let line = format!("{}; echo ended >'{}'; exec sleep 1000", agent(&sync_dir, "one"), sync_dir.text("ended"));
    let running = run(&[], with_agents(&line)).group().spawn();
    sync_dir.read("one");
    assert_eq!(kernel_events(running.pid()), 1);
    sync_dir.post("end");
    sync_dir.read("ended");
    eventually("it is closed", || (kernel_events(running.pid()) == 0).then_some(()));
    running.signal("TERM");
    running.wait().bad(143, &[]);
    // Each gets its own where that is asked for.
    let sync_dir = SyncDir::new();
    sync_dir.post("end");
    run(&["--own", "--explain"], with_agents(&agent(&sync_dir, "one"))).run().good().says(&["of CPU 0: own"]);
}

#[test]
fn equal_events_of_a_process_are_one_of_the_kernel() {
    skip_unless!(root() && tracefs() && program("python3"));
    let sync_dir = SyncDir::new();
    let of_target = |name: &str| format!("{} $target", agent(&sync_dir, name));
    let [one, other, third] = ["one", "other", "third"].map(of_target);
    let target = sync_dir.text("target");
    let script = format!("sleep 1000 & target=$!; echo $target >'{target}'; {one} & {other} & {third} & wait");
    let running = run(&["--explain"], with_agents(&script)).group().spawn();
    ["one", "other", "third"].iter().for_each(|name| _ = sync_dir.read(name));
    // One that counts, and one that says whether children count as well.
    assert_eq!(kernel_events(running.pid()), 2);
    sync_dir.post("end");
    eventually("all are closed", || (kernel_events(running.pid()) == 0).then_some(()));
    signal(&sync_dir.read("target"), "TERM");
    let ran = running.wait().good();
    assert_eq!(ran.text(), "counted\ncounted\ncounted\n");
    ran.says(&[
        "page-faults:u +children of task ",
        ": virtual",
        "3 virtual (at most 2 events of the kernel saved at a time)",
    ]);
}

#[test]
fn programs_share_through_the_service() {
    let Some(service) = Service::of_root("") else { return };
    skip_unless!(program("python3"));
    let sync_dir = SyncDir::new();
    let start = |name: &str| {
        let run = run(&["--shared=always"], with_agents(&agent(&sync_dir, name)));
        run.env("PMUX_SOCKET", service.socket()).spawn()
    };
    let agents = ["one", "other"].map(start);
    ["one", "other"].iter().for_each(|name| _ = sync_dir.read(name));
    let status = service.status();
    assert_eq!((&status["events"]["asked"], &status["events"]["kernel"]), (&2.into(), &1.into()), "{status}");
    sync_dir.post("end");
    agents.into_iter().for_each(|agent| assert_eq!(agent.wait().good().text(), "counted\n"));
    service.is_empty();
}

#[test]
fn a_supervisor_with_more_rights_lends_none() {
    skip_unless!(root() && program("setpriv"));
    let folder = folder_with(0o755);
    let caller = folder.path().join("caller");
    role::copy(&caller);
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"].map(OsString::from);
    let words: Vec<OsString> = user.into_iter().chain(role::of(&caller, "opens-cpu")).collect();
    let without = start(&words[0], &words[1..]).run().good().text();
    // `kernel.perf_event_paranoid` says which.
    assert!(without.contains("CPU 0: refused") || without.contains("CPU 0: opened"), "{without}");
    let ran = run(&["--explain"], words).run().good();
    assert_eq!(ran.text(), without);
    ran.says(&["of CPU 0: left to the kernel: it runs as user 65534"]).never_says(&["virtual"]);
}
