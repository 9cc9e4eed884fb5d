//! `pmux flame` as a user meets it.

use crate::common::{SyncDir, kernel, pmux, record_faults, role, skip_unless};
use std::collections::BTreeSet;
use std::path::Path;

fn record(file: &Path, work: &str) {
    record_faults(file, &[], role::words(work));
}

/// The titles of the frames: each has its name and what it weighs.
fn titles(svg: &str) -> Vec<&str> {
    svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect()
}

#[test]
fn a_picture_has_the_functions_and_says_what_it_is_of() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = sync_dir.path("perf.data");
    record(&file, "touch:300");
    let svg = pmux(["flame", "-i", file.to_str().unwrap()]).run().good().text();
    let frames = titles(&svg);
    // What writes to the pages.
    let touch = frames.iter().find(|title| title.contains("atomic_store")).expect("the function has a frame");
    let weight: u64 = touch.split('(').nth(1).unwrap().split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(weight >= 300, "{touch}");
    assert!(touch.contains(" page-faults, "), "{touch}");
    assert!(svg.contains(">page-faults:u</text>"), "no title");
    assert!(svg.contains(" samples · "), "no subtitle");
    // The same into a file, through a pipe, compressed, as an icicle.
    let out = sync_dir.path("out.svg");
    let svg = pmux(["flame", "--no-inline", "-i", file.to_str().unwrap()]).run().good().text();
    pmux(["flame", "--no-inline", "--icicle", "-o", out.to_str().unwrap()])
        .args(["-i", "-"])
        .input(std::fs::read(&file).unwrap())
        .run()
        .good();
    let icicle = std::fs::read_to_string(&out).unwrap();
    let sorted = |svg: &str| {
        let mut titles: Vec<String> = titles(svg).into_iter().map(str::to_owned).collect();
        titles.sort();
        titles
    };
    assert_eq!(sorted(&icicle), sorted(&svg));
    assert_ne!(icicle, svg);
    let packed = sync_dir.path("out.svg.gz");
    pmux(["flame", "--no-inline", "-i", file.to_str().unwrap(), "-o", packed.to_str().unwrap()]).run().good();
    assert_eq!(std::fs::read(&packed).unwrap()[..2], [0x1f, 0x8b]);
}

#[test]
fn stacks_stand_on_what_was_asked_for() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = sync_dir.path("perf.data");
    record(&file, "threads:3,100");
    let by =
        |what: &str| pmux(["flame", "--no-inline", "-i", file.to_str().unwrap(), "--by", what]).run().good().text();
    // A thread that takes another name stands there twice.
    let distinct = |what: &str| {
        let svg = by(what);
        let mark = format!(" ({what} ");
        let numbers: BTreeSet<String> = titles(&svg)
            .iter()
            .filter_map(|title| Some(title.split_once(&mark)?.1.split(')').next()?.to_owned()))
            .collect();
        numbers.len()
    };
    assert_eq!(distinct("thread"), 5, "the harness, the role, and its three");
    assert_eq!(distinct("process"), 1);
    assert!(titles(&by("cpu")).iter().any(|title| title.starts_with("CPU ")));
}

#[test]
fn two_recordings_are_compared() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let (before, after) = (sync_dir.path("before.data"), sync_dir.path("after.data"));
    record(&before, "touch:100");
    record(&after, "touch:1000");
    let svg = pmux(["flame", "--diff", before.to_str().unwrap(), after.to_str().unwrap()]).run().good().text();
    let touch = titles(&svg).into_iter().find(|title| title.contains("atomic_store")).unwrap().to_owned();
    assert!(touch.contains("; +"), "{touch}");
}

#[test]
fn part_of_a_recording_is_drawn() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let file = sync_dir.path("perf.data");
    record(&file, "touch:500");
    let name = file.to_str().unwrap();
    let all = |svg: &str| {
        let title = titles(svg).into_iter().find(|title| title.starts_with("all (")).unwrap().to_owned();
        title[5..].split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    let whole = all(&pmux(["flame", "--no-inline", "-i", name]).run().good().text());
    let middle = all(&pmux(["flame", "--no-inline", "-i", name, "--to", "1ms"]).run().good().text());
    let rest = all(&pmux(["flame", "--no-inline", "-i", name, "--from", "1ms"]).run().good().text());
    assert_eq!(whole, middle + rest);
    let few = pmux(["flame", "--no-inline", "-i", name, "--percent-limit", "60"]).run().good().text();
    assert!(titles(&few).len() < titles(&pmux(["flame", "--no-inline", "-i", name]).run().good().text()).len());
    assert_eq!(all(&few), whole);
    pmux(["flame", "--no-inline", "-i", name, "--from", "1day"])
        .run()
        .bad(125, &["'1day'", "expected a number of seconds"]);
    pmux(["flame", "--no-inline", "-i", name, "--from", "1h"]).run().bad(125, &["no sample matches"]);
    pmux(["flame", "--no-inline", "-i", name, "-e", "cycles"])
        .run()
        .bad(125, &["there is no event cycles in it; it has page-faults:u"]);
    pmux(["flame", "--no-inline", "-i", name, "-o", "/dev/null/x"]).run().bad(125, &["can't write to /dev/null/x"]);
}

/// What another program wrote is not lost to a wrong name; what pmux wrote is replaced.
#[test]
fn files_of_another_kind_are_not_replaced() {
    skip_unless!(kernel());
    let sync_dir = SyncDir::new();
    let (file, notes) = (sync_dir.path("perf.data"), sync_dir.path("notes.txt"));
    record(&file, "touch:100");
    std::fs::write(&notes, "of mine\n").unwrap();
    for words in [&["flame"][..], &["timeline"], &["convert", "-f", "firefox"], &["convert", "-f", "pprof"]]
        .into_iter()
        .chain([
            &["convert", "--format", "speedscope"][..],
            &["convert", "-f", "folded"],
            &["convert", "-f", "perfetto"],
        ])
        .chain([&["convert", "--to", "chrome"][..]])
    {
        let write = |to: &Path| pmux(words).args([&file]).args(["-o"]).args([to]).run();
        for mine in [
            "of mine\n",
            "<?xml version=\"1.0\"?><svg>",
            "<!DOCTYPE html><p>",
            "{\"traceEvents\":[]}",
            "\n\u{4}\u{8}",
            "a;b 3\n",
        ] {
            std::fs::write(&notes, mine).unwrap();
            write(&notes).bad(125, &["notes.txt is there and ", "it is not replaced", "--force", "-o"]);
            assert_eq!(std::fs::read_to_string(&notes).unwrap(), mine);
        }
        let (plain, packed) = (sync_dir.path(&words.join("")), sync_dir.path(&format!("{}.gz", words.join(""))));
        std::fs::write(&plain, "").unwrap();
        // Folded stacks have no place for a mark.
        let force: &[&str] = if words.contains(&"folded") { &["--force"] } else { &[] };
        for to in [&plain, &plain, &packed, &packed] {
            pmux(words).args(force).args([&file]).args(["-o"]).args([to]).run().good();
        }
    }
}
