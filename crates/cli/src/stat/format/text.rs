//! Small helpers for text: safe names, cutting to a width, JSON strings, dates.
//!
//! **Invariant:** what a program calls itself may hold anything. Text for people never
//! passes control characters on to the terminal, text for programs is always valid JSON.

use pmux::date::{Date, date};
use std::fmt::Write as _;

pub(super) use crate::stderr::visible;
pub(super) use pmux_ui::text::{columns, cut};

/// Appends a JSON string with its quotes.
pub(super) fn push_json(out: &mut String, text: &str) {
    let _ = write!(out, "{}", serde_json::Value::from(text));
}

pub(super) fn trim_line_end(out: &mut String) {
    let kept = out.trim_end_matches(' ').len();
    out.truncate(kept);
}

/// Returns a date in the form of `date` and `ctime`: `Fri Nov 20 23:42:46 2026`.
pub(super) fn calendar(unix_seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (i128::from(unix_seconds / 86_400), unix_seconds % 86_400);
    let Date { year, month, day } = date(days);
    let name = |names: &[&'static str], at: i128| {
        let at = usize::try_from(at).unwrap_or(0);
        names.get(at).copied().unwrap_or_default()
    };
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        name(&DAYS, days.rem_euclid(7)),
        name(&MONTHS, month - 1),
        second / 3600,
        second / 60 % 60,
        second % 60,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(calendar(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(calendar(951_826_154), "Tue Feb 29 12:09:14 2000");
        assert_eq!(calendar(1_795_218_166), "Fri Nov 20 23:42:46 2026");
        assert_eq!(calendar(4_102_444_799), "Thu Dec 31 23:59:59 2099");
    }
}
