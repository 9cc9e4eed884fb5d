//! Who may ask `pmux serve` for what: somebody without rights asks the kernel and the service for the same, and gets the same
//! answers.
#![allow(clippy::unwrap_used)]

mod common;

use common::role::{self, copy};
use common::service::Service;
use common::{Door, eventually, root};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Nobody in particular.
const USER: u32 = 65_533;
const OTHER: u32 = 65_532;

/// A program that runs until the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start(program: &Path, user: u32) -> Self {
        let mut command = Command::new(program);
        command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
        if user != 0 {
            command.uid(user).gid(user);
        }
        let child = command.spawn().unwrap();
        let comm = format!("/proc/{}/comm", child.id());
        let name = program.file_name().unwrap().to_str().unwrap().to_owned();
        eventually("it runs", || std::fs::read_to_string(&comm).ok().filter(|comm| comm.trim() == name));
        Self(child)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks as somebody without rights; what differs from the kernel's own answers is on standard error.
fn compare(service: &Service, tasks: &[u32]) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("asker");
    copy(&program);
    let list: Vec<_> = tasks.iter().map(ToString::to_string).collect();
    // All functions of the kernel, which are not for everybody, and one that is.
    let switches = "events/sched/sched_switch/id";
    let number = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find_map(|root| std::fs::read_to_string(Path::new(root).join(switches)).ok());
    let tracepoints: Vec<_> = ["1"].into_iter().chain(number.as_deref().map(str::trim)).collect();
    let (socket, tracepoints) = (service.socket().display().to_string(), tracepoints.join(","));
    let words = role::of(&program, &format!("compares:{socket},{};{tracepoints}", list.join(",")));
    let ran = Command::new(&words[0]).args(&words[1..]).uid(USER).gid(USER).current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{}", service.log());
    let compared = said.lines().filter(|line| line.starts_with("compared")).count();
    assert!(compared >= 8 * (tasks.len() + 2), "{compared}: {said}");
}

#[test]
fn the_service_allows_what_the_kernel_would() {
    if !root() {
        return;
    }
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let sleep = ["/bin/sleep", "/usr/bin/sleep"].map(Path::new).into_iter().find(|path| path.exists()).unwrap();
    let copy = |name: &str, mode: u32| {
        let path = folder.path().join(name);
        // As in `copy`.
        assert!(Command::new("cp").arg(sleep).arg(&path).status().unwrap().success());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let plain = copy("plain", 0o755);
    // Whoever may execute a program and not read it may not look into the process either.
    let unreadable = copy("unreadable", 0o711);
    let sleepers = [
        Sleeper::start(&plain, USER),
        Sleeper::start(&unreadable, USER),
        Sleeper::start(&plain, OTHER),
        Sleeper::start(&plain, 0),
    ];
    let mut tasks: Vec<_> = sleepers.iter().map(|sleeper| sleeper.0.id()).collect();
    tasks.extend([1, service.pid().cast_unsigned(), 4_000_000]);
    compare(&service, &tasks);
    service.is_empty();
}

#[test]
fn a_group_of_the_configuration_may_count_cpus() {
    if !root() {
        return;
    }
    let service = Service::with(&format!("[rights]\nsystem_wide = [{USER}]\n"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("asker");
    copy(&program);
    let ask = |group: u32| {
        let words = role::of(&program, &format!("counts-cpus:{}", service.socket().display()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).uid(USER).gid(group).current_dir("/").stderr(Stdio::piped());
        String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned()
    };
    // The kernel's file of what he may not open himself stays here.
    assert!(ask(USER).contains("opened with 0 files"), "{}", ask(USER));
    assert!(ask(OTHER).contains("refused: Rights 13"), "{}", ask(OTHER));
}

#[test]
fn nobody_depends_on_a_counter_that_a_user_can_stop() {
    if !root() {
        return;
    }
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("asker");
    copy(&program);
    let words =
        role::of(&program, &format!("holds-events:3,{},{}", service.socket().display(), folder.path().display()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).uid(USER).gid(USER).current_dir("/").stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("it holds events", || folder.path().join("here").exists().then_some(()));
    let status = service.status();
    assert_eq!((&status["events"]["asked"], &status["events"]["kernel"]), (&3.into(), &1.into()), "{status}");
    // He has the file of that one. Root, who asks the same, gets another counter, and root's is shared by all of root's.
    let mut clients = [service.client(), service.client()];
    for client in &mut clients {
        client.open(common::service::on_task(child.id().cast_signed(), &[common::service::faults()]));
    }
    let status = service.status();
    assert_eq!((&status["events"]["asked"], &status["events"]["kernel"]), (&5.into(), &2.into()), "{status}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn others_are_not_told_who_asks_what() {
    if !root() {
        return;
    }
    let service = Service::start();
    let mut own = service.client();
    own.open(common::service::on_task(1, &[common::service::faults()]));
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let door = Door::new();
    let program = folder.path().join("asker");
    copy(&program);
    let words = role::of(&program, &format!("asks-status:{}", service.socket().display()));
    let ran = Command::new(&words[0]).args(&words[1..]).uid(USER).gid(USER).current_dir("/").output().unwrap();
    drop(door);
    let said = String::from_utf8_lossy(&ran.stderr);
    let line = said.lines().find_map(|line| line.strip_prefix("status ")).unwrap();
    let status: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(status["clients"]["hidden"], 1, "{status}");
    assert_eq!(status["clients"]["list"].as_array().unwrap().len(), 1, "{status}");
    assert!(status["questions"].get("list").is_none(), "{status}");
    assert_eq!(status["events"]["asked"], 1);
}
