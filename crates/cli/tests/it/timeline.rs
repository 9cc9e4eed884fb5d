//! `pmux timeline` as a user meets it: the page, and what it shows in a browser.

use crate::common;
use crate::common::{SyncDir, kernel, new_file, pmux, program, record_faults, role, root, skip_unless, start};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

/// Page faults of a shell and of what it has started.
fn record(file: &Path) {
    let line = format!("{}; :", role::quiet_line("touch:300"));
    record_faults(file, &["--switch-events"], ["sh", "-c", &line].map(OsString::from));
}

fn page(file: &Path) -> String {
    pmux(["timeline", "--no-inline", "-i"]).args([file]).run().good().text()
}

/// What the page is made from.
pub(crate) fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// A column of the samples, as `column` of the page's script reads it.
fn column(data: &Value, name: &str) -> Vec<u64> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = data["samples"][name].as_str().unwrap().trim_end_matches('=');
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.chars() {
        bits = bits << 6 | LETTERS.find(letter).unwrap() as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0, 0);
    for byte in bytes {
        number |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte & 128 == 0 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    assert_eq!(Some(numbers.len() as u64), data["samples"]["count"].as_u64(), "{name}");
    numbers
}

/// When each sample was.
fn times(data: &Value) -> Vec<u64> {
    let since = column(data, "at");
    since
        .iter()
        .scan(0, |at, since| {
            *at += since;
            Some(*at)
        })
        .collect()
}

fn count(list: &Value) -> usize {
    list.as_array().unwrap().len()
}

#[test]
fn a_page_has_all_samples_and_parents() {
    skip_unless!(kernel());
    let (_dir, file) = new_file("perf.data");
    record(&file);
    let page = page(&file);
    // Nothing is fetched: the browser is told so, and there is nothing to fetch.
    assert!(page.contains("default-src 'none'"));
    for word in [" src=", "<link", "@import", "fetch(", "XMLHttpRequest", "url("] {
        assert!(!page.contains(word), "{word}");
    }
    let data = data(&page);
    let all = data["samples"]["count"].as_u64().unwrap() as usize;
    assert!(all > 300, "{all}");
    for (name, most) in [("thread", count(&data["threads"])), ("event", count(&data["events"])), ("cpu", 1 << 20)] {
        assert!(column(&data, name).iter().all(|&number| (number as usize) < most), "{name}");
    }
    assert_eq!(column(&data, "weight").iter().sum::<u64>(), all as u64, "each page fault is a sample");
    let length = data["length"].as_u64().unwrap();
    let times = times(&data);
    assert!(times[0] == 0 && times[all - 1] <= length);
    let processes = data["processes"].as_array().unwrap();
    let child = processes.iter().find(|process| process["parent"].is_u64() && process["born"].is_u64()).unwrap();
    assert!(child["ended"].is_u64(), "{child}");
    let parent = &processes[child["parent"].as_u64().unwrap() as usize];
    assert_eq!(parent["name"], "sh");
    assert!(count(&data["spans"]) > 0, "switches were recorded");
    let parents = data["nodes"]["parent"].as_array().unwrap();
    assert!(parents.iter().enumerate().all(|(node, parent)| parent.as_u64().unwrap() as usize <= node));
}

#[test]
fn what_the_flight_recorder_says_is_marked() {
    skip_unless!(kernel());
    let (sync_dir, file) = new_file("flight-1.data");
    record(&file);
    assert_eq!(count(&data(&page(&file))["marks"]), 0);
    // The folder has one snapshot; its manifest names a trigger, and a CPU that nothing is known of.
    let manifest = r#"{ "version": 1, "causes": [{ "at_ns": 1, "what": "</script> load > 3" }], "marks": [],
        "cpus": [{ "cpu": 7, "first_ns": 18446744073709551615, "last_ns": 18446744073709551615 }] }"#;
    std::fs::write(sync_dir.path("flight-1.json"), manifest).unwrap();
    let marked = data(&page(file.parent().unwrap()));
    assert_eq!(marked["marks"][0]["what"], "</script> load > 3");
    assert_eq!(marked["marks"][0]["kind"], "trigger");
    assert_eq!(marked["gaps"][0]["cpu"], 7);
    assert_eq!(marked["gaps"][0]["what"], "not in this snapshot");
    // The empty one is that of a shell, for what is printed.
    for (text, is_said) in [("{", true), ("", false)] {
        std::fs::write(sync_dir.path("flight-1.json"), text).unwrap();
        let ran = pmux(["timeline", "--no-inline", "-o", "/dev/null", "-i"]).args([&file]).run().good();
        assert_eq!(ran.err.contains("is no manifest of a snapshot"), is_said, "{}", ran.err);
    }
}

#[test]
fn a_browser_shows_what_was_selected() {
    skip_unless!(kernel() && program("chromium"));
    let sync_dir = SyncDir::new();
    let (file, html) = (sync_dir.path("perf.data"), sync_dir.path("page.html"));
    record(&file);
    let page = page(&file);
    std::fs::write(&html, &page).unwrap();
    let data = data(&page);
    let times = times(&data);
    let half = data["length"].as_u64().unwrap() / 2;
    let selected = times.iter().filter(|&&at| at <= half).count();
    // What is met most: its stacks have its name.
    let nodes: Vec<usize> = column(&data, "node").into_iter().map(|node| node as usize).collect();
    let name = |node: usize| data["names"][data["nodes"]["label"][node].as_u64().unwrap() as usize].as_str().unwrap();
    let is_found = |node: usize| name(node).to_lowercase().contains("atomic");
    let is_in = |mut node: usize| loop {
        let parent = data["nodes"]["parent"][node].as_u64().unwrap() as usize;
        if is_found(node) || parent == node {
            break is_found(node);
        }
        node = parent;
    };
    let found = times.iter().zip(&nodes).filter(|&(&at, &node)| at <= half && is_in(node)).count();
    let link = format!("file://{}#select=0-{half}&search=atomic", html.display());
    let shown = common::browser(&sync_dir.path("browser"), 3000).args([link]).run().good().text();
    let status = shown.split_once("role=\"status\">").unwrap().1.split_once("</p>").unwrap().0.to_owned();
    assert!(status.starts_with(&format!("{selected} samples of page-faults:u, ")), "{selected}: {status}");
    assert!(status.contains(&format!("“atomic” is in {found} of them")), "{found}: {status}");
    assert!(shown.contains("data-drawn="), "the lanes were drawn");
}

/// What the page's own scripts make of its data, as JSON: node runs `data.js`, `lanes.js` and `flame.js`, then this.
pub(crate) fn computed(sync_dir: &SyncDir, page: &str, then: &str) -> Value {
    let scripts = ["data.js", "lanes.js", "flame.js"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/timeline/assets").join(name);
        std::fs::read_to_string(path).unwrap()
    });
    let document = "const document = { getElementById: () => ({ textContent: require('fs').readFileSync(process.argv[2], 'utf8') }) };";
    let script =
        [document, &scripts[0], &scripts[1], &scripts[2], &format!("console.log(JSON.stringify({then}));")].join("\n");
    let (code, json) = (sync_dir.path("page.js"), sync_dir.path("page.json"));
    std::fs::write(&code, script).unwrap();
    std::fs::write(&json, data(page).to_string()).unwrap();
    start("node", [code, json]).run().good().document()
}

#[test]
fn no_cpu_has_more_than_a_second_a_second() {
    skip_unless!(kernel() && root() && program("node"));
    let (sync_dir, file) = new_file("perf.data");
    let load = "for n in 1 2 3; do (i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done) & done; wait";
    let words = ["record", "-q", "-e", "cpu-clock/freq=3000/u", "-a", "-o"];
    pmux(words).args([&file]).args(["--", "sh", "-c", load]).run().good();
    let page = page(&file);
    let all = data(&page);
    // Time has a unit, whatever terms the event was given.
    assert_eq!(all["events"][0]["ns"], true, "{}", all["events"]);
    let most = "[...Array(9).keys()].map((i) => { const parts = 40 << i; \
                return Math.max(...ratesOf(byEvent[0], 0, 0, data.length, parts)) / (data.length / parts); })";
    let known = computed(
        &sync_dir,
        &page,
        &format!("{{ most: {most}, cpus: cpuNumbers.length, all: [...ratesOf(byEvent[0], 0, 0, data.length, 7)] }}"),
    );
    let cpus = known["cpus"].as_f64().unwrap();
    for rate in known["most"].as_array().unwrap() {
        let rate = rate.as_f64().unwrap();
        assert!(rate > 0.0 && rate <= cpus * 1.000_001, "{rate} s a second on {cpus} CPUs: {known}");
    }
    // What is drawn comes to no more than what was counted.
    let drawn: f64 = known["all"].as_array().unwrap().iter().map(|part| part.as_f64().unwrap()).sum();
    let counted: u64 = column(&all, "weight").iter().sum();
    assert!(drawn > 0.0 && drawn <= counted as f64 * 1.000_001, "{drawn} of {counted}");
}

#[test]
fn the_busiest_processes_come_first_and_idle_ones_are_folded() {
    skip_unless!(kernel() && program("node"));
    let (sync_dir, file) = new_file("perf.data");
    // Many that do next to nothing, and one at the end that does most.
    let idle = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); /bin/true; done";
    let line = format!("{idle}; {}; :", role::quiet_line("touch:200000"));
    record_faults(&file, &[], ["sh", "-c", &line].map(OsString::from));
    let order = "['busy', 'start', 'name'].map((order) => { const { shown, idle } = processesIn(order); \
                 return { shown: shown.map((one) => one.process), idle: idle.map((one) => one.process) }; })";
    let lanes =
        "[false, true].map((idle) => lanesOf({ order: 'busy', idle, expanded: new Set() }).map((lane) => lane.name))";
    let known = computed(&sync_dir, &page(&file), &format!("{{ order: {order}, busyBelow, busy, lanes: {lanes} }}"));
    let list =
        |value: &Value| value.as_array().unwrap().iter().map(|one| one.as_u64().unwrap() as usize).collect::<Vec<_>>();
    let weights =
        |name: &str| known[name].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect::<Vec<_>>();
    let (busy, below) = (weights("busy"), weights("busyBelow"));
    for order in known["order"].as_array().unwrap() {
        let (mut shown, mut idle) = (list(&order["shown"]), list(&order["idle"]));
        assert!(idle.len() >= 25, "{known}");
        assert!(idle.iter().all(|&one| shown.iter().all(|&other| below[one] <= below[other])), "{known}");
        shown.append(&mut idle);
        shown.sort_unstable();
        assert_eq!(shown, (0..busy.len()).collect::<Vec<_>>(), "each is there once");
    }
    let first = list(&known["order"][0]["shown"]);
    assert!(below[first[0]] >= below[first[first.len() - 1]], "{known}");
    let names = |at: usize| known["lanes"][at].as_array().unwrap().len();
    assert!(names(0) + 25 <= names(1), "{}", known["lanes"]);
    assert!(
        known["lanes"][0].as_array().unwrap().iter().any(|name| name.as_str().unwrap().contains(" idle processes")),
        "{known}"
    );
}
