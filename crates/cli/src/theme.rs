//! Colours, or what stands for them.
//!
//! **Invariant:** what has no colour is still told apart: by a character, by bold letters, or in reverse.

use crate::style::{Color as Colours, ColorChoice, Destination, Grouping};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// Shares from here on are hot, or warm.
const HOT: f64 = 5.0;
const WARM: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) colours: Colours,
}

impl Theme {
    pub(crate) fn on_terminal(choice: ColorChoice) -> Self {
        let no_color = std::env::var_os("NO_COLOR");
        let place = Destination::Terminal(None);
        Self { colours: crate::style::Style::resolve(choice, place, no_color.as_deref(), Grouping::None).color }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.colours == Colours::On { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn plain() -> Style {
        Style::new()
    }

    pub(crate) fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn faint() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn headings(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(crate) fn zoom(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn remark(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn key(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(crate) fn kernel(self) -> Style {
        self.coloured(Color::Magenta)
    }

    pub(crate) fn found(self) -> Style {
        self.coloured(Color::Green).add_modifier(Modifier::BOLD)
    }

    /// The line that the cursor is on.
    pub(crate) fn selected() -> Style {
        Style::reset().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn share(self, percent: f64) -> Style {
        match percent {
            HOT.. => self.coloured(Color::Red).add_modifier(Modifier::BOLD),
            WARM.. => self.coloured(Color::Yellow),
            // What is nothing at all is no number to be read.
            _ if percent == 0.0 => Self::faint(),
            _ => Style::new(),
        }
    }
}

/// Writes a line on the left, and as far as there is room another one on the right.
pub(crate) fn left_and_right(buffer: &mut Buffer, width: u16, y: u16, left: Vec<Span<'_>>, right: Vec<Span<'_>>) {
    let (left, right) = (Line::from(left), Line::from(right));
    let room = usize::from(width).saturating_sub(right.width());
    let room = if right.width() == 0 || room < usize::from(width) / 4 { usize::from(width) } else { room };
    buffer.set_line(0, y, &left, room as u16);
    if room < usize::from(width) {
        if left.width() > room {
            buffer.set_string(room as u16 - 1, y, "…", Theme::faint());
        }
        buffer.set_line(room as u16, y, &right, width - room as u16);
    }
}
