//! Recorders of `pmux serve`: what the configuration says of them, at the start and at a reload, and who may ask them.

use crate::common::service::Service;
use crate::common::{self, hostile};
use crate::common::{Start, eventually, pmux, program, root, skip_unless};
use crate::off_cpu;
use serde_json::Value;
use std::path::Path;

/// A recorder that writes here.
pub(crate) fn recorder(name: &str, folder: &Path, more: &str) -> String {
    let folder = folder.join(name);
    format!("[[recorder]]\nname = \"{name}\"\nevents = [\"cpu-clock\"]\ndirectory = \"{}\"\n{more}\n", folder.display())
}

fn ask(service: &Service, words: &[&str]) -> Start {
    pmux(words).env("PMUX_SOCKET", service.socket())
}

/// What the service says of a recorder.
fn status_of(service: &Service, name: &str) -> Option<Value> {
    let status = service.status();
    status["recorders"].as_array()?.iter().find(|of| of["name"] == name).cloned()
}

pub(crate) fn is_on(service: &Service, name: &str) {
    eventually(name, || (status_of(service, name)?["state"] == "on").then_some(()));
}

fn dump(service: &Service, name: &str) -> String {
    ask(service, &["flight", "dump", "--recorder", name]).run().good().text().trim_end().to_owned()
}

#[test]
fn recorders_come_and_go_with_the_configuration() {
    skip_unless!(root());
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (recorder("one", folder.path(), ""), recorder("two", folder.path(), "keep = \"1MiB\""));
    let mut service = Service::with(&format!("{one}{two}"));
    is_on(&service, "one");
    is_on(&service, "two");
    let path = dump(&service, "one");
    assert!(Path::new(&path).starts_with(folder.path().join("one")) && Path::new(&path).exists(), "{path}");
    service.says("recorder one: a snapshot was asked for by user 0");
    let list = ask(&service, &["flight", "list"]).run().good().text();
    for line in ["one ", "two "] {
        assert!(list.lines().any(|of| of.starts_with(line)), "{line}: {list}");
    }
    let page = ask(&service, &["status"]).run().good().text();
    assert!(page.contains("recorders") && page.contains("1 MiB a CPU"), "{page}");

    // One changes, one goes, one stays as it is, one comes.
    let up = |name: &str| status_of(&service, name).unwrap()["up_s"].as_f64().unwrap();
    let before = up("one");
    let three = recorder("three", folder.path(), "keep = \"2s\"");
    service.configure(&format!("{one}{three}"));
    is_on(&service, "three");
    assert!(up("one") >= before, "it was not started anew");
    assert_eq!(status_of(&service, "two"), None);
    ask(&service, &["flight", "dump", "--recorder", "two"]).run().bad(125, &["there is no recorder `two`"]);

    // What makes no sense changes nothing.
    service.configure(&recorder("three", folder.path(), "keep = \"30\""));
    service.says("the configuration stays as it was");
    dump(&service, "three");
    assert_eq!(service.stop(), 0);
    let left: Vec<_> = std::fs::read_dir(service.folder().join("flight")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn waits_of_all_threads_are_kept() {
    skip_unless!(root() && off_cpu::sees_waits() && off_cpu::looks_at_tasks());
    let folder = tempfile::tempdir().unwrap();
    let sleeps = common::start("sleep", ["1000"]).spawn();
    let service = Service::with(&recorder("waits", folder.path(), "off_cpu = \"1ms\""));
    is_on(&service, "waits");
    let waits = eventually("the wait", || off_cpu::waits(Path::new(&dump(&service, "waits"))).remove("sleep"));
    assert!(waits["[sleep]"] > 0, "{waits:?}");
    drop(sleeps);
}

#[test]
fn one_that_cannot_start_is_tried_again() {
    skip_unless!(root());
    let folder = tempfile::tempdir().unwrap();
    let missing = recorder("missing", folder.path(), "cgroup = \"pmux-no-such-group\"");
    let good = recorder("good", folder.path(), "");
    let service = Service::with(&format!("{missing}{good}"));
    is_on(&service, "good");
    service.says("recorder missing: can't start, and is tried again");
    let status = status_of(&service, "missing").unwrap();
    assert!(status["why"].as_str().unwrap().contains("pmux-no-such-group"), "{status}");
    ask(&service, &["status"]).run().good();
}

#[test]
fn triggers_of_a_recorder_do_what_they_say() {
    skip_unless!(root());
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let on = format!(
        "on = [{{ trigger = \"rate(context-switches) > 0/s\", actions = \"set fine on; snapshot; run echo {{}} > {}\" }}]\n\
         set = [\"fine={{page-faults}}\"]\ncool_down = \"1h\"",
        told.display()
    );
    let service = Service::with(&recorder("watchful", folder.path(), &on));
    let path = eventually("the command", || std::fs::read_to_string(&told).ok().filter(|text| text.ends_with('\n')));
    assert!(Path::new(path.trim_end()).exists(), "{path}");
    service.says("recorder watchful: set fine is on");
}

#[test]
fn others_may_not_ask() {
    skip_unless!(root() && program("setpriv"));
    let folder = tempfile::tempdir().unwrap();
    let service = Service::with(&format!("[rights]\nsystem_wide = [4321]\n{}", recorder("one", folder.path(), "")));
    is_on(&service, "one");
    // Another user must be able to execute it.
    let program = common::copy_with(service.folder(), common::PMUX, 0o755);
    let as_user = |groups: &[&str]| {
        let start = common::start("setpriv", ["--reuid=65534", "--regid=65534"]).args(groups).args([&program]);
        start.args(["flight", "dump", "--recorder", "one"]).env("PMUX_SOCKET", service.socket()).run()
    };
    as_user(&["--clear-groups"]).bad(125, &["only root, the service's user and the groups of `rights.system_wide`"]);
    as_user(&["--groups=4321"]).good();
    // Root's number is not root's rights.
    let root = common::start("setpriv", ["--bounding-set", "-all", "--inh-caps", "-all"]).args([&program]);
    let root = root.args(["flight", "dump", "--recorder", "one"]).env("PMUX_SOCKET", service.socket());
    root.run().bad(125, &["only root, the service's user and the groups of `rights.system_wide`"]);
    // Nor do they keep others from asking.
    let door = hostile::open_door();
    let socket = service.folder().join("flight/one.sock");
    let role = hostile::as_user(65_517, &format!("floods:{},{}", socket.display(), door.text("")));
    door.read("floods");
    let status = pmux(["flight", "status", "--recorder", "one"]).env("PMUX_SOCKET", service.socket());
    status.run().good();
    std::fs::write(door.path("leave"), "").unwrap();
    hostile::said_by(role, &service);
}
