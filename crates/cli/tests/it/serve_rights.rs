//! Who may ask `pmux serve` for what: a process without rights asks the kernel and the service for the same, and gets the same
//! answers.

use crate::common;
use crate::common::hostile::{open_door, said_in};
use crate::common::role::{self, copy};
use crate::common::service::{Service, ServiceClient, faults, on_cpu, on_task, where_all_is_refused};
use crate::common::{
    Killed, Start, SyncDir, commands_are_programs, copy_of, copy_with, eventually, folder_with, needs, root, set_mode,
    signal, skip_unless, unprivileged,
};
use crate::shared::waits;
use pmux::server_api::shared::wire::EventOp;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An arbitrary user.
const USER: u32 = 65_533;
const OTHER: u32 = 65_532;

/// A copy of `sleep`, as a user.
fn sleeper(program: &Path, user: u32) -> Killed {
    let mut command = Command::new(program);
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    if user != 0 {
        command.uid(user).gid(user);
    }
    let child = Killed(command.spawn().unwrap());
    let comm = format!("/proc/{}/comm", child.0.id());
    let name = program.file_name().unwrap().to_str().unwrap();
    eventually("it runs", || std::fs::read_to_string(&comm).ok().filter(|comm| comm.trim() == name));
    child
}

/// A folder into which everybody may write, with a copy of this program for other users.
fn program() -> (SyncDir, PathBuf) {
    let folder = open_door();
    let program = folder.path("asker");
    copy(&program);
    (folder, program)
}

/// Lets a role end well; what it has said.
fn said_by(mut role: Command, service: &Service) -> String {
    said_in(&role.output().unwrap(), service)
}

/// A program that computes, with root's rights for any user; `None`, and a skip, where that means nothing.
fn privileged(folder: &Path) -> Option<PathBuf> {
    if !commands_are_programs() {
        return None;
    }
    let helper = folder.join("helper");
    copy_of("seq", &helper);
    set_mode(&helper, 0o4755);
    let child = Command::new(&helper).args(["1", "1000000000"]).stdout(Stdio::null()).uid(USER).gid(USER).spawn();
    let child = Killed(child.unwrap());
    std::thread::sleep(std::time::Duration::from_millis(100));
    gains_root(&child.0).then_some(helper)
}

/// Whether a process that executes a set-user-id program of root's has root's rights; if not, that is a skip.
fn gains_root(child: &Child) -> bool {
    let users = |text: String| Some(text.lines().find(|line| line.starts_with("Uid:"))?.contains("\t0\t0\t0"));
    let works = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok().and_then(users);
    needs("root", "a folder where set-user-id programs mean something", works.unwrap_or_default())
}

/// A role as a member of a group.
fn as_member(program: &Path, role: &str, (user, group): (u32, u32)) -> Command {
    let mut command = role::command_of(program, role);
    command.uid(user).gid(group).current_dir("/");
    command
}

/// A role as a user, with these capabilities by their numbers, or none.
fn as_user(program: &Path, role: &str, capabilities: &[u32]) -> Command {
    if capabilities.is_empty() {
        return as_member(program, role, (USER, USER));
    }
    let words = role::of(program, role);
    let list: Vec<_> = capabilities.iter().map(|number| format!("+cap_{number}")).collect();
    let list = list.join(",");
    let user = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["--inh-caps", &list, "--ambient-caps", &list]).args(words).current_dir("/");
    command
}

/// Whether users can be given single capabilities here.
fn setpriv() -> bool {
    let ran = Command::new("setpriv").args(["--inh-caps", "+cap_38", "--ambient-caps", "+cap_38", "true"]).output();
    needs("root", "setpriv(1)", ran.is_ok_and(|ran| ran.status.success()))
}

/// So many events are asked for, and so many open in the kernel. What was opened to try it is closed by a thread of the service.
fn has_events(service: &Service, asked: u64, kernel: u64) {
    let has = |events: &serde_json::Value| events["asked"] == asked && events["kernel"] == kernel;
    eventually(&format!("{asked} are asked for, {kernel} open"), || has(&service.status()["events"]).then_some(()));
}

/// Asks as a user without rights, but for these capabilities; what differs from the kernel's own answers is on standard error.
fn compare(service: &Service, tasks: &[u32], capabilities: &[u32]) {
    // Among what it asks for are breakpoints, which others must not meet.
    let _alone = common::lock(common::DEBUG_REGISTERS);
    let (_folder, program) = program();
    let list: Vec<_> = tasks.iter().map(ToString::to_string).collect();
    // All functions of the kernel, which are not for everybody, and one that is.
    let switches = "events/sched/sched_switch/id";
    let number = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .into_iter()
        .find_map(|root| std::fs::read_to_string(Path::new(root).join(switches)).ok());
    let tracepoints: Vec<_> = ["1"].into_iter().chain(number.as_deref().map(str::trim)).collect();
    let (socket, tracepoints) = (service.socket().display().to_string(), tracepoints.join(","));
    let role = format!("compares:{socket},{};{tracepoints}", list.join(","));
    let said = said_by(as_user(&program, &role, capabilities), service);
    let compared = said.lines().filter(|line| line.starts_with("compared")).count();
    assert!(compared >= 8 * (tasks.len() + 2), "{compared}: {said}");
}

#[test]
fn the_service_allows_what_the_kernel_would() {
    skip_unless!(root() && commands_are_programs());
    let service = Service::start();
    let folder = folder_with(0o755);
    // A user that may execute a program and not read it may not look into the process either. Any user who executes the last one gets
    // root's rights.
    let [plain, unreadable, privileged] = [0o755, 0o711, 0o4755].map(|mode| copy_with(folder.path(), "sleep", mode));
    let sleepers = [
        sleeper(&privileged, USER),
        sleeper(&plain, USER),
        sleeper(&unreadable, USER),
        sleeper(&plain, OTHER),
        sleeper(&plain, 0),
    ];
    let mut tasks: Vec<_> = sleepers.iter().map(|sleeper| sleeper.0.id()).collect();
    tasks.extend([1, service.pid().cast_unsigned(), 4_000_000]);
    compare(&service, &tasks, &[]);
    if setpriv() {
        // CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, and one that has nothing to do with it.
        for capabilities in [&[19][..], &[21], &[38], &[10], &[19, 38]] {
            compare(&service, &tasks, capabilities);
        }
    }
    service.is_empty();
}

/// Check and open are one call of the kernel: a process that executes a set-user-id program between them is not looked into.
#[test]
fn a_program_with_more_rights_is_not_counted() {
    let Some(service) = Service::of_root("") else { return };
    let (folder, program) = program();
    let Some(helper) = privileged(&folder.path("")) else { return };
    let role = format!("races-exec:{},{},40", service.socket().display(), helper.display());
    let said = said_by(as_user(&program, &role, &[]), &service);
    let line = said.lines().find(|line| line.starts_with("opened ")).unwrap();
    println!("{line}");
    assert!(line.ends_with(" seen 0"), "{line}");
    assert!(!line.starts_with("opened 0 "), "some were asked for before their exec: {line}");
    service.is_empty();
}

/// What a set-user-id program holds in its memory is in no sample of the user who starts it.
#[test]
fn a_program_with_more_rights_is_not_sampled() {
    skip_unless!(root() && common::program("cc"));
    let (folder, program) = program();
    let plain = common::cc(folder.path(""), "plain", include_str!("common/secret.c"), &["-O1"]);
    set_mode(&plain, 0o755);
    let privileged = copy_with(&folder.path(""), &plain, 0o4755);
    let mut child = Command::new(&privileged);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).uid(USER).gid(USER);
    let mut child = Killed(child.spawn().unwrap());
    child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    skip_unless!(gains_root(&child.0));
    drop(child);
    let service = Service::start();
    let samples = |of: &Path, wanted: u32| {
        let role = format!("samples-stacks:{},{},{wanted}", service.socket().display(), of.display());
        let said = said_by(as_user(&program, &role, &[]), &service);
        println!("{said}");
        said
    };
    // The same program without the rights shows that it would be seen.
    let said = samples(&plain, u32::MAX);
    assert!(!said.contains("seen 0"), "{said}");
    let said = samples(&privileged, 15);
    assert!(said.contains("subscribed 15 ") && said.contains(" seen 0\n"), "{said}");
    service.is_empty();
}

/// Rights go by the process that asks, as it is when it asks: a connection of root's is worth nothing to others.
#[test]
fn a_connection_that_is_passed_on_keeps_nothing() {
    let Some(service) = Service::of_root("") else { return };
    let (_folder, program) = program();
    // To another process; of another user, and of the same one, for a task of root's and for a CPU.
    for (user, task) in [(USER, 0), (USER, 1), (0, 0)] {
        let mut client = service.client();
        client.open(on_task(1, &[faults()]));
        let mut command = as_member(&program, &format!("asks-on-stdin:{task}"), (user, user));
        command.stdin(client.channel.as_fd().try_clone_to_owned().unwrap());
        let said = said_by(command, &service);
        assert!(said.contains("refused: ") && said.contains("another process"), "{said}");
        assert!(client.until_the_end().is_empty(), "the connection is closed");
    }
    // The same process, which has given up being root.
    let role = format!("connects-then-becomes:{},{},{USER}", service.socket().display(), program.display());
    let said = said_by(role::command_of(&program, &role), &service);
    assert!(said.contains("refused: "), "{said}");
    service.is_empty();
}

/// It is still root's number, without root's rights: what it asks for from now on is paid for by another account.
#[test]
fn a_root_that_gives_up_its_rights_has_to_connect_anew() {
    skip_unless!(root() && setpriv());
    let service = Service::start();
    let role = format!("connects-then-gives-up:{}", service.socket().display());
    let said = said_by(role::command(&role), &service);
    assert!(said.contains("refused: ") && said.contains("has given up rights"), "{said}");
    service.is_empty();
}

/// The number of a client that has ended is not the client, whatever process has it now.
#[test]
fn a_number_that_is_used_again_gives_nothing() {
    skip_unless!(root());
    // No other process can get the number, and none gets one that was in use a moment ago.
    let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new("unshare").args(unshare).arg("true").status();
    skip_unless!(needs("root", "unshare(1) and PID namespaces", may.is_ok_and(|status| status.success())));
    let (_folder, program) = program();
    let words = role::words(&format!("reuses-a-number:{}", program.display()));
    let ran = Command::new("unshare").args(unshare).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("refused: ") && said.contains("another process"), "{said}");
}

/// A process that may count everything, and is not root, has files of counters that only its like depend on.
#[test]
fn root_depends_on_no_counter_of_a_cap_perfmon_holder() {
    skip_unless!(root() && setpriv());
    let (folder, program) = program();
    let service = Service::start();
    let role = format!("holds-a-cpu:{},{}", service.socket().display(), folder.text(""));
    let _child = Killed(as_user(&program, &role, &[38]).stdout(Stdio::null()).spawn().unwrap());
    assert_eq!(folder.read("here"), "1", "files: it could have opened the event itself");
    let mut own = service.client();
    own.open(on_cpu(0, &[faults()]));
    has_events(&service, 2, 2);
}

/// A group that the configuration names no more loses what it was given.
#[test]
fn a_right_that_is_taken_away_ends_what_was_open_by_it() {
    let Some(service) = Service::of_root(&format!("[rights]\nsystem_wide = [{USER}]\n")) else { return };
    let (folder, program) = program();
    let role = format!("holds-a-cpu:{},{}", service.socket().display(), folder.text(""));
    let child = as_user(&program, &role, &[]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(folder.read("here"), "0", "files");
    service.configure("");
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("lost: ") && said.contains("system_wide"), "{said}");
    service.is_empty();
}

#[test]
fn a_group_of_the_configuration_may_count_cpus() {
    let Some(service) = Service::of_root(&format!("[rights]\nsystem_wide = [{USER}]\n")) else { return };
    let (_folder, program) = program();
    let ask = |group: u32| {
        let role = format!("counts-cpus:{}", service.socket().display());
        said_by(as_member(&program, &role, (USER, group)), &service)
    };
    // The kernel's file of what the client may not open itself stays here.
    assert!(ask(USER).contains("opened with 0 files"), "{}", ask(USER));
    assert!(ask(OTHER).contains("refused: Rights 13"), "{}", ask(OTHER));
}

#[test]
fn no_client_depends_on_a_counter_that_a_user_can_stop() {
    let Some(service) = Service::of_root("") else { return };
    let (folder, program) = program();
    let role = format!("holds-events:3,{},{}", service.socket().display(), folder.text(""));
    let child = Killed(as_user(&program, &role, &[]).stdout(Stdio::null()).spawn().unwrap());
    folder.read("here");
    has_events(&service, 3, 1);
    // He has the file of that one. Root, who asks the same, gets another counter, and root's is shared by all of root's.
    let mut clients = [service.client(), service.client()];
    for client in &mut clients {
        client.open(on_task(child.0.id().cast_signed(), &[faults()]));
    }
    has_events(&service, 5, 2);
}

/// The kernel ends the events of a task that executes a set-user-id program. Those that are opened afterwards count.
#[test]
fn what_a_set_user_id_program_ended_is_shared_with_no_new_client() {
    skip_unless!(root() && commands_are_programs());
    let service = Service::start();
    let folder = open_door();
    let shell = folder.path("elevated");
    assert!(Command::new("cp").args(["-L", "/bin/sh"]).arg(&shell).status().unwrap().success());
    set_mode(&shell, 0o4755);
    // With `-p` a shell keeps the rights that it was given. Each fork makes it fault on pages that it shares with its child.
    let script =
        ": > here; until [ -e go ]; do sleep 0.01; done; (:); (:); : > done; until [ -e leave ]; do sleep 0.01; done";
    let mut command = Command::new("sh");
    command.args(["-c", "read go; exec \"$0\" -p -c \"$1\""]).arg(&shell).arg(script).current_dir(folder.path(""));
    let child = command.uid(USER).gid(USER).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Killed(child) = &mut Killed(child.unwrap());
    let task = child.id().cast_signed();
    let ask = || {
        let mut client = service.client();
        let group = [faults(), faults()];
        let single = client.open(on_task(task, &group[..1])).handles[0];
        let leader = client.open(on_task(task, &group)).handles[0];
        client.does(single, EventOp::Enable);
        client.does(leader, EventOp::EnableGroup);
        (client, [single, leader])
    };
    let (mut before, ended) = ask();
    let values = |client: &mut ServiceClient, handles: &[_]| {
        client.read(handles).into_iter().map(|moment| moment.totals.value).collect::<Vec<_>>()
    };
    writeln!(child.stdin.as_ref().unwrap(), "go").unwrap();
    eventually("the program runs", || folder.path("here").exists().then_some(()));
    let (mut after, handles) = ask();
    let ended_at = values(&mut before, &ended);
    folder.post("go");
    eventually("it has faulted", || folder.path("done").exists().then_some(()));
    let counted = values(&mut after, &handles);
    assert!(counted.iter().all(|&faults| faults > 0), "{counted:?}");
    assert_eq!(values(&mut before, &ended), ended_at, "what the kernel has ended stands");
    folder.post("leave");
    assert!(child.wait().unwrap().success());
}

#[test]
fn status_hides_requests_of_other_users() {
    let Some(service) = Service::of_root("") else { return };
    let mut own = service.client();
    own.open(on_task(1, &[faults()]));
    let (_folder, program) = program();
    let said = said_by(as_user(&program, &format!("asks-status:{}", service.socket().display()), &[]), &service);
    let line = said.lines().find_map(|line| line.strip_prefix("status ")).unwrap();
    let status: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(status["clients"]["hidden"], 1, "{status}");
    assert_eq!(status["clients"]["list"].as_array().unwrap().len(), 1, "{status}");
    assert!(status["questions"].get("list").is_none(), "{status}");
    assert_eq!(status["events"]["asked"], 1);
}

/// The sentence about groups of the configuration is for clients that such a group would help.
#[test]
fn a_group_is_named_to_clients_that_it_would_help() {
    let Some(service) = Service::of_root(&format!("[rights]\nsystem_wide = [{USER}]\n")) else { return };
    skip_unless!(needs("rules", "kernel.perf_event_paranoid of at least 1", common::paranoid() >= 1));
    let folder = folder_with(0o777);
    let program = copy_with(folder.path(), common::PMUX, 0o755);
    let says = |group: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).uid(OTHER).gid(group).current_dir(folder.path()).env("PMUX_SOCKET", service.socket());
        let ran = command.output().unwrap();
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let sentence = "members of the groups that its configuration names";
    for events in ["page-faults", "cpu-clock"] {
        let counts = ["stat", "--shared=auto", "-a", "-e", events, "--", "true"];
        assert!(says(OTHER, &counts).contains(sentence), "{events}: {}", says(OTHER, &counts));
        assert!(!says(USER, &counts).contains(sentence), "{events}: {}", says(USER, &counts));
    }
    for group in [USER, OTHER] {
        let records = ["record", "--shared=auto", "-a", "-e", "page-faults", "--", "true"];
        let said = says(group, &records);
        assert!(said.contains("perf_event_paranoid") && !said.contains(sentence), "{said}");
    }
}

/// The kernel ends all events of a task that executes a set-user-id program, or one that its user may not read, also those of root.
#[test]
fn an_exec_that_ends_counting_is_told() {
    skip_unless!(root() && common::program("setpriv") && commands_are_programs());
    let folder = folder_with(0o755);
    let copy = |name: &str, mode: u32| copy_with(folder.path(), name, mode).to_str().unwrap().to_owned();
    let becomes_root = unprivileged().args([copy("id", 0o4755), "-u".to_owned()]).run().text().trim() == "0";
    skip_unless!(needs("set-user-id", "set-user-id programs", becomes_root));
    let own = copy(common::PMUX, 0o755);
    let service = Service::start();
    let (gains, unreadable) = (copy("sleep", 0o4755), copy("sleep", 0o711));
    // Where no event can be had, an exec of a program that is only not readable leaves no trace.
    for (way, program) in
        [("user", &gains), ("root", &gains), ("refused", &gains), ("user", &unreadable), ("root", &unreadable)]
    {
        let sync_dir = open_door();
        let [here, go] = ["here", "go"].map(|name| sync_dir.text(name));
        let line = format!("echo $$ >'{here}'; until [ -e '{go}' ]; do sleep 0.01; done; exec {program} 1000");
        let target = unprivileged().args(["sh", "-c", &line]).spawn();
        let pid = sync_dir.read("here");
        let waits = waits(&sync_dir, "with");
        let words = ["-p", &pid, "--", "sh", "-c", &waits];
        let stat = ["stat", "--shared=always", "-e", "page-faults:u"];
        let counted = |start: Start| start.env("PMUX_SOCKET", service.socket()).args(stat).args(words).spawn();
        let counting = match way {
            "user" => Ok(counted(unprivileged().args([&own]))),
            "root" => Ok(counted(common::pmux([""; 0]))),
            _ => Err(where_all_is_refused("always", &service.socket(), &sync_dir, &words)),
        };
        eventually("it has begun", || sync_dir.path("with").exists().then_some(()));
        assert_eq!(service.status()["events"]["asked"], 1, "{way}");
        sync_dir.post("go");
        let comm = format!("/proc/{pid}/comm");
        eventually("it executes the program", || {
            std::fs::read_to_string(&comm).unwrap().starts_with("sleep-").then_some(())
        });
        sync_dir.post("end");
        let said = match counting {
            Ok(running) => running.wait().good().err,
            Err(mut refused) => {
                assert!(refused.wait().unwrap().status.success());
                std::fs::read_to_string(sync_dir.path("out")).unwrap()
            }
        };
        signal(&pid, "KILL");
        target.wait();
        let expected = format!("counting ended when process {pid} executed a set-user-id program");
        let unwrapped = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(&expected), "{way}, {program}: {said}");
    }
    service.is_empty();
}
