//! Pressure as a trigger: of a cgroup, and for a user without rights.
//!
//! **Invariant:** nothing depends on how fast the machine is: there is pressure until it is noticed.

use crate::common::{is_root, needs, role as roles, session};
use pmux::Target;
use pmux::trigger::{News, Reason, Rule, Setting, TriggerError, Triggers};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

pub(crate) fn role(name: &str, _: &str) {
    match name {
        "unprivileged" => unprivileged(),
        _ => panic!("there is no role {name}"),
    }
}

fn open(session: &pmux::Session, text: &str) -> Result<Triggers, TriggerError> {
    let rule = Rule::parse(text, None).unwrap_or_else(|error| panic!("{error}"));
    Triggers::open(session, &[rule], Setting::of(Target::CurrentThread))
}

/// A cgroup of version 2 with processes that want more CPUs than there are, until it is dropped.
struct Crowd {
    path: PathBuf,
    children: Vec<Child>,
}

impl Crowd {
    fn new(processes: usize) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            (fields[2] == "cgroup2").then(|| PathBuf::from(fields[1]))
        })?;
        let path = root.join(format!("pmux-pressure-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let mut crowd = Self { path, children: Vec::new() };
        for _ in 0..processes {
            let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            std::fs::write(crowd.path.join("cgroup.procs"), child.id().to_string()).unwrap();
            crowd.children.push(child);
        }
        Some(crowd)
    }

    fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_cgroup_under_pressure() {
    let Some(session) = session() else { return };
    let crowd = if is_root() { Crowd::new(3 * session.online().len()) } else { None };
    let there = crowd.as_ref().is_some_and(|crowd| crowd.path.join("cpu.pressure").exists());
    if !needs("psi", "root, and cgroups of version 2 with pressure stall information", there) {
        return;
    }
    let crowd = crowd.unwrap();
    let text = format!("psi:cpu:/{} some 50ms/2s", crowd.name());
    let mut triggers = open(&session, &text).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let fired = loop {
        assert!(Instant::now() < end, "nobody waited for a CPU");
        let news = triggers.wait(Some(end)).unwrap();
        if let Some(fired) =
            news.into_iter().find_map(|news| if let News::Fired(fired) = news { Some(fired) } else { None })
        {
            break fired;
        }
    };
    assert!(matches!(fired.reasons[..], [Reason::Pressure(_)]), "{fired}");
    assert_eq!(fired.to_string(), text);
    let error = open(&session, "psi:cpu:/no/such/cgroup some 50ms/2s").err().unwrap();
    assert!(error.to_string().contains("/no/such/cgroup"), "{error}");
}

/// As somebody who may not do much.
fn unprivileged() {
    let Some(session) = session() else { return };
    let error = open(&session, "psi:cpu some 20ms/500ms").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("2s, 4s, 6s, 8s or 10s") && error.contains("CAP_SYS_RESOURCE"), "{error}");
    match open(&session, "psi:cpu some 300ms/2s") {
        Ok(_) => println!("waits for 2s"),
        // Before Linux 6.5.
        Err(error) => assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}"),
    }
}

#[test]
fn a_user_without_rights() {
    let setpriv = Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success());
    let psi = Path::new("/proc/pressure/cpu").exists();
    if session().is_none()
        || !needs("root", "root, setpriv and pressure stall information", is_root() && setpriv && psi)
    {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(folder.path(), mode(0o755)).unwrap();
    let copy = folder.path().join("test");
    roles::copy(&copy);
    let mut program = Command::new("setpriv");
    program.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(roles::of(&copy, "pressure/unprivileged"));
    assert!(program.current_dir("/").status().unwrap().success());
}
