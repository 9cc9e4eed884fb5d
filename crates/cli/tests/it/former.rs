//! This `pmux` and one of an earlier commit: the client of one with the service of the other, and a service that the other one replaces.
//!
//! What it is: `ci/former` builds the other one, and starts these tests; by themselves they are skipped.
//! Read first: [`former`].

use crate::common::recording::Content;
use crate::common::records::{Reading, names, on_threads, rename, subscribe};
use crate::common::service::{Service, own};
use crate::common::{self, Cgroup, PMUX, SyncDir, eventually, kernel, needs, root, skip_unless, start};
use crate::flight_serve::{is_on, recorder};
use crate::shared::{Worker, ended, faults, measure, requests};
use std::path::{Path, PathBuf};

/// The folder with `pmux` and `pmux.toml` of the former release.
fn former() -> Option<PathBuf> {
    let folder = std::env::var_os("PMUX_FORMER").map(PathBuf::from);
    needs("former", "PMUX_FORMER=FOLDER, as ci/former sets it", folder.is_some()).then_some(folder).flatten()
}

/// Both ways: each is a service's program, and a client's. Nothing where there is no former one, or no kernel to count in.
fn pairs() -> Vec<(PathBuf, PathBuf)> {
    let (now, Some(former)) = (PathBuf::from(PMUX), former()) else { return Vec::new() };
    let former = former.join("pmux");
    assert_ne!(std::fs::read(&former).unwrap(), std::fs::read(&now).unwrap(), "they are two");
    if kernel() { vec![(now.clone(), former.clone()), (former, now)] } else { Vec::new() }
}

fn of(program: &Path, words: &[&str], service: &Service) -> common::Start {
    start(program, words).env("PMUX_SOCKET", service.socket())
}

#[test]
fn each_counts_through_the_other() {
    for (serving, asking) in pairs() {
        for config in ["", "[rights]\nfiles = \"never\"\n"] {
            let service = Service::of(&serving, config);
            let (sync_dir, mut worker) = (SyncDir::new(), Worker::start());
            let pid = worker.pid();
            let target = ["-x,", "-e", "{page-faults:u,minor-faults:u}", "-p", &pid];
            let with = measure(&sync_dir, "with", of(&asking, &["stat", "--shared=always"], &service), &target);
            let without = measure(&sync_dir, "without", common::stat(["--shared=never"]), &target);
            let status = service.status();
            assert_eq!(status["events"]["asked"], 2, "{status}");
            let shown = of(&asking, &["status"], &service).run().good().text();
            assert!(shown.contains("minor-faults:u"), "{shown}");
            worker.works(100);
            let [with, without] = ended(&sync_dir, [with, without]);
            for event in ["page-faults:u", "minor-faults:u"] {
                assert_eq!(with.value(event), without.value(event), "{config}");
                assert!(with.value(event) >= 100.0);
            }
        }
    }
}

#[test]
fn cpus_and_cgroups_are_counted() {
    for (serving, asking) in pairs() {
        skip_unless!(root());
        let Some(cgroup) = Cgroup::of_events("former") else { return };
        let service = Service::of(&serving, "");
        let (sync_dir, mut worker) = (SyncDir::new(), Worker::start());
        cgroup.take_in(worker.pid().parse().unwrap());
        let counts = |name: &str, more: &[&str]| {
            let target = [&["-x,", "-e", "page-faults", "-a"], more].concat();
            measure(&sync_dir, name, of(&asking, &["stat", "--shared=always"], &service), &target)
        };
        let running = [counts("everywhere", &[]), counts("in_group", &["-G", cgroup.name()])];
        worker.works(100);
        let [everywhere, in_group] = ended(&sync_dir, running).map(|ran| ran.value("page-faults"));
        assert!(everywhere >= in_group && in_group >= 100.0, "{everywhere} {in_group}");
    }
}

#[test]
fn records_go_both_ways() {
    for (serving, asking) in pairs() {
        let service = Service::of(&serving, "");
        let (sync_dir, mut worker) = (SyncDir::new(), Worker::start());
        let (pid, file) = (worker.pid(), sync_dir.path("perf.data"));
        let words = ["record", "--shared=always", "-g", "-e", "page-faults:u", "-c", "1", "-p", &pid, "-o"];
        let running = of(&asking, &words, &service).args([&file]).spawn();
        eventually("it records", || (service.status()["records"]["kernel_events"] != 0).then_some(()));
        eventually("it has something", || {
            worker.works(50);
            (std::fs::metadata(&file).ok()?.len() > 16 * 1024).then_some(())
        });
        running.signal("INT");
        running.wait().good();
        // Each of the two reads what either has written.
        for reading in [&serving, &asking] {
            let report = of(reading, &["report", "--stdio", "-i"], &service).args([&file]).run().good().text();
            assert!(report.contains("page-faults"), "{report}");
            assert!(report.lines().any(|line| line.split_whitespace().any(|word| word == "sh")), "{report}");
        }
        assert!(Content::read(&file).times.values().map(Vec::len).sum::<usize>() > 50);
    }
}

/// The library's client, which is that of today.
#[test]
fn a_subscription_goes_on_when_the_service_is_replaced() {
    for (first, second) in pairs() {
        let mut service = Service::of(&first, "");
        let mut one = subscribe(&service, &on_threads(vec![own()], names()));
        one.enable().unwrap();
        rename(&["before".to_owned()]);
        let mut read = Reading::default();
        read.until_named(&mut one);
        assert_eq!(service.stop(), 0);
        service.replaced_by(&second);
        read.until("it is back", &mut one, |_, one| one.lives() == 2 && one.fd().is_some());
        rename(&["after".to_owned()]);
        one.disable().unwrap();
        read.take(&mut one);
        assert_eq!(read.names(), ["before", "after"]);
    }
}

#[test]
fn counting_goes_on_when_one_replaces_the_other() {
    for (first, second) in pairs() {
        for (asking, keeps) in [(&first, "own"), (&second, "own"), (&first, "never"), (&second, "never")] {
            let is_new = asking == Path::new(PMUX);
            let mut service = Service::of(&first, &format!("[rights]\nfiles = \"{keeps}\"\n"));
            let (sync_dir, mut worker) = (SyncDir::new(), Worker::start());
            let pid = worker.pid();
            let target = ["-e", "{page-faults:u,minor-faults:u}", "-i", "-p", &pid];
            let running = of(asking, &["stat", "--shared=always", "-I", "20"], &service);
            let running = measure(&sync_dir, "with", running, &target);
            let whole = measure(&sync_dir, "without", common::stat(["--shared=never"]), &target);
            worker.works(50);
            assert_eq!(service.stop(), 0);
            service.replaced_by(&second);
            // Who reads on from the files of the first asks for nothing here; others say hello, open, and enable both.
            let reads_on = keeps == "own" && is_new;
            let is_back =
                || if reads_on { service.status()["clients"]["connected"] == 2 } else { requests(&service) >= 4 };
            eventually("it has connected again", || is_back().then_some(()));
            let rest = measure(&sync_dir, "rest", common::stat(["--shared=never"]), &target);
            worker.works(50);
            let [ran, whole, rest] = ended(&sync_dir, [running, whole, rest]).map(|ran| ran.err);
            let (counted, all, at_least) = (faults(&ran), faults(&whole), faults(&rest));
            assert!(counted <= all && at_least >= 50, "{ran}\n{whole}\n{rest}");
            if reads_on {
                assert_eq!(counted, all, "nothing is lost: {ran}\n{whole}");
            } else {
                assert!(counted == all || ran.contains("the sharing service was away"), "{ran}\n{whole}");
                assert!(counted >= 50 + at_least, "what came before, and what came after: {ran}\n{whole}\n{rest}");
            }
        }
    }
}

#[test]
fn recorders_are_asked_by_either() {
    for (serving, asking) in pairs() {
        skip_unless!(root());
        let folder = tempfile::tempdir().unwrap();
        let service = Service::of(&serving, &recorder("one", folder.path(), ""));
        is_on(&service, "one");
        let list = of(&asking, &["flight", "list"], &service).run().good().text();
        assert!(list.lines().any(|line| line.starts_with("one ")), "{list}");
        let path = of(&asking, &["flight", "dump", "--recorder", "one"], &service).run().good().text();
        let path = Path::new(path.trim_end()).to_owned();
        assert!(path.starts_with(folder.path()) && path.exists(), "{}", path.display());
        of(&asking, &["report", "--stdio", "-i"], &service).args([&path]).run().good();
    }
}

#[test]
fn what_configured_the_former_service_configures_this_one() {
    let Some(former) = former() else { return };
    let check = ["serve", "--check", "--config"];
    start(PMUX, check).args([former.join("pmux.toml")]).run().good();
    // A downgrade: the other one takes this, or names the keys that it does not know.
    let defaults = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/pmux.toml");
    let ran = start(former.join("pmux"), check).args([&defaults]).run();
    assert!(ran.status.success() || ran.err.contains("unknown"), "{}", ran.err);
}
