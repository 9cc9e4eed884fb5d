//! What names and lines cost of a program with a gigabyte of debugging information: `cargo bench -p pmux-cli --bench dwarf`.
//!
//! The program is built here: `regex-syntax`, which Cargo has fetched, compiled once and linked 320 times, each copy with its own
//! debugging information. It is recorded at so many addresses that 100,000 are different. `pmux script` with the line of each sample and
//! `pmux report` look all of them up, first with nothing kept, then from what the former run has kept; `addr2line -f -i` is asked for the
//! same addresses. What is shown is the median of the elapsed times, in turn. With `--test` (or `PMUX_BENCH_SMALL=1`) everything runs once
//! and small, so that it cannot rot.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The function of each copy that the program calls.
const ENTRY: &str = r#"
#[no_mangle]
pub extern "C" fn entry() -> usize {
    let patterns = [r"(?i)\p{Greek}+[a-z&&[^aeiou]]{2,5}\b", r"^(\d{4})-(\d{2})|[[:alpha:]]*?\x{1F600}$", r"((a|b)*c){3}.*\W"];
    let length = |pattern| crate::Parser::new().parse(pattern).map_or(0, |hir| alloc::format!("{hir}").len());
    patterns.map(length).iter().sum()
}
"#;

/// Runs what must succeed, and answers its output.
fn run(folder: &Path, words: &[&str]) -> String {
    let ran = Command::new(words[0])
        .args(&words[1..])
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", words[0]));
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// Where Cargo has the sources; `None` without them.
fn sources() -> Option<PathBuf> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let words = ["metadata", "--offline", "--locked", "--format-version", "1", "--manifest-path", manifest];
    let told = Command::new(env!("CARGO")).args(words).output().ok().filter(|ran| ran.status.success())?;
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).ok()?;
    let found = told["packages"].as_array()?.iter().find(|package| package["name"] == "regex-syntax")?;
    Some(Path::new(found["manifest_path"].as_str()?).parent()?.join("src"))
}

/// Builds the program.
fn build(sources: &Path, copies: usize, folder: &Path) {
    run(folder, &["cp", "-r", sources.to_str().unwrap(), "src"]);
    let lib = folder.join("src/lib.rs");
    let text = std::fs::read_to_string(&lib).unwrap();
    // Attributes of the crate that forbid what is added.
    let kept = text.lines().filter(|line| !line.starts_with("#![forbid") && !line.starts_with("#![deny"));
    std::fs::write(&lib, kept.collect::<Vec<_>>().join("\n") + ENTRY).unwrap();
    let cut =
        "unicode unicode-age unicode-bool unicode-case unicode-gencat unicode-perl unicode-script unicode-segment std";
    let features: Vec<String> = cut.split(' ').flat_map(|one| ["--cfg".into(), format!("feature=\"{one}\"")]).collect();
    let plain = "rustc --edition 2021 --crate-name big --crate-type lib --emit=obj -g -Copt-level=2 -Ccodegen-units=1 -Cpanic=abort";
    let mut words: Vec<&str> = plain.split(' ').chain(["-Awarnings", "-o", "one.o", "src/lib.rs"]).collect();
    words.extend(features.iter().map(String::as_str));
    run(folder, &words);
    let (mut declared, mut called, mut objects) = (String::new(), String::new(), Vec::new());
    for copy in 0..copies {
        let (name, object) = (format!("entry_{copy}"), format!("{copy}.o"));
        let (renamed, kept) = (format!("entry={name}"), format!("--keep-global-symbol={name}"));
        let shared = "--keep-global-symbol=DW.ref.*";
        run(folder, &["objcopy", "--wildcard", "--redefine-sym", &renamed, &kept, shared, "one.o", &object]);
        writeln!(declared, "fn {name}() -> usize;").unwrap();
        writeln!(called, "all += {name}();").unwrap();
        objects.push(format!("-Clink-arg={object}"));
    }
    // This repository has the word only where it is code.
    let unchecked = ["un", "safe"].concat();
    let main = format!(
        "extern \"C\" {{ {declared} }} fn main() {{ let rounds = std::env::args().nth(1).unwrap().parse().unwrap(); \
         let mut all = 0; for _ in 0..rounds {{ {unchecked} {{ {called} }} }} assert!(all > 0); }}"
    );
    std::fs::write(folder.join("main.rs"), main).unwrap();
    // Addresses are those of the file, then.
    let mut words: Vec<&str> =
        "rustc -O -Cpanic=abort -Crelocation-model=static -Clink-arg=-no-pie main.rs -o big".split(' ').collect();
    words.extend(objects.iter().map(String::as_str));
    run(folder, &words);
    (0..copies).for_each(|copy| std::fs::remove_file(folder.join(format!("{copy}.o"))).unwrap());
}

fn main() {
    let small = std::env::args().any(|arg| arg == "--test") || std::env::var_os("PMUX_BENCH_SMALL").is_some();
    let Some(sources) =
        sources().filter(|_| ["rustc", "objcopy", "cc", "addr2line"].iter().all(|program| is_there(program)))
    else {
        println!("skipped: needs rustc, a C compiler, objcopy, addr2line and the sources of regex-syntax");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (copies, rounds, calls) = if small { (2, 1, "2000") } else { (320, 3, "1300") };
    build(&sources, copies, folder);
    let pmux = env!("CARGO_BIN_EXE_pmux");
    let line = [pmux, "record", "-q", "-F", "4000", "-g", "-o", "data", "--", "./big", calls];
    let recorded = Command::new(line[0]).args(&line[1..]).current_dir(folder).status().unwrap();
    if !recorded.success() {
        println!("skipped: needs the right to record");
        return;
    }
    let shown = run(folder, &[pmux, "script", "-i", "data", "--no-inline", "-F", "ip,dso"]);
    let addresses: BTreeSet<String> = shown
        .lines()
        .filter(|line| line.trim_end().ends_with("/big)"))
        .filter_map(|line| Some(format!("0x{}", line.split_whitespace().next()?)))
        .collect();
    let bytes = std::fs::metadata(folder.join("big")).unwrap().len();
    println!("a program of {} MiB, {} different addresses, {rounds} rounds", bytes >> 20, addresses.len());
    std::fs::write(folder.join("asked"), addresses.into_iter().collect::<Vec<_>>().join("\n")).unwrap();
    let script = format!("{pmux} script -i data -F ip,sym,srcline");
    let report = format!("{pmux} report -i data --stdio");
    let forget = "rm -rf cache";
    let what = [
        ("pmux script", forget, script.as_str()),
        ("the same, from what is kept", "", &script),
        ("pmux report", forget, &report),
        ("the same, from what is kept", "", &report),
        ("addr2line -f -i", "", "addr2line -f -i -e big <asked"),
    ];
    let mut took = what.map(|_| Vec::new());
    for round in 0..rounds {
        for ((_, before, line), took) in what.iter().zip(&mut took) {
            // It takes a minute each time.
            if round > 0 && line.starts_with("addr2line") {
                continue;
            }
            run(folder, &["sh", "-c", before]);
            let begin = Instant::now();
            run(folder, &["sh", "-c", &format!("{line} >out 2>/dev/null")]);
            took.push(begin.elapsed().as_secs_f64());
        }
    }
    for ((name, ..), mut took) in what.into_iter().zip(took) {
        took.sort_by(f64::total_cmp);
        println!("  {:7.2} s  {name}", took[took.len() / 2]);
    }
}
