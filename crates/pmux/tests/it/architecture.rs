//! The rules of ARCHITECTURE.md that can be read off the files.
//!
//! What it is: each test names a rule and every place that breaks it. Manifests and sources are read as text, by the small
//! readers in `reading`, so that nothing has to be built or fetched for it.
//!
//! **Invariant:** a rule that finds nothing to check fails.

mod reading;

use pmux_testkit::pages;
use reading::{Manifest, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What the library may depend on.
const LIBRARY: &str = "addr2line cpp_demangle framehop gimli hashbrown object pmux-abi pmux-engine pmux-linux \
                       regex-lite rustc-demangle ruzstd xz4rust";

/// Each crate, and what it may depend on outside its tests.
///
/// `None`: of the project only `pmux`, the service, the planner and what the programs share; others are its own affair.
const CRATES: [(&str, Option<&str>); 11] = [
    ("abi", Some("bitflags")),
    ("engine", Some("bitflags hashbrown once_cell pmux-abi")),
    ("plan", Some("pmux-abi pmux-engine")),
    ("sim", Some("fastrand pmux-abi pmux-engine pmux-plan")),
    ("linux", Some("libc parking_lot pmux-abi pmux-engine postcard serde")),
    ("pmux", Some(LIBRARY)),
    ("daemon", Some("pmux prometheus-client serde serde_json toml")),
    ("cli", None),
    ("ui", Some("clap terminal_size")),
    ("sim-cli", Some("clap pmux pmux-sim pmux-ui serde_json")),
    ("testkit", Some("serde_json signal-hook tempfile")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn manifest(name: &str) -> Manifest {
    Manifest::read(&root().join("crates").join(name).join("Cargo.toml"))
}

/// Every source file of the crates, generated ones excepted.
fn sources() -> Vec<Source> {
    let sources = Source::below(&root().join("crates"));
    assert!(sources.len() > 100, "only {} source files were found", sources.len());
    sources
}

fn no_offenders(rule: &str, offenders: &[String]) {
    assert!(offenders.is_empty(), "{rule}:\n  {}", offenders.join("\n  "));
}

#[test]
fn every_crate_is_known_here() {
    let found: BTreeSet<String> = std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let known: BTreeSet<String> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known, "a new crate needs its line in this test and in ARCHITECTURE.md");
}

#[test]
fn dependencies_go_one_way() {
    for (name, allowed) in CRATES {
        let depends: BTreeSet<String> = manifest(name).dependencies().into_iter().collect();
        match allowed {
            Some(allowed) => {
                let allowed: BTreeSet<String> = allowed.split(' ').map(str::to_owned).collect();
                assert_eq!(depends, allowed, "what crates/{name} depends on");
            }
            None => {
                let own: Vec<_> = depends.iter().filter(|name| name.starts_with("pmux")).collect();
                assert_eq!(own, ["pmux", "pmux-daemon", "pmux-plan", "pmux-ui"], "crates/{name} has one front door");
            }
        }
    }
}

#[test]
fn even_tests_keep_to_the_direction() {
    let order = "pmux-abi pmux-engine pmux-plan pmux-sim pmux-linux pmux pmux-daemon pmux-ui pmux-cli";
    let order: Vec<&str> = order.split(' ').collect();
    for (name, _) in CRATES {
        let manifest = manifest(name);
        let own = manifest.value("package", "name").unwrap().trim_matches('"').to_owned();
        let Some(place) = order.iter().position(|known| *known == own) else { continue };
        let every = manifest.names_in("dependencies");
        // A crate may ask for a feature of its own.
        let above = &order[place..];
        let upward: Vec<_> = every.iter().filter(|&name| *name != own && above.contains(&name.as_str())).collect();
        assert!(upward.is_empty(), "crates/{name} depends upward on {upward:?}");
    }
}

#[test]
fn the_core_needs_no_std_and_no_unsafe() {
    for name in ["abi", "engine"] {
        let lib = Source::read(&root().join("crates").join(name).join("src/lib.rs"));
        for line in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(lib.has(line), "crates/{name} has lost {line}");
        }
    }
    for name in ["plan", "sim", "pmux", "daemon", "cli", "ui", "sim-cli", "testkit"] {
        let path = root().join("crates").join(name).join("src");
        let head = ["lib.rs", "main.rs"].iter().map(|file| path.join(file)).find(|path| path.exists()).unwrap();
        assert!(Source::read(&head).has("#![forbid(unsafe_code)]"), "crates/{name} forbids unsafe code");
    }
}

/// The compiler sees to it in the crates; tests and benches are crates of their own.
#[test]
fn unsafe_is_in_one_module() {
    let home = root().join("crates/linux/src/sys");
    let unsafe_code = ["{", "fn ", "impl ", "extern "].map(|what| format!("unsafe {what}"));
    let (inside, outside): (Vec<_>, Vec<_>) = sources()
        .into_iter()
        .filter(|source| unsafe_code.iter().any(|code| source.has(code)))
        .partition(|source| source.path.starts_with(&home) || source.path == home.with_extension("rs"));
    assert!(!inside.is_empty(), "the module with the system calls was not found");
    let outside: Vec<_> = outside.iter().map(Source::name).collect();
    no_offenders("unsafe belongs to crates/linux/src/sys", &outside);
    let door = |source: &&Source| source.has("#[allow(unsafe_code)") || source.has("#![allow(unsafe_code)");
    let doors: Vec<_> = sources().iter().filter(door).map(Source::name).collect();
    let lawful = root().join("crates/linux/src/lib.rs").display().to_string();
    let unlawful: Vec<_> = doors.into_iter().filter(|name| *name != lawful).collect();
    no_offenders("only crates/linux/src/lib.rs opens the door for sys", &unlawful);
}

/// Stubs are refused by clippy.
#[test]
fn every_test_runs() {
    let offenders: Vec<_> = sources().iter().filter(|source| source.has("#[ignore")).map(Source::name).collect();
    no_offenders("no tests that never run", &offenders);
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<_> = sources().iter().filter(|s| !s.text.starts_with("//!")).map(Source::name).collect();
    no_offenders("a file begins with //! and what it is", &silent);
}

#[test]
fn files_stay_small() {
    let large: Vec<_> = sources()
        .iter()
        .map(|source| (source.text.lines().count(), source.name()))
        .filter(|(lines, _)| *lines > 600)
        .map(|(lines, name)| format!("{name}: {lines} lines"))
        .collect();
    no_offenders("a file of more than 600 lines is two things", &large);
}

#[test]
fn crates_share_lints_and_licence() {
    let inherited = ["version", "edition", "rust-version", "license", "authors", "categories", "keywords"];
    for (name, _) in CRATES {
        let manifest = manifest(name);
        assert!(manifest.has("lints", "workspace", "true"), "crates/{name} goes by the lints of the workspace");
        for key in inherited {
            let both = manifest.has("package", &format!("{key}.workspace"), "true");
            assert!(both, "crates/{name} takes `{key}` from the workspace");
        }
        assert!(manifest.value("package", "description").is_some(), "crates/{name} says what it is");
    }
    let workspace = Manifest::read(&root().join("Cargo.toml"));
    assert!(workspace.has("workspace.package", "license", "\"MIT OR Apache-2.0\""));
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(file).exists(), "{file} is there");
    }
}

#[test]
fn every_crate_is_drawn_in_the_map() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in CRATES {
        assert!(map.contains(&format!("`crates/{name}`")), "ARCHITECTURE.md says nothing of crates/{name}");
    }
}

/// Words that the engine no longer uses: a reader of `kernel/events` searches for others (`sched_in`, `ring_buffer`, `hw_breakpoint`).
#[test]
fn the_engine_has_the_words_of_the_kernel() {
    const RETIRED: &str = "Desk Sheet Seat Lane Mailbox Letter Errand MemberKey NewMember doorbell kick Tap Taps Gauge Heir Newborn \
                           come_home found_family disband GroupView EventView Stance Kin KinId Relative Verb Breadth Round Wish Wishes \
                           Held Heirs Joining Company Meant Spot Nest Limb Circle TRUNK Standing Spare Fate Links Domain Verdict Place \
                           LetGo disarm desk seat lane tap taps letter errand mailbox mail gauge newborn heir heirs kin kinship Being Tally Part \
                           relative_reported relative_exited";
    let engine = Source::below(&root().join("crates/engine/src"));
    let mut found = Vec::new();
    for source in &engine {
        // In comments such a word may be one of English.
        let code = source.text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let words: BTreeSet<_> =
            code.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_'))).collect();
        let used = RETIRED.split(' ').filter(|word| words.contains(word));
        found.extend(used.map(|word| format!("{}: {word}", source.name())));
    }
    assert!(engine.len() > 50, "only {} files were found", engine.len());
    no_offenders("retired words", &found);
    // What a reader of the kernel searches for leads to the module that does the same.
    for (word, file) in [
        ("ctx_sched_in", "context/sched_in.rs"),
        ("group_fd", "group/mod.rs"),
        ("perf_event_overflow", "engine/overflow.rs"),
        ("toggle_bp_slot", "hw_breakpoint/ledger.rs"),
        ("perf_output_begin", "ring_buffer/writer.rs"),
        ("inherit_event", "inherit/mod.rs"),
        ("event_function_call", "engine/ipi.rs"),
    ] {
        let text = std::fs::read_to_string(root().join("crates/engine/src").join(file)).unwrap();
        assert!(text.contains(&format!("`{word}`")), "{file} does not name {word}");
    }
}

/// Names of types that said nothing to a reader who knows perf; each has another one now.
#[test]
fn no_type_has_a_name_that_was_given_up() {
    const RETIRED: &str = "Asker Breadth Board Crowd Deed Domain Ear Fate Furniture GateReport Gated Kin Luggage Manner News Outlet Pilot \
                           Seat SignalDoor Standing Stance Told Verb Verdict Wanted Wish Wishes";
    let mut found = Vec::new();
    for source in sources() {
        for line in source.text.lines().map(str::trim_start) {
            let line = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
            let declared = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| line.strip_prefix(kind));
            let name = declared.and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
            found.extend(
                name.filter(|name| RETIRED.split(' ').any(|word| word == *name))
                    .map(|name| format!("{}: {name}", source.name())),
            );
        }
    }
    no_offenders("names of types that were given up", &found);
}

/// Programs, clients and tasks are no persons.
#[test]
fn no_program_is_taken_for_a_person() {
    // In parts, so that a search finds none of them here.
    let words =
        [("no", "body"), ("some", "body"), ("who", "ever"), ("wh", "om")].map(|(one, other)| format!("{one}{other}"));
    let mut found = Vec::new();
    let texts = sources().into_iter().map(|source| (source.name(), source.text));
    // The changelog has names that were.
    let pages = pages(&root())
        .into_iter()
        .filter(|page| !page.ends_with("CHANGELOG.md"))
        .map(|page| (page.display().to_string(), std::fs::read_to_string(&page).unwrap()));
    for (name, text) in texts.chain(pages) {
        for (number, line) in text.lines().enumerate() {
            let mut parts = line.split(|c: char| !c.is_alphanumeric());
            if parts.any(|part| words.contains(&part.to_lowercase())) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    no_offenders("words for persons", &found);
}

/// A module of the engine uses modules that do not use it, and a type has its name for itself.
#[test]
fn rooms_of_the_engine_are_in_an_order() {
    let folder = root().join("crates/engine/src");
    let (mut uses, mut names) =
        (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for source in Source::below(&folder) {
        let path = source.path.strip_prefix(&folder).unwrap().with_extension("");
        let path: Vec<_> = path.iter().map(|part| part.to_str().unwrap()).collect();
        if path.contains(&"tests") || matches!(path[0], "testing" | "lib") {
            continue;
        }
        let text = source.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in text.lines().map(|line| line.split("//").next().unwrap_or_default()) {
            let word = |text: &str| {
                text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default().to_owned()
            };
            let rooms = line
                .split("crate::")
                .skip(1)
                .map(word)
                .filter(|room| room.starts_with(char::is_lowercase) && room != path[0]);
            uses.entry(path[0].to_owned()).or_default().extend(rooms);
            let item =
                line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ").trim_start_matches("pub ");
            let kinds = ["struct ", "enum ", "trait ", "type "];
            for name in kinds.iter().filter_map(|kind| item.strip_prefix(kind)).map(word) {
                names.entry(name).or_default().insert(source.name());
            }
        }
    }
    let mut wrong: Vec<String> =
        names.iter().filter(|(_, files)| files.len() > 1).map(|(name, files)| format!("{name}: {files:?}")).collect();
    assert!(uses.len() > 15 && names.len() > 150, "{} rooms, {} types", uses.len(), names.len());
    // What uses nothing that is left is taken away, again and again; a circle stays.
    while let Some(room) =
        uses.iter().find(|(_, used)| used.iter().all(|used| !uses.contains_key(used))).map(|(room, _)| room.clone())
    {
        uses.remove(&room);
    }
    wrong.extend(uses.into_iter().map(|(room, used)| format!("{room} is in a circle, or above one: {used:?}")));
    no_offenders("rooms in circles and types of one name", &wrong);
}

/// Links to files and to headings lead somewhere, and the book has each page of its folder.
#[test]
fn links_of_the_pages_lead_somewhere() {
    let (mut dead, mut followed) = (Vec::new(), 0);
    for page in pages(&root()) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in reading::links(&text) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let has_heading = || {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                reading::headings(&text).any(|known| known == heading)
            };
            followed += 1;
            if !target.exists() || !(heading.is_empty() || has_heading()) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in pages(&root()).iter().filter(|page| page.parent() == Some(&root().join("docs"))) {
        let name = page.file_name().unwrap().to_str().unwrap();
        if name != "SUMMARY.md" && !summary.contains(&format!("({name})")) {
            dead.push(format!("docs/SUMMARY.md does not have {name}"));
        }
    }
    assert!(followed > 30, "only {followed} links were found");
    no_offenders("links lead somewhere", &dead);
}

#[test]
fn the_front_pages_are_short() {
    let limits = [("README.md", 130), ("ARCHITECTURE.md", 300)];
    let lines = |page: &str| std::fs::read_to_string(root().join(page)).unwrap().lines().count();
    let long = limits.iter().filter(|(page, most)| lines(page) > *most);
    let long: Vec<_> = long.map(|(page, most)| format!("{page}: {} lines, at most {most}", lines(page))).collect();
    no_offenders("front pages are short", &long);
}

/// Paths in backquotes, such as `crates/engine/src/host.rs`, exist.
#[test]
fn documents_name_files_that_exist() {
    let mut dead = Vec::new();
    let mut named = 0;
    for page in pages(&root()).iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for path in reading::paths_in_backquotes(&text) {
            named += 1;
            if !root().join(path).exists() {
                dead.push(format!("{}: {path}", page.display()));
            }
        }
    }
    assert!(named > 10, "only {named} paths were found");
    no_offenders("documents name files that exist", &dead);
}
