//! `pmux sim` starts the program `pmux-sim`, which has tests of its own in `crates/sim-cli`.

use crate::common::{PMUX, SyncDir, copy_of, pmux, set_mode, start};
use std::path::Path;

/// A shell that says what it was told.
fn fake(path: &Path, text: &str) {
    std::fs::write(path, format!("#!/bin/sh\necho \"{text}: $*\"\nexit 7\n")).unwrap();
    set_mode(path, 0o755);
}

#[test]
fn the_simulator_is_the_one_beside_the_command_or_that_of_the_path() {
    let (own, path) = (SyncDir::new(), SyncDir::new());
    let command = own.path("pmux");
    copy_of(PMUX, &command);
    let run = || start(&command, ["sim", "--on", "kernel", "a b.scn"]).env("PATH", path.path("")).run();
    let says =
        ["pmux: the simulator is a program of its own, pmux-sim", "cargo install --locked --path crates/sim-cli"];
    run().bad(125, &says);
    fake(&path.path("pmux-sim"), "of the path");
    let ran = run().bad(7, &[]);
    assert_eq!(ran.text(), "of the path: --on kernel a b.scn\n");
    fake(&own.path("pmux-sim"), "beside");
    assert_eq!(run().bad(7, &[]).text(), "beside: --on kernel a b.scn\n");
}

#[test]
fn wrong_options_are_told_without_it() {
    pmux(["sim"]).run().bad(125, &["FILE", "pmux sim"]);
    pmux(["sim", "--on", "kernel", "--seed", "3", "a.scn"]).run().bad(125, &["--seed is for the simulated"]);
    assert!(pmux(["sim", "--help"]).run().good().text().contains("scenario"));
}
