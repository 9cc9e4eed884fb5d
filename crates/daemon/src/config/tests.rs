//! What a configuration says, and what it is told when it is wrong.

use super::*;

#[test]
fn nothing_is_all_defaults() {
    assert_eq!(Config::parse("").unwrap(), Config::default());
    assert_eq!(Config::parse("# a comment\n[limits]\n").unwrap(), Config::default());
}

#[test]
fn values_are_understood() {
    let text = r#"
        [socket]
        mode = "0660"
        [rights]
        system_wide = ["perf", 17]
        files = "privileged"
        [limits]
        events = 4
        [counting]
        turns = "engine"
        [metrics]
        cpus = "all"
        [log]
        level = "debug"
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.socket.mode, Mode(0o660));
    assert_eq!(config.rights.system_wide, [Named::Name("perf".to_owned()), Named::Number(17)]);
    assert_eq!((config.rights.files, config.limits.events), (Files::Privileged, 4));
    assert_eq!((config.counting.turns, config.metrics.cpus), (Multiplexing::Engine, CpuLabels::All));
    assert_eq!(config.log.level, Level::Debug);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let cases = [
        ("[limits]\nclient = 3\n", "line 2", "unknown field `client`"),
        ("\n\n[limit]\n", "line 3", "unknown field `limit`"),
        ("[limits]\nclients = \"many\"\n", "line 2", "invalid type"),
        ("[limits]\nclients = -1\n", "line 2", "u32"),
        ("[socket]\nmode = \"99\"\n", "line 2", "permissions in octal"),
        ("[socket]\npath = \"here\"\n", "line 2", "`socket.path` must begin with a /"),
        ("[metrics]\nlisten = \"0.0.0.0:1\"\n", "line 2", "from outside"),
        ("[metrics]\nlisten = \"x\"\n", "line 2", "neither"),
        ("[metrics]\nlisten = \"/a\"\ncgroups = [\"a\", \"a//b\"]\n", "line 3", "names no cgroups"),
        ("[log]\n\n[metrics]\ncpus = \"all\"\nmost_cgroups = 0\n", "line 5", "`metrics.most_cgroups` is 0"),
        ("[metrics]\ncpus = \"some\"\n", "line 2", "`events`, `all`, `none`"),
        ("[rights]\nfiles = \"all\"\n", "line 2", "`own`, `privileged`, `never`"),
        (
            "[limits]\nclients_per_user = 3\n clients= 0 # none\n",
            "line 3",
            "`limits.clients` is 0; it must be at least 1",
        ),
        ("limits = { page_entries = 99999999 }\n", "`limits.page_entries`", "at most"),
        ("[log]\n[weights]\nclient = 2\n", "line 2", "weights of clients are no more"),
        ("[limits]\nrings_kib = 3\n", "line 2", "`limits.rings_kib` is 3; it must be at least 4"),
        ("[records]\npass_ms = 0\n", "line 2", "`records.pass_ms` is 0"),
        ("[records]\nkernel_ring_kib = 99999999\n", "line 2", "at most"),
        ("[limits\n", "line 1", ""),
        ("[log]\nlevel = \"info\"\nlevel = \"info\"\n", "line 3", "duplicate"),
    ];
    for (text, place, what) in cases {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(what), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "a line of the log: {error}");
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = "[socket]\nmode = \"99\"\ngroup = \"no such group\"\n[limits]\nclient = 3\nclients = 0\nevents = \"x\"\n\
                [limit]\ny = [\n  \"a\",\n]\n[metrics]\nevents = [\"nosuch\", \"faults\"]\ncgroups = [\n  \"a//b\",\n]\n\
                [[recorder]]\nkeep = \"30s\"\n[[recorder]]\nname = \"a/b\"\nmax_snapshots = 0\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pmux.toml");
    std::fs::write(&path, text).unwrap();
    let (config, faults) = Config::examine(Some(&path), None);
    let places =
        ["line 2,", "line 5,", "line 6:", "line 7,", "line 8,", "line 14,", "line 17,", "line 20:", "line 21:"];
    let of_machine = ["no such group", "'nosuch'"];
    assert_eq!(faults.len(), places.len() + of_machine.len(), "{faults:#?}");
    for (fault, part) in faults.iter().zip(places.into_iter().chain(of_machine)) {
        assert!(fault.text.contains(part) && fault.file.as_ref() == Some(&path), "{part}: {fault}");
    }
    assert!(config.works_without_clients());
    let first = Config::parse(text).unwrap_err().to_string();
    assert!(first.starts_with("line 2,") && first.contains("and 8 more"), "{first}");
    // No fault is made by leaving another one out.
    for (text, places) in [
        ("[metrics]\nevents = [5,\n  \"cycles\"]\nmost_cgroups = 0\n", &["line 2,", "line 4:"][..]),
        ("[metrics]\nevents = [\n  \"cycles\",\n  5]\n[limits]\nclients = 0\n", &["line 4,", "line 6:"]),
        ("[metrics]\ncgroups = [\n  [\"a\"],\n]\n[limits]\nclients = 0\n", &["line 3,", "line 6:"]),
        ("[limit]\ny = [\n [\"a\"],\n]\n[limits]\nclients = 0\n", &["line 1,", "line 6:"]),
        ("recorder = [{ name = \"a\" },\n { name = 5 }]\n[limits]\nclients = 0\n", &["line 2,", "line 4:"]),
        ("[[recorder]]\nname = 5\n[limits]\nclients = 0\n", &["line 2,", "line 4:"]),
        (
            "[[recorder]]\nname = \"a\"\nset = 5\nmax_snapshots = 0\non = [{ trigger = \"crash\", actions = \"set fine on\" }]\n",
            &["line 3,", "line 4:"],
        ),
        (
            "[log]\nlevel = \"info\"\nlevel = \"info\"\n[limits]\nclient = 3\nclients = 0\n",
            &["line 3,", "line 5,", "line 6:"],
        ),
        ("[limits\nclients = 0\n", &["line 1,"]),
        ("[log]\nlevel = \"info\n[limits]\nclients = 0\n", &["line 2,"]),
        ("recorder = 5\nlog = 5\n", &["line 1,", "line 2,"]),
        ("[[limits]]\nclients = 0\n", &["line 1,"]),
    ] {
        let (_, faults) = faults::read(text);
        let are = faults.iter().zip(places).all(|(fault, place)| fault.starts_with(place));
        assert!(are && faults.len() == places.len(), "{text}\n{faults:#?}");
    }
    let many: String = (0..5000).map(|at| format!("a{at} = 1\n")).collect();
    let (_, faults) = faults::read(&many);
    assert!(faults.len() == 65 && faults[64].contains("and more"), "{}", faults.len());
    // Whatever stands there, it comes to an end.
    for at in 0..text.len() {
        for cut in ["", "[", "\"", "]", "\n", "=", "#"] {
            let _ = faults::read(&format!("{}{cut}{}", &text[..at], &text[at + 1..]));
        }
    }
}

#[test]
fn files_name_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pmux.toml");
    let missing = Config::find(Some(&path)).unwrap_err().to_string();
    assert!(missing.contains("pmux.toml") && missing.contains("No such file"), "{missing}");
    std::fs::write(&path, "[log]\nlevels = 1\n").unwrap();
    let wrong = Config::find(Some(&path)).unwrap_err().to_string();
    assert!(wrong.contains("pmux.toml") && wrong.contains("line 2"), "{wrong}");
}

#[test]
fn groups_have_numbers() {
    assert_eq!(Named::Name("root".to_owned()).group(), Ok(0));
    assert_eq!(Named::Number(5).group(), Ok(5));
    for name in ["", "no such group", "with a \0 in it", &"long".repeat(1000)] {
        assert!(Named::Name(name.to_owned()).group().is_err(), "{name}");
    }
}

#[test]
fn the_file_that_is_shipped_says_the_defaults_of_every_key() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/pmux.toml")).unwrap();
    assert_eq!(Config::parse(&text).unwrap(), Config::default());
    // With every comment that begins a setting taken away, each key is still known.
    let all: String = text.lines().map(|line| line.strip_prefix("#= ").unwrap_or(line).to_owned() + "\n").collect();
    let mut config = Config::parse(&all).unwrap();
    assert!(matches!(config.metrics.listen, Some(Listen::Tcp(_))) && config.socket.path.is_some());
    assert_eq!(config.recorder.len(), 2);
    // And each that is known stands there: a key that this test does not see was never tried.
    config.recorder.clear();
    let (before, rest) = all.split_once("[[recorder]]").unwrap();
    let lines = before.lines().chain(rest.split_once("[log]").unwrap().1.lines());
    let keys = lines.filter(|line| line.contains('=') && !line.starts_with('#')).count();
    let debug = format!("{config:?}");
    // Tables, and the list of recorders.
    assert_eq!(debug.matches(": ").count() - 9, keys, "{debug}");
}

/// The table of docs/service.md; `serve_reload` of the command's tests tries what it says.
#[test]
fn what_a_reload_changes_is_said_of_each_key() {
    let read = |name: &str| std::fs::read_to_string(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let docs = read("docs/service.md");
    let table = docs.split_once("**Reload**").unwrap().1.split_once("**Logs**").unwrap().0;
    let said: Vec<_> = table.split('`').skip(1).step_by(2).collect();
    let (mut section, mut keys) = (String::new(), Vec::new());
    for line in read("dist/pmux.toml").lines().map(|line| line.strip_prefix("#= ").unwrap_or(line)) {
        if line.starts_with('[') {
            line.clone_into(&mut section);
        } else if let (Some((key, _)), false) = (line.split_once(" ="), line.starts_with(['#', ' '])) {
            let name = format!("{}.{key}", section.trim_matches(['[', ']']));
            assert!(said.contains(&section.as_str()) || said.contains(&name.as_str()), "{name}: {said:?}");
            keys.push(name);
        }
    }
    assert!(keys.len() > 40, "{keys:?}");
    // And no row is about what is not there.
    for name in said.iter().filter(|name| name.contains('.')) {
        assert!(keys.iter().any(|key| key == name), "{name}");
    }
}

#[test]
fn recorders_have_all_that_the_command_has() {
    let text = r#"
        [[recorder]]
        name = "quiet"
        off_cpu = "5ms"
        [[recorder]]
        name = "glitches"
        events = ["cpu-clock", "sched:sched_switch"]
        frequency = 199
        call_chain = "none"
        cpus = "0-1"
        cgroup = "system.slice/x.service"
        keep = "64MiB"
        on = ["crash", { trigger = "rate(page-faults) > 100k/s", actions = "set fine on for 2s; snapshot" }]
        set = ["fine={sched:*} off"]
        after = "2s"
        cool_down = "1m"
        directory = "/var/tmp/glitches"
        max_snapshots = 3
        max_disk = "100M"
    "#;
    let config = Config::parse(text).unwrap();
    let [quiet, glitches] = &config.recorder[..] else { panic!("{:?}", config.recorder) };
    assert_eq!((quiet.max_snapshots, quiet.max_disk), (20, 1 << 30));
    assert_eq!((quiet.off_cpu, glitches.off_cpu), (Some(Duration::from_millis(5)), None));
    assert_eq!(quiet.directory(), Path::new("/var/lib/pmux/flight/quiet"));
    assert_eq!(glitches.rules().unwrap().len(), 2);
    assert_eq!(glitches.sets().unwrap()[0].name, "fine");
    assert_eq!(glitches.cool_down, Duration::from_secs(60));
}

#[test]
fn what_is_wrong_with_a_recorder_has_its_line() {
    for (text, says) in [
        ("name = \"a/b\"", "line 2: `recorder.name`"),
        ("name = \"17\"", "no number alone"),
        ("name = \"x\"\nkeep = \"30\"", "expected a time"),
        ("name = \"x\"\non = [\"rate(page-faults) > 5\"]", "line 3: `recorder.on`: expected `/s`"),
        ("name = \"x\"\non = [\"signal:USR2\"]", "pmux flight dump"),
        ("name = \"x\"\non = [\"line:oops\"]", "no standard input"),
        ("name = \"x\"\non = [{ trigger = \"crash\", actions = \"set fine on\" }]", "there is no set `fine`"),
        ("name = \"x\"\nfrequency = 1\nperiod = 1", "line 4: `recorder.frequency` and"),
        ("name = \"x\"\ncpus = \"many\"", "`recorder.cpus`"),
        ("name = \"x\"\ncpus = \"0\"\noff_cpu = \"1ms\"", "line 4: `recorder.off_cpu` is of threads"),
        ("name = \"x\"\noff_cpu = \"1\"", "line 3, `off_cpu = \"1\"`: expected a time"),
        ("name = \"x\"\nmax_snapshots = 0", "at least 1"),
        ("name = \"x\"\ndirectory = \"here\"", "must begin with a /"),
        ("name = \"x\"\n[[recorder]]\nname = \"x\"", "line 4: two recorders"),
        ("keep = \"30s\"", "missing field `name`"),
    ] {
        let error = Config::parse(&format!("[[recorder]]\n{text}")).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}
