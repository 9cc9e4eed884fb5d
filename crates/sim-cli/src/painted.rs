//! A timeline for where it is printed: as wide as that, in its colours.
//!
//! **Invariant:** what it says is laid out in `pmux_sim`; here only the look is chosen.

use pmux_sim::timeline::{self, Role, Timeline, page};
use pmux_ui::style::{Ink, Style};

/// Wider pages are hard to follow from one side to the other.
const WIDEST: usize = 160;

/// The timeline as lines, each with its end.
pub(super) fn painted(timeline: &Timeline, style: Style) -> String {
    let plain = timeline::Style::default();
    let width = style.width.map_or(plain.width, |columns| columns.min(WIDEST));
    let mut out = String::new();
    for line in page(timeline, &timeline::Style { width, ..plain }) {
        let text = line.to_string();
        let mut left = text.trim_end().len();
        for piece in &line.pieces {
            // Blanks at the end of a line are not written.
            let shown = &piece.text[..left.min(piece.text.len())];
            style.paint(&mut out, ink(piece.role), shown);
            left -= shown.len();
        }
        out.push('\n');
    }
    out
}

fn ink(role: Role) -> Ink {
    match role {
        Role::Plain | Role::Good => Ink::Plain,
        Role::Strong | Role::Task(_) => Ink::Strong,
        Role::Faint => Ink::Faint,
        Role::Event(event) => Ink::OneOf(event),
        Role::Notice => Ink::Notice,
        Role::Bad => Ink::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_sim::machine::Trace;
    use pmux_sim::scenario::parse;
    use pmux_sim::scenario::run::{RunOptions, run};
    use pmux_ui::style::{Color, Grouping};

    fn timeline() -> Timeline {
        let text = "machine cpus=1 counters=1\ntask A\nopen e, f = cycles, instructions on A\nrun A 4ms\n";
        let scenario = parse(text).unwrap_or_else(|problems| panic!("{problems:?}"));
        let came = run(&scenario, &RunOptions { timeline: Trace::On, ..RunOptions::default() });
        came.timeline.unwrap_or_else(|| panic!("{:?}", came.verdict))
    }

    #[test]
    fn colour_changes_nothing_but_the_colour() {
        let look = |color, width| Style { color, width, grouping: Grouping::None };
        let timeline = timeline();
        let plain = painted(&timeline, look(Color::Off, None));
        assert_eq!(plain, timeline::render(&timeline, &timeline::Style::default()));
        let coloured = painted(&timeline, look(Color::On, None));
        assert!(coloured.contains("\u{1b}[36me\u{1b}[0m") && coloured.contains("\u{1b}[32mf\u{1b}[0m"), "{coloured}");
        let mut stripped = coloured;
        for code in ["0", "1", "2", "32", "36"] {
            stripped = stripped.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(stripped, plain);
        let narrow = painted(&timeline, look(Color::Off, Some(60)));
        assert!(narrow.lines().all(|line| line.chars().count() <= 60), "{narrow}");
    }
}
