//! What is wrong with a scenario.
//!
//! What it is: a [`Problem`] says what is wrong, where, and what would help; [`render`] shows it in the text.
//!
//! **Invariant:** pure; a place that does not fit the text is shown as far as it can be, and is never a panic.

use std::fmt::{self, Write as _};

use super::ast::SourceSpan;

/// So many problems are reported of one text: one with more of them is no scenario.
pub(super) const MOST_PROBLEMS: usize = 50;

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where.
    pub place: SourceSpan,
    /// What: one sentence without its point.
    pub message: String,
    /// What would help, if that is known.
    pub help: Option<String>,
    /// Where it matters.
    pub bearing: Bearing,
}

/// Where a problem matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bearing {
    /// The scenario has no meaning.
    Everywhere,
    /// It runs on the simulator, but is no file for other machines too.
    OffTheSimulator,
}

impl Problem {
    /// A problem that matters everywhere.
    #[must_use]
    pub fn new(place: SourceSpan, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), help: None, bearing: Bearing::Everywhere }
    }

    /// A problem that matters off the simulator.
    #[must_use]
    pub fn elsewhere(place: SourceSpan, message: impl Into<String>) -> Self {
        Self { bearing: Bearing::OffTheSimulator, ..Self::new(place, message) }
    }

    /// Adds what would help.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The same, with help where there is some.
    #[must_use]
    pub(super) fn with_help_if(self, help: Option<String>) -> Self {
        Self { help, ..self }
    }
}

/// Prints the place and the sentence on one line: `3:10: expected …`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}

impl std::error::Error for Problem {}

/// Shows problems in the text that they are about: file, line and column, the line itself with carets under what is meant,
/// and what would help.
#[must_use]
pub fn render(file: &str, text: &str, problems: &[Problem]) -> String {
    let mut out = String::new();
    for (index, problem) in problems.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        one(&mut out, file, text, problem);
    }
    out
}

/// Longer lines are shown in part, in characters.
const WIDTH: usize = 160;
/// How much of a long line is shown before what is meant.
const BEFORE: usize = 60;

fn one(out: &mut String, file: &str, text: &str, problem: &Problem) {
    let SourceSpan { line: number, column, start, end } = problem.place;
    // Writing to a text does not fail.
    let _ = writeln!(out, "{file}:{number}:{column}: {}", problem.message);
    if let Some(line) = (number as usize).checked_sub(1).and_then(|index| text.split('\n').nth(index)) {
        let before = (column as usize).saturating_sub(1);
        let line: Vec<char> = line.trim_end().chars().collect();
        let from = if line.len() > WIDTH { before.saturating_sub(BEFORE) } else { 0 };
        let shown: String = line.iter().skip(from).take(WIDTH).collect();
        let (cut, tail) = (if from > 0 { "…" } else { "" }, if line.len() > from + WIDTH { "…" } else { "" });
        // A tab takes as much room under a tab as above it.
        let blank = |c: &char| if *c == '\t' { '\t' } else { ' ' };
        let indent: String = cut.chars().map(|_| ' ').chain(line.iter().take(before).skip(from).map(blank)).collect();
        let meant = text.get(start..end).map_or(0, |meant| meant.chars().take_while(|c| *c != '\n').count());
        let room = line.len().min(from + WIDTH).saturating_sub(before);
        let carets = "^".repeat(meant.min(room).max(1));
        let margin = " ".repeat(number.to_string().len());
        let _ = writeln!(out, "{margin} |\n{number} | {cut}{shown}{tail}\n{margin} | {indent}{carets}");
    }
    if let Some(help) = &problem.help {
        let _ = writeln!(out, "  help: {help}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_what_is_meant() {
        let text = "task A\n\trun B 5ms\n";
        let place = SourceSpan { line: 2, column: 6, start: 12, end: 13 };
        let problem = Problem::new(place, "there is no task `B`").with_help("did you mean `A`?");
        let shown = render("x.scn", text, &[problem]);
        assert_eq!(
            shown,
            "x.scn:2:6: there is no task `B`\n  |\n2 | \trun B 5ms\n  | \t    ^\n  help: did you mean `A`?\n"
        );
    }

    #[test]
    fn of_a_long_line_the_part_is_shown_that_is_meant() {
        let text = format!("{}here{}", "a".repeat(300), "b".repeat(300));
        let place = SourceSpan { line: 1, column: 301, start: 300, end: 304 };
        let shown = render("x.scn", &text, &[Problem::new(place, "no")]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 4);
        let (Some(line), Some(carets)) = (lines.get(2), lines.get(3)) else { panic!("{shown}") };
        assert!(line.starts_with("1 | …aaa") && line.ends_with("bbb…") && line.chars().count() < 170, "{line}");
        let at = carets.chars().position(|c| c == '^').unwrap_or(0);
        assert_eq!(line.chars().skip(at).take(4).collect::<String>(), "here");
        assert!(carets.ends_with(" ^^^^"));
    }

    #[test]
    fn places_that_fit_nothing_are_no_panic() {
        for place in [
            SourceSpan::NOWHERE,
            SourceSpan { line: 9, column: 1, start: 0, end: 1 },
            SourceSpan { line: 1, column: 900, start: 1, end: usize::MAX },
            SourceSpan { line: 1, column: 1, start: 1, end: 2 },
        ] {
            assert!(render("x", "ä", &[Problem::new(place, "no")]).contains("no"));
        }
    }
}
