//! Programs in containers, which know nothing of pmux: `pmux run --container`, and `pmux serve` as the seccomp agent.

use crate::common::service::Service;
use crate::common::{
    CommandResult, PMUX, Running, SyncDir, eventually, folder_with, linux_is_at_least, needs, paranoid, program, role,
    set_mode, skip_unless, start,
};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a profile allows that pmux is added to.
#[derive(Clone, Copy)]
enum Profile {
    /// All that it does not name.
    Allows,
    /// Nothing but the calls that it names, as those of container engines do.
    Denies,
}

/// Folders for containers, and a copy of the test as their program.
struct Host {
    folder: tempfile::TempDir,
    agent: PathBuf,
}

impl Host {
    fn new(service: &Service) -> Self {
        let folder = folder_with(0o755);
        let caller = folder.path().join("program");
        fs::create_dir(&caller).unwrap();
        role::copy(&caller.join("caller"));
        let agent = service.folder().join("seccomp.sock");
        service.configure(&format!("[containers]\nlisten = \"{}\"\n", agent.display()));
        service.says("containers are taken in at ");
        Self { folder, agent }
    }

    /// The profile, with what `dist/oci/pmux.jq` makes of it.
    fn profile(&self, profile: Profile) -> Value {
        let before = match profile {
            Profile::Allows => json!({ "defaultAction": "SCMP_ACT_ALLOW" }),
            Profile::Denies => json!({
                "defaultAction": "SCMP_ACT_ERRNO",
                "syscalls": [{ "names": call_names(), "action": "SCMP_ACT_ALLOW" }],
            }),
        };
        let filter = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/oci/pmux.jq");
        let mut made = start("jq", ["-f", filter]).input(before.to_string()).run().good().document();
        assert_eq!(made["listenerPath"], "/run/pmux/seccomp.sock");
        made["listenerPath"] = self.agent.to_str().unwrap().into();
        made
    }

    /// A container that plays a role, as a user with these capabilities.
    fn container(&self, name: &str, profile: Profile, rights: (u32, &[&str]), words: &str) -> Running {
        self.container_in(&["pid", "mount", "ipc", "uts"], name, profile, rights, words)
    }

    /// The same with these namespaces of its own.
    fn container_in(
        &self,
        namespaces: &[&str],
        name: &str,
        profile: Profile,
        (user, capabilities): (u32, &[&str]),
        words: &str,
    ) -> Running {
        let bundle = self.folder.path().join(name);
        let root = bundle.join("rootfs");
        let bind = |from: &Path, to: &str| {
            fs::create_dir_all(root.join(to.trim_start_matches('/'))).unwrap();
            json!({ "destination": to, "source": from, "type": "bind", "options": ["rbind"] })
        };
        let system = ["/usr", "/lib", "/lib64", "/bin"].map(Path::new);
        let mut mounts: Vec<_> =
            system.iter().filter(|at| at.exists()).map(|at| bind(at, at.to_str().unwrap())).collect();
        mounts.push(bind(&self.folder.path().join("program"), "/program"));
        mounts.push(bind(self.door(name).path("").as_path(), "/door"));
        for (at, kind) in [("/proc", "proc"), ("/dev", "tmpfs")] {
            mounts.push(json!({ "destination": at, "source": kind, "type": kind }));
            fs::create_dir_all(root.join(&at[1..])).unwrap();
        }
        let sets = ["bounding", "effective", "permitted", "inheritable", "ambient"];
        let capabilities: Value = sets.iter().map(|set| ((*set).to_owned(), json!(capabilities))).collect();
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "args": role::of(Path::new("/program/caller"), words).iter().map(|word| word.to_str()).collect::<Vec<_>>(),
                "cwd": "/",
                "env": ["PATH=/usr/bin:/bin"],
                "user": { "uid": user, "gid": user },
                "capabilities": capabilities,
                "noNewPrivileges": true,
            },
            "root": { "path": "rootfs" },
            "mounts": mounts,
            "linux": {
                "namespaces": namespaces.iter().map(|kind| json!({ "type": kind })).collect::<Vec<_>>(),
                "seccomp": self.profile(profile),
            },
        });
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        // The runtime wants the second version of cgroups alone, which not every machine has.
        let script = "mount --make-rprivate / && mount -t cgroup2 none /sys/fs/cgroup &&
            exec crun --root \"$0/state\" --cgroup-manager=disabled run -b \"$0/$1\" \"$1\"";
        let folder = self.folder.path().to_str().unwrap();
        start("unshare", ["-m", "sh", "-c", script, folder, name]).spawn()
    }

    /// A folder that a container and the test have in common.
    fn door(&self, name: &str) -> SyncDir {
        let folder = self.folder.path().join(name).join("door");
        fs::create_dir_all(&folder).unwrap();
        set_mode(&folder, 0o777);
        SyncDir::at(folder)
    }
}

/// The names of all calls that this machine's C compiler knows, but for the one that container engines deny.
fn call_names() -> Vec<String> {
    let known = start("cc", ["-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"]).run().good().text();
    let names = known.lines().filter_map(|line| line.strip_prefix("#define SYS_")?.split(' ').next());
    names.filter(|name| *name != "perf_event_open").map(str::to_owned).collect()
}

/// What a role has printed, behind what the test says of itself.
fn said(container: Running) -> String {
    let text = container.wait().good().text();
    text.split_once(" ... ").map_or(text.clone(), |(_, said)| said.to_owned())
}

fn tools() -> bool {
    program("crun") && program("jq") && program("unshare") && program("cc")
}

/// Nothing but what the kernel allows to itself; the same without a listener is refused whole.
#[test]
fn a_container_without_rights_profiles_itself_and_nothing_else() {
    let Some(service) = Service::of_root("") else { return };
    skip_unless!(tools());
    let host = Host::new(&service);
    for profile in [Profile::Allows, Profile::Denies] {
        let opens = host.container("itself", profile, (1000, &[]), "opens").wait().good();
        assert!(opens.text().contains("page-faults: opened, unknown: ENOENT"), "{}", opens.text());
        if paranoid() > 0 {
            let machine = host.container("machine", profile, (1000, &[]), "opens-cpu").wait().good();
            assert!(machine.text().contains("CPU 0: refused"), "{}", machine.text());
        }
    }
    service.is_empty();
}

/// What an administrator gives beyond the kernel's rule for all users is given for tasks of the container, and nothing else.
#[test]
fn a_container_may_be_given_more_on_its_own_tasks() {
    let Some(service) = Service::of_root("") else { return };
    skip_unless!(tools() && linux_is_at_least(6, 9));
    skip_unless!(needs("paranoid", "kernel.perf_event_paranoid at least 2", paranoid() >= 2));
    let host = Host::new(&service);
    let mut ran = 0;
    let mut opens = |level: &str, words: &str| {
        ran += 1;
        service.configure(&format!("[containers]\nlisten = \"{}\"\n{level}\n", host.agent.display()));
        // One for each reading of the configuration, the first one included.
        let read = || service.log().matches("the configuration was read anew").count() > ran;
        eventually("the configuration is read", || read().then_some(()));
        said(host.container(&format!("c{ran}"), Profile::Denies, (1000, &[]), words))
    };
    let refused =
        "itself: EACCES\na child: EACCES\nthe thread of another: EACCES\nno task: EACCES\na tracepoint: EACCES\n";
    assert_eq!(opens("", "opens-kernel"), refused);
    assert_eq!(opens("paranoid = 2", "opens-kernel"), refused);
    let granted = refused.replacen("EACCES", "opened", 3).replacen("EACCES", "ESRCH", 1);
    assert_eq!(opens("paranoid = 1", "opens-kernel"), granted);
    // Nothing of the machine, whose tasks a container in its PID namespace could name.
    assert_eq!(opens("paranoid = 1", "opens-cpu"), "CPU 0: refused\n");
    let of_host = host.container_in(&["mount", "ipc"], "host", Profile::Denies, (1000, &[]), "opens-kernel");
    assert_eq!(said(of_host), refused);
    service.configure("[containers]\nparanoid = 0\n");
    service.says("`containers.paranoid` is 0; it may be 1 or 2");
}

/// Equal events of containers are one event of the kernel; each container is a client of the service, by its name.
#[test]
fn containers_share_events_of_cpus() {
    let Some(mut service) = Service::of_root("") else { return };
    skip_unless!(tools());
    let host = Host::new(&service);
    let names = ["one", "other"];
    let start = |(name, profile)| host.container(name, profile, (0, &["CAP_PERFMON"]), "counts-cpu:/door");
    let running = names.into_iter().zip([Profile::Allows, Profile::Denies]).map(start).collect::<Vec<_>>();
    names.iter().for_each(|name| host.door(name).wait_for("here"));
    let status = service.status();
    assert_eq!((&status["events"]["asked"], &status["events"]["kernel"]), (&2.into(), &1.into()), "{status}");
    let clients = status["clients"]["list"].as_array().unwrap();
    let commands: Vec<_> = clients.iter().filter_map(|client| client["command"].as_str()).collect();
    assert!(commands.contains(&"run:one") && commands.contains(&"run:other"), "{commands:?}");
    // What answers for them outlives the service.
    service.kill();
    service.start_again();
    names.iter().for_each(|name| host.door(name).post("end"));
    let ended: Vec<CommandResult> = running.into_iter().map(Running::wait).collect();
    ended.into_iter().for_each(|ended| assert!(ended.good().text().contains("counted for "), "nothing counted"));
    service.is_empty();
}

/// What a runtime passes, in the place of a listener.
#[test]
fn what_is_no_container_is_refused() {
    let answer = |state: &[u8]| {
        let (mut runtime, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(PMUX);
        pmux_testkit::marked(&mut command).args(["run", "--container"]).stdin(OwnedFd::from(theirs));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // It has the other end, too.
        drop(command);
        // Of too much not all is read.
        let _ = runtime.write_all(state);
        drop(runtime);
        let ended = child.wait_with_output().unwrap();
        (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
    };
    let state = br#"{"fds":["seccompFd"],"state":{"id":"a"}}"#;
    for (state, text) in [
        (&b""[..], "is no state of a container"),
        (b"{\"fds\":", "is no state of a container"),
        (b"{}", "is no state of a container"),
        (state, "ENOENT"),
        (&[b' '; 2 << 20], "EMSGSIZE"),
    ] {
        let (status, said) = answer(state);
        assert_eq!(status, Some(125), "{said}");
        assert!(said.contains(text), "{said}");
    }
    start(PMUX, ["run", "--container", "true"]).run().bad(125, &["--container"]);
    // Its input is nothing that a message can come through.
    start(PMUX, ["run", "--container"]).run().bad(125, &["no runtime of a container"]);
}

/// The socket is its owner's; a path that can't be made is told of.
#[test]
fn only_a_runtime_may_pass_containers() {
    let Some(service) = Service::of_kernel("") else { return };
    let agent = service.folder().join("seccomp.sock");
    service.configure(&format!("[containers]\nlisten = \"{}\"\n", agent.display()));
    service.says("containers are taken in at ");
    assert_eq!(fs::metadata(&agent).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(service.status()["containers"]["at"], agent.to_str().unwrap());
    // One that passes nothing is told of, and others come all the same.
    drop(UnixStream::connect(&agent).unwrap());
    service.says("what came through standard input is no state of a container");
    service.says("that answered for a container has ended");
    service.configure("[containers]\nlisten = \"/nowhere/seccomp.sock\"\n");
    service.says("containers can't be taken in at /nowhere/seccomp.sock");
    service.configure("[containers]\nlisten = \"seccomp.sock\"\n");
    service.says("`containers.listen` must begin with a /");
    service.configure("");
    eventually("it is taken away", || (!agent.exists()).then_some(()));
}
