//! `pmux flame` as a user meets it.

use crate::common::{SyncDir, kernel, new_file, pmux, record_faults, role, skip_unless};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn recorded(work: &str) -> (SyncDir, PathBuf) {
    let (sync_dir, file) = new_file("perf.data");
    record_faults(&file, &[], role::words(work));
    (sync_dir, file)
}

/// The titles of the frames: each has its name and what it weighs.
fn titles(svg: &str) -> Vec<&str> {
    svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect()
}

#[test]
fn a_picture_has_the_functions_and_says_what_it_is_of() {
    skip_unless!(kernel());
    let (sync_dir, file) = recorded("touch:300");
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
    let icicle = pmux(["flame", "--no-inline", "--icicle", "-o", out.to_str().unwrap(), "-i", "-"]);
    icicle.input(std::fs::read(&file).unwrap()).run().good();
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
    let (_folder, file) = recorded("threads:3,100");
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
    let [(_one, before), (_other, after)] = ["touch:100", "touch:1000"].map(recorded);
    let svg = pmux(["flame", "--diff", before.to_str().unwrap(), after.to_str().unwrap()]).run().good().text();
    let touch = titles(&svg).into_iter().find(|title| title.contains("atomic_store")).unwrap().to_owned();
    assert!(touch.contains("; +"), "{touch}");
}

#[test]
fn part_of_a_recording_is_drawn() {
    skip_unless!(kernel());
    let (_folder, file) = recorded("touch:500");
    let flame = |options: &[&str]| pmux(["flame", "--no-inline", "-i"]).args([&file]).args(options).run();
    let svg = |options: &[&str]| flame(options).good().text();
    let all = |svg: &str| {
        let title = titles(svg).into_iter().find(|title| title.starts_with("all (")).unwrap().to_owned();
        title[5..].split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap()
    };
    let whole = all(&svg(&[]));
    assert_eq!(whole, all(&svg(&["--to", "1ms"])) + all(&svg(&["--from", "1ms"])));
    let few = svg(&["--percent-limit", "60"]);
    assert!(titles(&few).len() < titles(&svg(&[])).len());
    assert_eq!(all(&few), whole);
    flame(&["--from", "1day"]).bad(125, &["'1day'", "expected a number of seconds"]);
    flame(&["--from", "1h"]).bad(125, &["no sample matches"]);
    flame(&["-e", "cycles"]).bad(125, &["there is no event cycles in it; it has page-faults:u"]);
    flame(&["-o", "/dev/null/x"]).bad(125, &["can't write to /dev/null/x"]);
}

/// What another program wrote is not lost to a wrong name; what pmux wrote is replaced.
#[test]
fn files_of_another_kind_are_not_replaced() {
    skip_unless!(kernel());
    let (sync_dir, file) = recorded("touch:100");
    let notes = sync_dir.path("notes.txt");
    std::fs::write(&notes, "of mine\n").unwrap();
    for words in [
        &["flame"][..],
        &["timeline"],
        &["convert", "-f", "firefox"],
        &["convert", "-f", "pprof"],
        &["convert", "--format", "speedscope"],
        &["convert", "-f", "folded"],
        &["convert", "-f", "perfetto"],
        &["convert", "--to", "chrome"],
    ] {
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
