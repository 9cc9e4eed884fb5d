//! Small programs that are built for a test, and what they say about themselves.
//!
//! What it is: [`Workshop`], a folder with a compiler. Each program writes the addresses that it knows itself to the file
//! that its first argument names.
//!
//! **Invariant:** without a compiler the test that asked is skipped, and says so.
#![allow(unreachable_pub, clippy::unwrap_used)]

use crate::common::needs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each C program begins with: a way to say where something is.
pub const SAY: &str = "
#include <stdio.h>
#include <stdlib.h>
static FILE *out;
static void say(const char *name, const void *where) { fprintf(out, \"%s %p\\n\", name, where); fflush(out); }
static void begin(int argc, char **argv) { out = argc > 1 ? fopen(argv[1], \"a\") : stdout; if (!out) exit(9); }
";

pub struct Workshop {
    folder: tempfile::TempDir,
}

impl Workshop {
    /// One, if all of these tools are there.
    pub fn with(tools: &[&str]) -> Option<Self> {
        let there = |tool: &&str| Command::new(tool).arg("--version").output().is_ok_and(|out| out.status.success());
        let missing: Vec<&str> = tools.iter().filter(|tool| !there(tool)).copied().collect();
        let there = missing.is_empty();
        needs("cc", &missing.join(" and "), there).then(|| Self { folder: tempfile::tempdir().unwrap() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Runs a tool in the folder; answers whether it succeeded.
    pub fn try_run(&self, words: &[&str]) -> bool {
        let done = Command::new(words[0]).args(&words[1..]).current_dir(self.folder.path()).output().unwrap();
        if !done.status.success() {
            println!("{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        done.status.success()
    }

    /// As [`Workshop::try_run`], where it must succeed.
    pub fn run(&self, words: &[&str]) {
        assert!(self.try_run(words), "{words:?}");
    }

    /// What a program has said about itself.
    pub fn said(&self, file: &str) -> BTreeMap<String, u64> {
        let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
        let line = |line: &str| {
            let (name, address) = line.split_once(' ')?;
            Some((name.to_owned(), u64::from_str_radix(address.trim_start_matches("0x"), 16).ok()?))
        };
        text.lines().filter_map(line).collect()
    }
}

pub fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().unwrap()
}
