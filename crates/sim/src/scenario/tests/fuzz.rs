//! No text is a panic, whatever is done with what comes out of it.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::{check, minimise, needs, parse, print, render};
use super::generate::scenario;

/// Everything that can be done with a text.
fn survives(text: &str) {
    match parse(text) {
        Ok(scenario) => {
            let _ = render("fuzz", text, &check(&scenario));
            let _ = needs(&scenario).to_string();
            let printed = print(&scenario);
            assert_eq!(parse(&printed).as_ref(), Ok(&scenario), "{printed}");
            let mut turn = false;
            let mut fails_now_and_then = |_: &_| {
                turn = !turn;
                turn
            };
            let _ = minimise(&scenario, 20, &mut fails_now_and_then);
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in &problems {
                assert!(problem.place.line >= 1 && problem.place.column >= 1, "{problem}");
                assert!(text.get(problem.place.start..problem.place.end).is_some(), "{problem}");
            }
            let _ = render("fuzz", text, &problems);
        }
    }
}

const PIECES: [&str; 64] = [
    "machine", "requires", ":", "sim", "only", "task", "A", "B", "open", "e1", "e2", "=", "cycles", ",", "on", "cpu",
    "cpus", "0", "1", "-", "run", "10ms", "rate", "/", "ns", "migrate", "to", "cpu1", "touch", "pages", "access",
    "0x1000", "write", "fork", "as", "thread", "exec", "setuid", "exit", "enable", "{", "}", "close", "offline",
    "wait", "fault", "doorbell", "late", "expect", ".", "count", "truth", "(", ")", "==", "~", "within", "2%", "state",
    "[", "]", "fails", "\n", ";",
];

proptest! {
    #[test]
    fn any_text(text: String) {
        survives(&text);
    }

    #[test]
    fn any_printable_lines(text in "([ -~]{0,30}[\n;#]){0,6}") {
        survives(&text);
    }

    #[test]
    fn any_words_of_the_language(words in vec(select(PIECES.to_vec()), 0..40), joint in select(vec![" ", ""])) {
        survives(&words.join(joint));
    }

    #[test]
    fn scenarios_with_mistakes(scenario in scenario(), edits in vec((any::<Index>(), 0..4_u8, any::<char>(), select(PIECES.to_vec())), 1..6)) {
        let mut chars: Vec<char> = print(&scenario).chars().collect();
        for (index, kind, c, piece) in edits {
            if chars.is_empty() {
                break;
            }
            let at = index.index(chars.len());
            match kind {
                0 => {
                    chars.remove(at);
                }
                1 => chars.insert(at, c),
                2 => chars[at] = c,
                _ => {
                    chars.splice(at..at, piece.chars());
                }
            }
        }
        survives(&chars.into_iter().collect::<String>());
    }
}

#[test]
fn long_and_deep_texts() {
    survives(&"(".repeat(100_000));
    survives(&format!("expect {}1 == 1", "(".repeat(10_000)));
    survives(&format!("expect e.count == 1{}", " + 1".repeat(10_000)));
    survives(&format!("open e = cycles on cpus 0-{}", "9".repeat(1_000)));
    survives(&"opne\n".repeat(10_000));
    survives(&format!("run {} 1ms", vec!["A"; 10_000].join(", ")));
    survives(&format!("task {}", "A".repeat(100_000)));
}

#[test]
fn the_number_of_reported_problems_is_limited() {
    assert_eq!(parse(&"opne\n".repeat(1_000)).map_err(|problems| problems.len()), Err(50));
}
