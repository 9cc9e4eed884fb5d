//! What a configuration says, and what it is told when it is wrong.
#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn nothing_is_all_defaults() {
    assert_eq!(Config::parse("").unwrap(), Config::default());
    assert_eq!(Config::parse("# a comment\n[limits]\n").unwrap(), Config::default());
}

#[test]
fn every_key_is_understood() {
    let text = r#"
        [socket]
        path = "/run/other.sock"
        mode = "0660"
        group = "perf"
        [rights]
        system_wide = ["perf", 17]
        files = "privileged"
        [limits]
        clients = 1
        clients_per_user = 2
        events_per_client = 3
        events = 4
        page_entries = 5
        requests_per_second = 6
        queue_kib = 128
        slow_ms = 500
        [counting]
        turns = "engine"
        refresh_ms = 250
        [metrics]
        listen = "127.0.0.1:9464"
        events = ["cycles"]
        cgroups = ["system.slice/*"]
        cgroup_events = ["instructions"]
        most_cgroups = 7
        cpus = "all"
        [log]
        level = "debug"
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.socket.mode, Mode(0o660));
    assert_eq!(config.rights.system_wide, [GroupName::Name("perf".to_owned()), GroupName::Number(17)]);
    assert_eq!(config.rights.files, Files::Privileged);
    assert_eq!((config.limits.events, config.counting.turns), (4, Turns::Engine));
    assert!(matches!(config.metrics.listen, Some(Listen::Loopback(_))));
    assert_eq!(config.log.level, Level::Debug);
    // A key that this test does not know is one that nobody has tried.
    let keys = text.lines().filter(|line| line.contains('=')).count();
    let debug = format!("{config:?}");
    let fields = debug.matches(": ").count();
    assert_eq!(fields - 6, keys, "{debug}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let cases = [
        ("[limits]\nclient = 3\n", "line 2", "unknown field `client`"),
        ("\n\n[limit]\n", "line 3", "unknown field `limit`"),
        ("[limits]\nclients = \"many\"\n", "line 2", "invalid type"),
        ("[limits]\nclients = -1\n", "line 2", "u32"),
        ("[socket]\nmode = \"99\"\n", "line 2", "permissions in octal"),
        ("[socket]\npath = \"here\"\n", "socket.path", "begin with a /"),
        ("[metrics]\nlisten = \"0.0.0.0:1\"\n", "line 2", "from outside"),
        ("[metrics]\nlisten = \"x\"\n", "line 2", "neither"),
        ("[metrics]\nlisten = \"/a\"\ncgroups = [\"a\", \"a//b\"]\n", "line 3", "names no cgroups"),
        ("[metrics]\nmost_cgroups = 0\n", "metrics.most_cgroups", "at least 1"),
        ("[metrics]\ncpus = \"some\"\n", "line 2", "`events`, `all`, `none`"),
        ("[rights]\nfiles = \"all\"\n", "line 2", "`own`, `privileged`, `never`"),
        ("[limits]\nclients = 0\n", "limits.clients", "at least 1"),
        ("[limits]\npage_entries = 99999999\n", "limits.page_entries", "at most"),
        ("[limits\n", "line 1", ""),
        ("[log]\nlevel = \"info\"\nlevel = \"info\"\n", "line 3", "duplicate"),
    ];
    for (text, place, what) in cases {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(what), "{text:?}: {error}");
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
    let file = "root:x:0:\nperf:x:977:ann,bob\n";
    assert_eq!(GroupName::Name("perf".to_owned()).number(file), Ok(977));
    assert_eq!(GroupName::Number(5).number(file), Ok(5));
    assert!(GroupName::Name("per".to_owned()).number(file).unwrap_err().contains("`per`"));
}

#[test]
fn the_file_that_is_shipped_says_the_defaults() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/pmux.toml")).unwrap();
    assert_eq!(Config::parse(&text).unwrap(), Config::default());
    // With every comment that begins a setting taken away, each key is still known.
    let all: String = text.lines().map(|line| line.strip_prefix("#= ").unwrap_or(line).to_owned() + "\n").collect();
    let config = Config::parse(&all).unwrap();
    assert!(config.metrics.listen.is_some() && config.socket.path.is_some());
}
