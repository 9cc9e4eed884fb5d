//! The command lines of the documentation, and the examples of the help, read as they would be.

use super::{man, parse};
use std::ffi::OsString;
use std::path::Path;

/// The words of the first simple command of a line of shell; no redirection, no comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | ';' | '&' | '>' | '<') => break,
            (None, '#') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            (None, '\\') => word.get_or_insert_default().extend(rest.next()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What is typed in the code blocks of a page.
fn typed(page: &str) -> Vec<String> {
    let (mut lines, mut kind) = (Vec::new(), None);
    let page = page.replace("\\\n", " ");
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), kind) {
            (Some(name), None) => kind = Some(name),
            (Some(_), Some(_)) => kind = None,
            (None, Some("console")) => {
                let at_prompt = line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "));
                lines.extend(at_prompt.map(str::to_owned));
            }
            (None, Some("sh")) => lines.push(line.to_owned()),
            (None, _) => {}
        }
    }
    lines
}

/// The arguments, the name of the program first, where a line starts pmux.
fn arguments(line: &str) -> Option<Vec<OsString>> {
    let mut words = words(line);
    let is_variable = |word: &String| word.contains('=') && !word.starts_with('-');
    let begin = words.iter().position(|word| !is_variable(word) && word != "sudo")?;
    words.drain(..begin);
    if words.starts_with(&["cargo".to_owned(), "run".to_owned()]) && !words.iter().any(|word| word == "-p") {
        let end = words.iter().position(|word| word == "--")?;
        words.drain(..end);
        words[0] = "pmux".to_owned();
    }
    (words.first()? == "pmux").then(|| words.into_iter().map(OsString::from).collect())
}

/// What is wrong with a command line.
fn mistake(line: &str) -> Option<String> {
    let shown = parse(arguments(line)?).err().filter(clap::Error::use_stderr)?;
    Some(format!("{line}\n{shown}"))
}

#[test]
fn command_lines_of_the_documents_are_understood() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pmux_testkit::pages(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")) {
        let lines = typed(&std::fs::read_to_string(&page).unwrap());
        checked += lines.iter().filter(|line| arguments(line).is_some()).count();
        wrong.extend(lines.iter().filter_map(|line| Some(format!("{}: {}", page.display(), mistake(line)?))));
    }
    assert!(checked > 25, "only {checked} were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn examples_of_the_help_are_understood() {
    let lines = man::all_examples();
    let wrong: Vec<_> = lines.iter().filter_map(|line| mistake(line)).collect();
    assert!(lines.len() > 30 && wrong.is_empty(), "{} were found\n{}", lines.len(), wrong.join("\n"));
}

#[test]
fn words_are_split_as_a_shell_splits_them() {
    assert_eq!(
        words("pmux watch --if 'value > 1' x\\ y -- a | b"),
        ["pmux", "watch", "--if", "value > 1", "x y", "--", "a"]
    );
    assert_eq!(words("pmux report   # what for"), ["pmux", "report"]);
    assert_eq!(arguments("X=1 sudo pmux list").unwrap(), ["pmux", "list"]);
    assert_eq!(arguments("cargo run --release -- stat true").unwrap(), ["pmux", "stat", "true"]);
    assert_eq!(arguments("ls pmux"), None);
    assert!(mistake("pmux stat --no-such-option true").is_some() && mistake("pmux stat true").is_none());
}
