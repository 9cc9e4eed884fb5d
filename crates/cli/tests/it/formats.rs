//! What `pmux convert` makes, opened by the tools that it is for: by speedscope itself, and by the published descriptions of the formats.
//!
//! `ci/formats/install FOLDER` installs the tools; `PMUX_FORMATS=FOLDER` says where they are. Read first: [`tools`].

use crate::common;
use crate::common::{SyncDir, kernel, needs, pmux, program, skip_unless, start};
use crate::convert::recording;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder with the tools.
fn tools() -> Option<PathBuf> {
    let folder = std::env::var_os("PMUX_FORMATS").map(PathBuf::from);
    let there = folder.filter(|folder| folder.join("installed").exists());
    needs("formats", "PMUX_FORMATS, a folder that ci/formats/install has filled", there.is_some()).then_some(())?;
    there
}

/// A file of the repository.
fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/formats").join(name)
}

const FORMATS: [(&str, &str); 5] = [
    ("speedscope", "it.speedscope.json"),
    ("pprof", "it.pb.gz"),
    ("folded", "it.folded"),
    ("perfetto", "it.perfetto-trace"),
    ("chrome", "it.trace.json"),
];

/// The recording in all formats.
fn converted() -> SyncDir {
    let (sync_dir, file) = recording();
    for (format, name) in FORMATS {
        let convert = pmux(["convert", "--no-inline", "--to", format, "-i"]).args([&file]);
        convert.args(["-o".into(), sync_dir.path(name)]).run().good();
    }
    sync_dir
}

/// What each function has, the one that was met, by the simplest of all formats.
fn folded(sync_dir: &SyncDir) -> BTreeMap<String, u64> {
    let mut leaves = BTreeMap::new();
    for line in sync_dir.read("it.folded").lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        if let Some((_, leaf)) = stack.rsplit_once(';') {
            *leaves.entry(leaf.to_owned()).or_default() += weight.parse::<u64>().unwrap();
        }
    }
    leaves
}

/// The same of a reader's JSON.
fn leaves(told: &Value) -> BTreeMap<String, u64> {
    let leaves = told["leaves"].as_object().unwrap();
    leaves.iter().map(|(name, weight)| (name.replace(';', ":"), weight.as_u64().unwrap())).collect()
}

#[test]
fn published_descriptions_know_all_that_is_written() {
    skip_unless!(kernel() && program("node") && program("python3"));
    let Some(tools) = tools() else { return };
    let sync_dir = converted();
    let told = folded(&sync_dir);
    assert!(told.values().sum::<u64>() >= 300);
    let pprof = start("node", [own("pprof.cjs"), tools.clone(), sync_dir.path("it.pb.gz")]).run().good().document();
    assert_eq!(pprof["types"], serde_json::json!(["samples", "page-faults:u"]));
    assert_eq!(leaves(&pprof), told);
    let python = |words: [PathBuf; 2]| start("python3", words).env("PYTHONPATH", tools.join("python"));
    let trace = python([own("trace.py"), sync_dir.path("it.perfetto-trace")]).run().good().document();
    assert_eq!(leaves(&trace), told);
    assert!(trace["kinds"]["track_event"].as_u64().unwrap() > 0, "{}", trace["kinds"]);
    let schema = tools.join("node_modules/speedscope/dist/release/file-format-schema.json");
    python([own("schema.py"), schema]).args([sync_dir.path("it.speedscope.json")]).run().good();
}

#[test]
fn speedscope_opens_what_it_knows() {
    skip_unless!(kernel() && program("chromium"));
    let Some(tools) = tools() else { return };
    let sync_dir = converted();
    // The viewer's own way to be started with a file: a script that calls it. It shows the name of what it has opened.
    let mut script = String::from("(async () => {\nconst seen = [];\n");
    let known = ["it.speedscope.json", "it.pb.gz", "it.folded", "it.trace.json"];
    for name in known {
        let bytes: Vec<String> = std::fs::read(sync_dir.path(name)).unwrap().iter().map(u8::to_string).collect();
        let data = format!("btoa([{}].map((byte) => String.fromCharCode(byte)).join(''))", bytes.join(","));
        script.push_str(&format!("document.title = ''; speedscope.loadFileFromBase64('{name}', {data});\n"));
        script.push_str("for (let i = 0; i < 100 && !document.title.includes(' - speedscope'); i++)\n");
        script.push_str("  await new Promise((done) => setTimeout(done, 50));\n");
        script.push_str("seen.push(document.title);\n");
    }
    script.push_str("document.body.dataset.seen = seen.join('|');\n})();\n");
    std::fs::write(sync_dir.path("open.js"), script).unwrap();
    let page = tools.join("node_modules/speedscope/dist/release/index.html");
    let link = format!("file://{}#localProfilePath={}", page.display(), sync_dir.path("open.js").display());
    let browser = common::browser(&sync_dir.path("browser"), 20_000);
    let browser = browser.args(["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]);
    let shown = browser.args([link]).run().good().text();
    let seen = shown.split_once("data-seen=\"").map(|(_, rest)| rest.split('"').next().unwrap()).unwrap_or_default();
    // A speedscope file has a name of its own.
    let titles =
        ["perf.data - speedscope", "it.pb.gz - speedscope", "it.folded - speedscope", "it.trace.json - speedscope"];
    let seen: Vec<String> = seen.split('|').map(|title| title.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(seen, titles);
}
