//! Colour, terminal width and digit grouping: how text may look where it is going.
//!
//! Read first: [`Style`]. Everything that prints receives one and asks it to paint.
//!
//! **Invariant:** only [`Style::of_stdout`] looks at the terminal and the environment. Elsewhere both arrive as arguments, so every look
//! can be tested.

use std::io::IsTerminal as _;

/// The user's wish from `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// Colour on a terminal only, and never when `NO_COLOR` is set.
    #[default]
    Auto,
    /// Colour everywhere.
    Always,
    /// No colour.
    Never,
}

/// What the output goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A terminal of this many columns (`None` when it does not say).
    Terminal(Option<usize>),
    /// A file, a pipe or anything else that is not a person's screen.
    Other,
}

/// Whether escape sequences are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Escape sequences are written.
    On,
    /// Plain text only.
    Off,
}

/// Whether large numbers get thousands separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// `1,234,567`
    Thousands,
    /// `1234567`
    None,
}

/// The roles that text can have. Each maps to one escape sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Ordinary text.
    Plain,
    /// Titles, totals and the names that the eye looks for.
    Strong,
    /// Rails, units and other helpers.
    Faint,
    /// A ratio worth a look.
    Notice,
    /// A poor ratio.
    Poor,
    /// A bad ratio.
    Bad,
    /// One of several things that are told apart, by its number.
    OneOf(usize),
}

/// Colours that no ratio has.
const APART: [&str; 6] = ["36", "32", "94", "96", "92", "34"];

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Notice => "33",
            Self::Poor => "35",
            Self::Bad => "31",
            Self::OneOf(number) => APART[number % APART.len()],
        }
    }
}

/// How text may look. Plain data; the driver makes one per output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences are written.
    pub color: Color,
    /// Columns of the terminal, when the output is one and the size is known.
    pub width: Option<usize>,
    /// Whether large numbers get thousands separators.
    pub grouping: Grouping,
}

impl Style {
    /// Decides the look from the user's wish, the destination and the value of
    /// `NO_COLOR` (any non-empty value forbids colour, see <https://no-color.org>).
    pub fn resolve(
        choice: ColorChoice,
        destination: Destination,
        no_color: Option<&std::ffi::OsStr>,
        grouping: Grouping,
    ) -> Self {
        let forbidden = no_color.is_some_and(|value| !value.is_empty());
        let color = match (choice, destination) {
            (ColorChoice::Always, _) => Color::On,
            (ColorChoice::Auto, Destination::Terminal(_)) if !forbidden => Color::On,
            _ => Color::Off,
        };
        let width = match destination {
            Destination::Terminal(columns) => columns,
            Destination::Other => None,
        };
        Self { color, width, grouping }
    }

    /// The look of text on standard output.
    pub fn of_stdout(choice: ColorChoice) -> Self {
        let destination = if std::io::stdout().is_terminal() {
            Destination::Terminal(terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
        } else {
            Destination::Other
        };
        Self::resolve(choice, destination, std::env::var_os("NO_COLOR").as_deref(), Grouping::None)
    }

    /// Appends `text` in the given ink. Pad before painting: escape sequences have no width.
    pub fn paint(self, out: &mut String, ink: Ink, text: &str) {
        let code = ink.code();
        if self.color == Color::Off || code.is_empty() || text.is_empty() {
            out.push_str(text);
            return;
        }
        out.push_str("\u{1b}[");
        out.push_str(code);
        out.push('m');
        out.push_str(text);
        out.push_str("\u{1b}[0m");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn color(choice: ColorChoice, destination: Destination, no_color: Option<&str>) -> Color {
        Style::resolve(choice, destination, no_color.map(OsStr::new), Grouping::None).color
    }

    #[test]
    fn auto_colours_a_terminal_only() {
        let screen = Destination::Terminal(Some(80));
        assert_eq!(color(ColorChoice::Auto, screen, None), Color::On);
        assert_eq!(color(ColorChoice::Auto, Destination::Other, None), Color::Off);
        assert_eq!(color(ColorChoice::Never, screen, None), Color::Off);
        assert_eq!(color(ColorChoice::Always, Destination::Other, None), Color::On);
    }

    #[test]
    fn no_color_counts_only_when_not_empty() {
        let screen = Destination::Terminal(None);
        assert_eq!(color(ColorChoice::Auto, screen, Some("1")), Color::Off);
        assert_eq!(color(ColorChoice::Auto, screen, Some("")), Color::On);
        // An explicit wish on the command line is newer than the environment.
        assert_eq!(color(ColorChoice::Always, screen, Some("1")), Color::On);
    }

    #[test]
    fn paint_wraps_only_when_colour_is_on() {
        let mut style = Style { color: Color::On, width: None, grouping: Grouping::None };
        let mut out = String::new();
        style.paint(&mut out, Ink::Bad, "31 %");
        style.paint(&mut out, Ink::Plain, " plain");
        assert_eq!(out, "\u{1b}[31m31 %\u{1b}[0m plain");
        out.clear();
        style.paint(&mut out, Ink::OneOf(7), "e");
        assert_eq!(out, "\u{1b}[32me\u{1b}[0m");
        style.color = Color::Off;
        out.clear();
        style.paint(&mut out, Ink::Bad, "31 %");
        assert_eq!(out, "31 %");
    }
}
