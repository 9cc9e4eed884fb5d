//! On fabricated mount tables and folders, and on this machine.

use std::fs;

use super::*;

struct Fake {
    folder: tempfile::TempDir,
    mounts: Mounts,
}

impl Fake {
    fn new(hierarchies: &[(&str, &str, &str)], files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().display().to_string();
        let mut table = String::from("22 27 0:21 / /proc rw,relatime - proc proc rw\nnonsense\n");
        for (place, kind, options) in hierarchies {
            fs::create_dir_all(folder.path().join(place)).unwrap();
            let escaped = place.replace(' ', "\\040");
            table += &format!("41 31 0:38 / {root}/{escaped} rw shared:3 - {kind} {kind} {options}\n");
        }
        for (name, text) in files {
            pmux_testkit::put(folder.path(), name, text);
        }
        let path = folder.path().join("mountinfo");
        fs::write(&path, table).unwrap();
        let mounts = Mounts::at(&path).unwrap();
        Self { folder, mounts }
    }

    fn at(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }
}

#[test]
fn names_are_found_below_the_mount_and_as_paths() {
    let fake = Fake::new(&[("uni fied", "cgroup2", "rw")], &[("uni fied/web/a/cpu.stat", "")]);
    assert_eq!(fake.mounts.for_events().unwrap(), fake.at("uni fied"));
    let path = fake.at("uni fied/web/a");
    for name in ["web/a", "/web/a", path.to_str().unwrap()] {
        let cgroup = fake.mounts.open(name).unwrap();
        assert_eq!((cgroup.name(), cgroup.path()), (name, path.as_path()));
        assert_eq!(cgroup.relative, Path::new("web/a"));
        assert!(cgroup.file().metadata().unwrap().is_dir());
    }
    assert_eq!(fake.mounts.open("/").unwrap().path(), fake.at("uni fied/"));
}

#[test]
fn each_failure_has_its_own_error() {
    let fake = Fake::new(
        &[("v2", "cgroup2", "rw"), ("perf", "cgroup", "rw,perf_event"), ("cpu", "cgroup", "rw,cpu,cpuacct")],
        &[("perf/file", ""), ("cpu/web/x", ""), ("other/x", "")],
    );
    let open = |name: &str| fake.mounts.open(name).unwrap_err();
    let path = fake.at("perf/none");
    assert_eq!(open("none"), CgroupError::NotFound { name: "none".into(), path });
    assert!(matches!(open("file"), CgroupError::NotDirectory { .. }));
    assert!(matches!(open("file/x"), CgroupError::NotDirectory { .. }));
    assert!(matches!(open(fake.at("other").to_str().unwrap()), CgroupError::NotCgroup { .. }));
    let wrong = open(fake.at("cpu/web").to_str().unwrap());
    assert!(matches!(&wrong, CgroupError::WrongHierarchy { wanted, .. } if *wanted == fake.at("perf")), "{wrong:?}");
    // With `perf_event` on v1, v2 carries no events.
    assert!(matches!(open(fake.at("v2").to_str().unwrap()), CgroupError::WrongHierarchy { .. }));
    assert_eq!(Mounts::parse("").open("x").unwrap_err(), CgroupError::NoFileSystem);
    assert!(matches!(Mounts::at(&fake.at("nothing")), Err(CgroupError::Io { errno: libc::ENOENT, .. })));
    assert!(open("none").to_string().starts_with("there is no cgroup `none`: "));
}

#[test]
fn v2_counts() {
    let fake = Fake::new(
        &[("v2", "cgroup2", "rw")],
        &[
            ("v2/web/cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnr_periods 0\n"),
            ("v2/web/memory.peak", "8192\n"),
            ("v2/web/memory.stat", "anon 1\npgfault 12\npgmajfault 2\n"),
            ("v2/web/pids.current", "3\n"),
            ("v2/bare/cgroup.procs", ""),
        ],
    );
    let web = fake.mounts.open("web").unwrap();
    let usage = CpuUsage { total_ns: 30_000, user_ns: 10_000, system_ns: 20_000 };
    assert_eq!(web.cpu_usage(), Ok(usage));
    assert_eq!((web.memory_peak_bytes(), web.page_faults()), (Ok(8192), Ok((12, 2))));
    let bare = fake.mounts.open("bare").unwrap();
    assert!(matches!(bare.cpu_usage(), Err(CgroupError::NoCount { count: "CPU time", .. })));
    assert!(matches!(bare.memory_peak_bytes(), Err(CgroupError::NoCount { .. })));
    fs::remove_dir_all(fake.at("v2/web")).unwrap();
    assert!(matches!(web.cpu_usage(), Err(CgroupError::NotFound { .. })));
    assert!(!web.exists());
}

#[test]
fn v1_counts_come_from_the_other_hierarchies() {
    let fake = Fake::new(
        &[
            ("perf", "cgroup", "rw,perf_event"),
            ("cpu", "cgroup", "rw,cpu,cpuacct"),
            ("mem", "cgroup", "rw,memory"),
            ("pids", "cgroup", "rw,pids"),
        ],
        &[
            ("perf/a/b/tasks", ""),
            ("cpu/a/b/cpuacct.usage", "30\n"),
            ("cpu/a/b/cpuacct.usage_user", "10\n"),
            ("cpu/a/b/cpuacct.usage_sys", "20\n"),
            ("mem/a/b/memory.max_usage_in_bytes", "77\n"),
            ("mem/a/b/memory.stat", "pgfault 1\ntotal_pgfault 5\ntotal_pgmajfault 1\n"),
            ("pids/a/b/pids.current", "4\n"),
        ],
    );
    let group = fake.mounts.open("a/b").unwrap();
    assert_eq!(group.cpu_usage(), Ok(CpuUsage { total_ns: 30, user_ns: 10, system_ns: 20 }));
    assert_eq!((group.memory_peak_bytes(), group.page_faults()), (Ok(77), Ok((5, 1))));
}

#[test]
fn mount_tables_never_panic() {
    assert_eq!(unescape(r"a\040b\134\9\04"), r"a b\\9\04");
    assert_eq!(unescape(r"\777"), r"\777", "more than a byte");
    let line = "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:3 - cgroup2 cgroup2 rw";
    for end in 0..line.len() {
        let _ = Mounts::parse(&line[..end]);
    }
    assert_eq!(Mounts::parse(line).for_events(), Some(Path::new("/sys/fs/cgroup")));
}

#[test]
fn the_root_cgroup_of_this_machine() {
    let mounts = Mounts::system().unwrap();
    let Ok(root) = mounts.open("/") else {
        return println!("skipped: needs a mounted cgroup file system that carries events");
    };
    match root.cpu_usage() {
        Ok(usage) => assert!(usage.total_ns > 0),
        Err(error) => assert!(matches!(error, CgroupError::NoCount { .. }), "{error}"),
    }
    assert!(matches!(mounts.open("no such cgroup"), Err(CgroupError::NotFound { .. })));
}

#[test]
fn a_named_cgroup_is_the_one_that_was_meant() {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(mounts) = Mounts::system() else { return };
    let Some(root) = mounts.for_events() else { return };
    let seen = fs::metadata(root).unwrap();
    let other = ReaderIds { user: 65_534, group: 65_534, groups: &[], reads_all: false };
    let root_user = ReaderIds { user: 0, group: 0, reads_all: true, ..other };
    let meant = NamedCgroup { device: seen.dev(), inode: seen.ino(), path: "" };
    let (first, cgroup) = mounts.named(&meant, root_user).unwrap();
    assert_eq!((cgroup.path(), cgroup.name(), first), (root, "/", CgroupInode(seen.ino())));
    assert!(mounts.named(&meant, other).is_ok() == (seen.mode() & 4 != 0));
    let elsewhere = NamedCgroup { device: seen.dev() + 1, ..meant };
    assert!(matches!(mounts.named(&elsewhere, root_user), Err(CgroupError::NotCgroup { .. })));
    // A number that is no folder's, beside a path that leads to another folder, or out.
    for path in ["", "..", "../../../etc", "cgroup.procs"] {
        let gone = NamedCgroup { inode: u64::MAX - 7, path, ..meant };
        assert!(matches!(mounts.named(&gone, root_user), Err(CgroupError::NotFound { .. })), "{path}");
    }
    let file = fs::metadata(root.join("cgroup.procs")).unwrap();
    let file = NamedCgroup { inode: file.ino(), path: "cgroup.procs", ..meant };
    assert!(matches!(mounts.named(&file, root_user), Err(CgroupError::NotFound { .. })));
}

#[test]
fn who_may_not_read_a_folder_may_not_name_it() {
    let reader = |user, group| ReaderIds { user, group, groups: &[7], reads_all: false };
    // Root's number is not root's right.
    assert!(ReaderIds { reads_all: true, ..reader(0, 0) }.may_read(0, 5, 5) && !reader(0, 0).may_read(0, 5, 5));
    assert!(
        reader(5, 1).may_read(0o400, 5, 5) && !reader(5, 5).may_read(0o044, 5, 5),
        "the owner's bits are the owner's"
    );
    assert!(
        reader(1, 5).may_read(0o040, 5, 5) && reader(1, 1).may_read(0o040, 5, 7) && !reader(1, 5).may_read(0o404, 5, 5)
    );
    assert!(reader(1, 1).may_read(0o004, 5, 5) && !reader(1, 1).may_read(0o440, 5, 5));
}

#[test]
fn a_cgroup_is_where_those_are_that_hold_it() {
    let mounts = Mounts::system().unwrap();
    let Some(root) = mounts.for_events().map(Path::to_owned) else {
        return println!("skipped: needs a mounted cgroup file system that carries events");
    };
    let name = format!("pmux-test-{}-above", std::process::id());
    let outer = root.join(&name);
    if fs::create_dir(&outer).is_err() {
        return println!("skipped: needs the right to make a cgroup");
    }
    fs::create_dir(outer.join("inner")).unwrap();
    let of = |name: &str| mounts.open(name).unwrap().numbers_above();
    let inner = mounts.open(&format!("{name}/inner"));
    let numbers = [of("/"), of(&name), inner.as_ref().unwrap().numbers_above()];
    fs::remove_dir(outer.join("inner")).unwrap();
    let removed = inner.unwrap().numbers_above();
    fs::remove_dir(&outer).unwrap();
    let [Some(root), Some(outer), Some(inner)] = numbers else { return println!("skipped: needs openat2(2)") };
    assert_eq!((root.len(), outer.len(), inner.len()), (1, 2, 3));
    assert_eq!((&outer[..1], &inner[..2]), (&root[..], &outer[..]));
    assert!(removed.is_none_or(|removed| removed == inner), "no other place, if any is known");
}
