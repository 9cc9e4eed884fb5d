//! Programs of the machine, and processes.

use crate::{PATIENCE, needs};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Waits until something is there.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: it never happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Where a program is found.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether a program is installed.
pub fn is_installed(name: &str) -> bool {
    in_path(name).is_some()
}

/// Whether a program is installed that a test needs.
pub fn program(name: &str) -> bool {
    needs(name, name, is_installed(name))
}

/// Whether commands are programs of their own; if not, that is a skip. A copy under another name of one program for all commands
/// (`BusyBox`) does not know what it is.
pub fn commands_are_programs() -> bool {
    let file = in_path("sleep").and_then(|path| path.canonicalize().ok());
    let are = file.is_some_and(|path| path.ends_with("sleep"));
    if !are {
        println!("skipped: needs commands that are programs of their own");
    }
    are
}

/// A copy of a program, given by its path or found by its name, that every user may execute.
pub fn copy_of(program: impl AsRef<Path>, to: &Path) {
    let program = program.as_ref();
    let found = if program.is_absolute() { program.to_owned() } else { in_path(program.to_str().unwrap()).unwrap() };
    // By another process: one that a test of another thread forks meanwhile would inherit the file as it is written, and while it
    // is open for writing it cannot be executed.
    assert!(Command::new("cp").arg(found).arg(to).status().unwrap().success());
    set_mode(to, 0o755);
}

/// Gives a file or a folder these rights.
pub fn set_mode(path: impl AsRef<Path>, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A new folder with these rights.
pub fn folder_with(mode: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), mode);
    folder
}

/// Writes a file below a folder, and makes the folders above the file that are missing.
pub fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A process that is killed when this is dropped, also by a panic.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a process, or with a minus to a group.
pub fn signal(to: &str, name: &str) {
    let status = Command::new("kill").args(["-s", name, "--", to]).status().unwrap();
    assert!(status.success(), "kill -s {name} {to}");
}

/// The state of a process as `/proc/PID/stat` has it: `R`, `S`, `D`, `T`, `Z`.
pub fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// How many events of the kernel a process has open.
pub fn kernel_events(process: impl std::fmt::Display) -> usize {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

/// What `kernel.perf_event_paranoid` is; the most that can be where the kernel has no events.
pub fn paranoid() -> i32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    text.trim().parse().unwrap_or(i32::MAX)
}

/// Whether a process is there, zombies not included.
pub fn lives(pid: i32) -> bool {
    state_of(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The processes in whose environment this stands.
pub fn with_environment(entry: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|&byte| byte == 0).any(|line| line == entry.as_bytes()) && lives(pid) {
            found.push(pid);
        }
    }
    found
}
