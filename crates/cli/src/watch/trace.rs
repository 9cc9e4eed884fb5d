//! Hits as they happen, a line each, no more than the user can read.
//!
//! **Invariant:** what is left out is a number, told in the same second or in the end.

use super::report::short;
use crate::stderr::visible;
use crate::style::{Ink, Style};
use pmux::Nanos;
use pmux::symbol::ResolvedAddress;
use pmux::watch::{Hit, HitSide, HitValue};
use pmux_ui::text::{columns, cut};
use std::sync::Arc;

const SECOND: u64 = 1_000_000_000;

/// How many lines may be printed.
#[derive(Debug)]
pub(super) struct Rate {
    /// Lines a second; `None` for all.
    most: Option<u64>,
    /// The second that is going on, by the times of hits.
    second: u64,
    printed: u64,
    left_out: u64,
    /// All that was left out.
    pub(super) total_left_out: u64,
}

impl Rate {
    /// So many lines a second; 0 for all.
    pub(super) fn new(most: u64) -> Self {
        Self { most: (most > 0).then_some(most), second: 0, printed: 0, left_out: 0, total_left_out: 0 }
    }

    /// One more hit: how many were left out in the second before, if that is over, and whether this one is printed.
    pub(super) fn hit(&mut self, since_begin: Nanos) -> (u64, bool) {
        let second = since_begin.0 / SECOND;
        let left_out_before = if second > self.second { self.flush() } else { 0 };
        if second > self.second {
            (self.second, self.printed) = (second, 0);
        }
        let print = self.most.is_none_or(|most| self.printed < most);
        if print {
            self.printed += 1;
        } else {
            self.left_out += 1;
            self.total_left_out += 1;
        }
        (left_out_before, print)
    }

    /// What was left out and not told yet.
    pub(super) fn flush(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

/// One hit with everything that its line needs.
pub(super) struct TraceLine<'a> {
    pub(super) hit: &'a Hit,
    /// Since the beginning.
    pub(super) at: Nanos,
    /// What was hit; empty where there is one target only.
    pub(super) target: &'a str,
    /// How many bytes a value has; 0 for code.
    pub(super) len: u64,
    pub(super) command: &'a str,
    pub(super) place: &'a ResolvedAddress,
    pub(super) callers: &'a [Arc<ResolvedAddress>],
    /// Whether it is said how late a value was read.
    pub(super) verbose: bool,
}

pub(super) fn line(line: &TraceLine<'_>, style: Style) -> String {
    let TraceLine { hit, at, target, len, command, place, callers, verbose } = line;
    let mut out = String::new();
    style.paint(&mut out, Ink::Faint, &format!("{:>5}.{:06} ", at.0 / SECOND, at.0 % SECOND / 1000));
    let thread = format!(" {}/{}", if command.is_empty() { "?" } else { command }, hit.tid);
    style.paint(&mut out, Ink::Strong, &format!("{:<22}", visible(&thread)));
    style.paint(&mut out, Ink::Faint, &format!(" cpu {:<3}", hit.cpu));
    if !target.is_empty() {
        out.push_str(&format!(" {}", visible(target)));
    }
    if *len > 0 {
        out.push(' ');
        change(&mut out, &hit.value, *verbose, style);
    }
    out.push_str("  ");
    if hit.side == HitSide::Kernel {
        style.paint(&mut out, Ink::Faint, "kernel ");
    }
    let place = visible(&place.to_string());
    // A narrow terminal has room for it below.
    if let Some(width) = style.width.filter(|width| columns_of(&out) + columns(&place) > *width) {
        out.truncate(out.trim_end_matches(' ').len());
        out.push_str(&format!("\n{INDENT}{}", cut(&place, width.saturating_sub(INDENT.len()))));
    } else {
        out.push_str(&place);
    }
    let callers: Vec<String> = callers.iter().map(|caller| format!("\u{2190} {}", visible(&short(caller)))).collect();
    let callers = callers.join(" ");
    let taken = columns_of(&out) + 1 + columns(&callers);
    match style.width {
        Some(width) if taken > width && !callers.is_empty() => {
            out.push('\n');
            let callers = cut(&callers, width.saturating_sub(INDENT.len()));
            style.paint(&mut out, Ink::Faint, &format!("{INDENT}{callers}"));
        }
        _ if callers.is_empty() => {}
        _ => style.paint(&mut out, Ink::Faint, &format!(" {callers}")),
    }
    out.push('\n');
    out
}

/// What stands in front of callers below a hit.
const INDENT: &str = "             ";

/// How many columns a text takes that may be painted.
fn columns_of(text: &str) -> usize {
    let painted = text.split('\u{1b}').skip(1).filter_map(|part| part.split_once('m'));
    columns(text) - painted.map(|(code, _)| columns(code) + 2).sum::<usize>()
}

fn change(out: &mut String, value: &HitValue, verbose: bool, style: Style) {
    match value {
        HitValue::Overtaken => return style.paint(out, Ink::Faint, "? (overtaken)"),
        HitValue::Unreadable => return style.paint(out, Ink::Faint, "? (can't be read)"),
        HitValue::AtHit { .. } | HitValue::Found { .. } | HitValue::Read { .. } => {}
    }
    let (before, now) = (value.before(), value.now());
    match before {
        Some(before) => {
            style.paint(out, Ink::Faint, &number(before));
            out.push_str(" \u{2192} ");
        }
        None => out.push_str("= "),
    }
    let ink = if before.is_some() && now.is_some() && before != now { Ink::Notice } else { Ink::Plain };
    style.paint(out, ink, &now.map_or_else(|| "?".to_owned(), number));
    match value.late() {
        Some(late) if verbose && !matches!(value, HitValue::AtHit { .. }) => {
            style.paint(out, Ink::Faint, &format!(" (seen {} us later)", late.0 / 1000));
        }
        _ => {}
    }
}

/// A number as people write it: small ones as they count, large ones as they look at addresses.
pub(super) fn number(value: u64) -> String {
    if value < 1 << 32 { value.to_string() } else { format!("{value:#x}") }
}

pub(super) fn left_out(count: u64, style: Style) -> String {
    let mut out = String::new();
    let hits = if count == 1 { "hit" } else { "hits" };
    style.paint(&mut out, Ink::Faint, &format!("       \u{2026} {count} more {hits} in this second (--rate)\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_lines() {
        let mut rate = Rate::new(2);
        assert_eq!([5, 6, 7, 8].map(|at| rate.hit(Nanos(at))), [(0, true), (0, true), (0, false), (0, false)]);
        assert_eq!(rate.hit(Nanos(3 * SECOND)), (2, true));
        // Another CPU's hit of the second before.
        assert_eq!(rate.hit(Nanos(2 * SECOND)), (0, true));
        assert_eq!(rate.hit(Nanos(3 * SECOND + 1)), (0, false));
        assert_eq!((rate.flush(), rate.flush(), rate.total_left_out), (1, 0, 3));
    }

    #[test]
    fn without_a_rate_everything_is_printed() {
        let mut rate = Rate::new(0);
        assert!((0..10_000).all(|at| rate.hit(Nanos(at)).1));
    }

    #[test]
    fn numbers() {
        assert_eq!(number(42), "42");
        assert_eq!(number(0x7f00_0000_1000), "0x7f0000001000");
    }
}
