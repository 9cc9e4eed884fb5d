//! Functions that the compiler put into their callers: rows, trees and pictures know them, and shares stay what `perf` says.

use crate::common::{PMUX, cc, kernel, new_file, perf, pmux, program, skip_unless, start};
use std::path::Path;

const PROGRAM: &str = r"
#define INSIDE static inline __attribute__((always_inline))
volatile unsigned long sink;
INSIDE void grind(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * i; }
INSIDE void sift(unsigned long n) { grind(n); sink++; }
__attribute__((noinline)) void mill(unsigned long n) { sift(n); sink++; }
int main(void) { for (int i = 0; i < 3000; i++) mill(100000); return 0; }
";

fn table(program: &str, file: &Path, options: &[&str]) -> String {
    start(program, ["report", "--stdio", "-i"]).args([file]).args(options).run().good().text()
}

/// The shares of a function: with what it called, and its own.
fn shares(table: &str, function: &str) -> Option<Vec<f64>> {
    let row = table.lines().find(|line| line.contains('%') && line.trim_end().ends_with(&format!("[.] {function}")))?;
    let share = |word: &str| word.strip_suffix('%').and_then(|word| word.parse().ok());
    Some(row.split_whitespace().map_while(share).collect())
}

#[test]
fn what_was_inlined_has_rows_and_stands_in_trees() {
    skip_unless!(kernel() && program("cc"));
    let (sync_dir, file) = new_file("it.data");
    let mill = cc(sync_dir.path(""), "mill", PROGRAM, &["-O1", "-g", "-fno-omit-frame-pointer"]);
    let words = ["record", "-q", "-e", "cpu-clock:u", "-F", "2000", "-g", "-o"];
    pmux(words).args([&file]).args(["--"]).args([&mill]).run().good();
    let all = table(PMUX, &file, &[]);
    for inlined in ["grind (inlined)", "sift (inlined)"] {
        let found = shares(&all, inlined).unwrap_or_else(|| panic!("{inlined} is not in\n{all}"));
        assert!(found[0] > 80.0 && found[1] == 0.0, "{inlined}: {found:?}\n{all}");
    }
    let mill = shares(&all, "mill").unwrap();
    assert!(mill[1] > 80.0, "{all}");
    // Below the function stands what was inlined, each in what it was put into.
    let stand_in_turn = |text: &str, ends: [&str; 3]| {
        let lines: Vec<&str> = text.lines().collect();
        lines.windows(3).any(|found| found.iter().zip(ends).all(|(line, end)| line.ends_with(end)))
    };
    assert!(stand_in_turn(&all, ["mill", "sift (inlined)", "grind (inlined)"]), "{all}");
    let callee = table(PMUX, &file, &["--no-children", "-g", "callee"]);
    assert!(stand_in_turn(&callee, ["grind (inlined)", "sift (inlined)", "mill"]), "{callee}");
    let without = table(PMUX, &file, &["--no-inline"]);
    assert!(!without.contains("(inlined)"), "{without}");
    assert_eq!(shares(&without, "mill"), Some(mill.clone()));
    // Programs are told the same, and so is who looks at pictures.
    let json = table(PMUX, &file, &["-j", "--sort", "symbol"]);
    assert!(json.contains("\"sift (inlined)\""), "{json}");
    let folded = pmux(["convert", "--to", "folded", "-o", "-", "-i"]).args([&file]).run().good().text();
    assert!(folded.lines().any(|line| line.contains(";mill;sift;grind")), "{folded}");
    if perf() {
        let theirs = table("perf", &file, &[]);
        assert_eq!(shares(&theirs, "mill"), Some(mill), "{theirs}\n{all}");
    }
}
