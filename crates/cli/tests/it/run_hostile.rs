//! Programs under `pmux run` that do what no program should, or come by bad luck.

use super::run::{CALLS, agent, run, shell, with_agents};
use crate::common::{SyncDir, cc, kernel_events, needs, program, role, root, skip_unless};
use std::ffi::OsString;

/// A caller whose attribute is in memory that is never filled waits for ever, alone; once it is killed, nothing is left.
const STUCK: &str = r#"
import ctypes, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
calls = {'x86_64': (323, 298), 'aarch64': (282, 241)}[os.uname().machine]
fault = libc.syscall(ctypes.c_long(calls[0]), 0)
page = mmap.mmap(-1, 4096)
base = ctypes.addressof(ctypes.c_char.from_buffer(page))
api = ctypes.create_string_buffer(struct.pack('<QQQ', 0xaa, 0, 0))
where = ctypes.create_string_buffer(struct.pack('<QQQQ', base, 4096, 1, 0))
if fault < 0 or libc.ioctl(fault, ctypes.c_ulong(0xc018aa3f), api) or libc.ioctl(fault, ctypes.c_ulong(0xc020aa00), where):
    print('skipped: needs userfaultfd(2)')
    sys.exit(0)
open(sys.argv[1], 'w').write(f'{os.getpid()}\n')
libc.syscall(ctypes.c_long(calls[1]), ctypes.c_ulong(base), 0, -1, -1, ctypes.c_ulong(8))
"#;

#[test]
fn a_caller_that_is_stuck_delays_no_other() {
    skip_unless!(root() && program("python3"));
    let sync_dir = SyncDir::new();
    let stuck = sync_dir.text("stuck");
    let script = format!(
        "python3 -c \"$0\" '{stuck}' & while [ -e /proc/$! ] && ! [ -s '{stuck}' ]; do sleep 0.01; done; {}; kill -9 $!",
        role::quiet_line("opens")
    );
    let words = shell(&script).into_iter().chain([STUCK.into()]).collect();
    let ran = run(&["--explain"], words).run();
    if needs("root", "userfaultfd(2)", !ran.text().contains("skipped")) {
        ran.says(&["page-faults:u of task ", "1 own, "]);
    }
}

/// A copy that arrives under another number can't be read; it neither waits nor takes the event with it.
const PASSED: &str = r#"
import socket
fd = opened()
one, other = socket.socketpair()
socket.send_fds(one, [b'.'], [fd])
copy = socket.recv_fds(other, 1, 1)[1][0]
print('copy', call(libc.read(copy, room, ctypes.c_size_t(4096))))
os.close(copy)
print('event', value(fd) is not None)
os.close(fd)
"#;

#[test]
fn a_copy_that_was_passed_on_is_an_error() {
    skip_unless!(root() && program("python3"));
    let words = ["python3", "-c", &format!("{CALLS}{PASSED}")].map(OsString::from);
    assert_eq!(run(&[], words.into()).run().good().text(), "copy -9\nevent True\n");
}

#[test]
fn without_numbers_to_give_events_are_own() {
    skip_unless!(root() && program("python3"));
    let sync_dir = SyncDir::new();
    sync_dir.post("end");
    let line = format!("ulimit -n 1024 && {}", agent(&sync_dir, "one"));
    let ran = run(&["--explain"], with_agents(&line)).run().good();
    assert_eq!(ran.text(), "counted\n");
    ran.says(&["of CPU 0: own"]).never_says(&["virtual"]);
}

/// Signals with a handler arrive while calls wait, at whichever moment.
const INTERRUPTED: &str = r#"
import signal
signals = 0
def count(*_):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, count)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
bad = 0
while signals < 300:
    fd = opened()
    bad += fd < 0 and fd != -4
    if fd >= 0:
        # One that no supervisor has seen yet ends with EINTR.
        bad += call(libc.read(fd, room, ctypes.c_size_t(4096))) not in (24, -4)
        os.close(fd)
signal.setitimer(signal.ITIMER_REAL, 0)
print('bad', bad)
"#;

#[test]
fn signals_interrupt_no_call_half_way() {
    skip_unless!(root() && program("python3") && crate::common::linux_is_at_least(5, 19));
    let words = ["python3", "-c", &format!("{CALLS}{INTERRUPTED}")].map(OsString::from);
    for options in [&[][..], &["--own"]] {
        assert_eq!(run(options, words.clone().into()).run().good().text(), "bad 0\n");
    }
}

/// Threads open, read, switch, copy over, and close descriptors of virtual events that others use, with bad addresses among good ones, while
/// children come and go.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct perf_event_attr shared = {.type = PERF_TYPE_SOFTWARE, .config = 2, .size = sizeof shared};
static time_t end;

static void *play(void *number) {
    unsigned seed = (unsigned)(long)number;
    char room[64] = {0};
    while (time(0) < end) {
        int fd = 4090 + rand_r(&seed) % 40, what = rand_r(&seed) % 12;
        void *at = rand_r(&seed) % 4 ? (void *)room : (void *)(long)rand_r(&seed);
        if (what < 4) {
            // A period that happens to be there: a sample of a CPU's clock every 10 us leaves that CPU no time for anything else.
            memset(room + 16, 0, 8);
            // Another thread changes it meanwhile.
            syscall(SYS_perf_event_open, rand_r(&seed) % 4 ? (void *)&shared : at, -1, 0, rand_r(&seed) % 3 ? -1 : fd, 8);
        } else if (what < 6) {
            (void)!read(fd, at, rand_r(&seed) % 100);
        } else if (what == 6) {
            ioctl(fd, 0x2400 + rand_r(&seed) % 12, at);
        } else if (what == 7) {
            close(fd);
        } else if (what == 8) {
            dup2(rand_r(&seed) % 2 ? 0 : fd, 4090 + rand_r(&seed) % 40);
        } else if (what == 9) {
            shared.config = rand_r(&seed) % 12;
            shared.size = rand_r(&seed) % 3 ? sizeof shared : rand_r(&seed);
            shared.read_format = rand_r(&seed) % 16;
            shared.inherit = rand_r(&seed) % 2;
        } else if (what == 10) {
            void *page = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
            if (page != MAP_FAILED) munmap(page, 4096);
        } else if (rand_r(&seed) % 8 == 0) {
            pid_t child = fork();
            if (child == 0) {
                (void)!read(fd, room, 64);
                _exit(0);
            }
            if (child > 0) waitpid(child, 0, 0);
        }
    }
    return 0;
}

int main(void) {
    pthread_t threads[8];
    end = time(0) + 3;
    for (long number = 0; number < 8; number++) pthread_create(&threads[number], 0, play, (void *)number);
    for (int number = 0; number < 8; number++) pthread_join(threads[number], 0);
}
"#;

#[test]
fn whatever_a_program_does_harms_itself_only() {
    skip_unless!(root() && program("cc") && program("python3"));
    let sync_dir = SyncDir::new();
    let built = cc(sync_dir.path(""), "hostile", HOSTILE, &["-pthread"]);
    // Another program counts meanwhile, and one more afterwards.
    let (neighbour, later) = (agent(&sync_dir, "neighbour"), agent(&sync_dir, "later"));
    let script = format!("{neighbour} & '{}'; echo >'{}'; {later} & wait", built.display(), sync_dir.text("over"));
    let running = run(&[], with_agents(&script)).spawn();
    sync_dir.read("neighbour");
    sync_dir.wait_for("over");
    sync_dir.read("later");
    assert_eq!(kernel_events(running.pid()), 1, "what it left open");
    sync_dir.post("end");
    assert_eq!(running.wait().good().text(), "counted\ncounted\n");
}
