//! Source code, with the share of each line.
//!
//! **Invariant:** shares are of all that went through the function, so that those of `Self` and of what it called add up.

use super::super::messages::{SourceBy, SourceLine, SourcePlace};
use super::super::state::{SourceScreen, State};
use super::{Pen, SHARE, Theme, bar, share};
use crate::columns::{fit, shifted};
use crate::report::percent;
use pmux::profile::Weight;
use ratatui::layout::Rect;
use ratatui::text::Span;

/// Draws where it is, headings and lines.
pub(super) fn draw(pen: &mut Pen<'_>, state: &State, screen: &SourceScreen, list: Rect) {
    let theme = pen.theme;
    let mut head = vec![Span::styled(format!(" {}", screen.name), theme.zoom())];
    let Some(source) = &screen.source else {
        pen.line(1, head);
        return pen.instead(list, &["looking for its lines…"]);
    };
    let whole = state.table.data.as_ref().map(|data| data.total).unwrap_or_default();
    head.push(Span::styled(format!("  {:.2}% of what is shown", percent(source.total, whole)), Theme::faint()));
    let file = match (screen.by, &source.file) {
        (SourceBy::Lines, Some(file)) => file,
        _ => &source.program,
    };
    pen.both(1, head, vec![Span::styled(format!("  {file} "), Theme::faint())]);
    let bar_columns = usize::from(pen.width).saturating_sub(62).min(30) / 3;
    let what = match screen.by {
        SourceBy::Lines => "  Line  Source",
        SourceBy::Addresses => "Offset  Instruction",
    };
    let gap = if bar_columns > 0 { bar_columns + 2 } else { 0 };
    let headings = format!("{:>SHARE$}{:>SHARE$}{}{what}", "Children", "Self", " ".repeat(gap));
    pen.line(2, vec![Span::styled(fit(&headings, usize::from(pen.width)), theme.headings())]);
    let lines = screen.lines().iter().enumerate().skip(screen.scroll.top);
    for (y, (at, line)) in (list.y..list.bottom()).zip(lines) {
        pen.line(y, spans(line, state.shift, (source.total, bar_columns), theme));
        if at == screen.scroll.cursor {
            pen.select(y);
        }
    }
}

fn spans(line: &SourceLine, shift: usize, (whole, bar_columns): (Weight, usize), theme: Theme) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if line.total.samples > 0 {
        spans.extend([share(line.total, whole, theme), share(line.own, whole, theme)]);
    } else {
        spans.push(Span::raw(" ".repeat(2 * SHARE)));
    }
    if bar_columns > 0 {
        spans.push(Span::raw("  "));
        spans.extend(bar(line.own, line.total, whole, bar_columns, theme));
    }
    let (number, style) = match line.place {
        SourcePlace::Line(number) => (format!("{number:>6}"), theme.share(percent(line.own, whole))),
        SourcePlace::Inlined => (" ".repeat(6), Theme::faint()),
        SourcePlace::Offset(offset) => (format!("{:>6}", format!("+{offset:#x}")), Theme::plain()),
    };
    spans.push(Span::styled(format!("{number}  "), Theme::faint()));
    match line.place {
        SourcePlace::Inlined => spans.push(Span::styled(format!("    ↳ {}", line.text), theme.key())),
        // What was never met stands back.
        _ if line.total.samples == 0 => spans.push(Span::styled(shifted(&line.text, shift), Theme::plain())),
        _ => spans.push(Span::styled(shifted(&line.text, shift), style)),
    }
    spans
}
