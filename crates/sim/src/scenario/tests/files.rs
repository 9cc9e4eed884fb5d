//! The files in `scenarios/`.

use std::path::PathBuf;

use super::super::files::{find, read};
use super::super::{check, parse, print, render};

#[test]
fn every_file_is_right_says_what_it_shows_and_prints_to_a_fixed_point() {
    let files = find(&[PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")]).unwrap();
    assert!(files.len() >= 15, "only {} files", files.len());
    for path in files {
        let (name, text) = (path.display().to_string(), read(&path).unwrap());
        let scenario = parse(&text).unwrap_or_else(|problems| panic!("{}", render(&name, &text, &problems)));
        let problems = check(&scenario);
        assert!(problems.is_empty(), "{}", render(&name, &text, &problems));
        let about = scenario.header.about.join(" ");
        assert!(about.starts_with("Shows ") && about.ends_with('.'), "{name} doesn't begin with what it shows");
        let printed = print(&scenario);
        assert_eq!(parse(&printed).as_ref(), Ok(&scenario), "{name}\n{printed}");
    }
}

/// The statements in the reference are statements.
#[test]
fn every_example_of_the_reference_is_right() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let examples: Vec<&str> =
        text.split("```").skip(1).step_by(2).filter_map(|part| part.strip_prefix("scn\n")).collect();
    assert!(examples.len() >= 9, "only {} examples", examples.len());
    for example in examples {
        let scenario = parse(example).unwrap_or_else(|problems| panic!("{}", render("example", example, &problems)));
        let problems = check(&scenario);
        assert!(problems.is_empty(), "{}", render("example", example, &problems));
    }
}
