//! What pmux says to mistakes on its command line, word for word: `tests/golden/mistakes.txt`.
//!
//! Each line there that begins with `$ ` is run, in a folder with an empty `empty.data` and a `text.data` that is no recording. Below it
//! stands what it says, but for the usage. `PMUX_GOLDEN=write` writes the file anew.

use crate::common::pmux;
use std::fmt::Write as _;
use std::path::Path;

fn said(folder: &Path, line: &str) -> String {
    let mut command = pmux(line.split(' ').skip(1));
    command.command.current_dir(folder);
    let ran = command.run();
    assert!(ran.code() == 1 || (125..=127).contains(&ran.code()), "{line} ended with {}", ran.code());
    assert_eq!(ran.text(), "", "{line} wrote to standard output");
    let is_usage =
        |line: &str| ["Usage: ", "       pmux ", "For more info"].iter().any(|begin| line.starts_with(begin));
    let kept = ran.err.lines().filter(|line| !line.is_empty() && !is_usage(line));
    kept.fold(String::new(), |text, line| text + "  " + line + "\n")
}

#[test]
fn mistakes_are_explained() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/mistakes.txt");
    let expected = std::fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.data"), "").unwrap();
    std::fs::write(folder.path().join("text.data"), "hello\n").unwrap();
    let (mut found, mut lines) = (String::new(), 0);
    for line in expected.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let _ = write!(found, "$ {line}\n{}", said(folder.path(), line));
        lines += 1;
    }
    if std::env::var_os("PMUX_GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(&path, &found).unwrap();
    }
    assert!(lines >= 105, "only {lines} mistakes");
    let differs = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(expected == found, "{differs:?}\n{found}");
}
