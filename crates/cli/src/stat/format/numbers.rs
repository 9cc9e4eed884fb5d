//! Numbers as text: thousands groups, decimals, seconds and rates.
//!
//! **Invariant:** pure functions; the same number gives the same text everywhere.

use crate::stat::report::{EventColumn, Value};
use crate::style::Grouping;

/// Returns what an event has counted, in its unit, or the words in place of a number.
pub(super) fn value(event: &EventColumn, value: Value, grouping: Grouping) -> String {
    match value.raw() {
        Some(raw) => number(raw * event.scale, decimals(event.scale), grouping),
        None => value.absent_text().to_owned(),
    }
}

/// Returns how many decimals a value with this scale is shown with: a fractional scale
/// (nanoseconds shown as milliseconds) gives two, a whole one none.
fn decimals(scale: f64) -> usize {
    if scale.fract() == 0.0 { 0 } else { 2 }
}

/// Returns the number with the given decimals and, when asked, thousands separators.
pub(super) fn number(value: f64, decimals: usize, grouping: Grouping) -> String {
    let plain = format!("{:.decimals$}", finite(value));
    match grouping {
        Grouping::None => plain,
        Grouping::Thousands => grouped(&plain),
    }
}

/// Returns 0 for infinities and not-a-number, which JSON cannot hold.
pub(super) fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

fn grouped(plain: &str) -> String {
    let start = plain.find(|c: char| c.is_ascii_digit()).unwrap_or(plain.len());
    let end = plain.find('.').unwrap_or(plain.len());
    let mut out = String::with_capacity(plain.len() + plain.len() / 3);
    for (at, c) in plain.char_indices() {
        if at > start && at < end && (end - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Returns seconds with nine decimals, `0.100227072`.
pub(super) fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    format!("{whole}.{rest:09}")
}

/// Returns nanoseconds as milliseconds with two decimals.
pub(super) fn millis(ns: u64, grouping: Grouping) -> String {
    number(ns as f64 / 1e6, 2, grouping)
}

/// Brings a rate per second into the range that its unit is for.
pub(super) fn rate(per_second: f64) -> (f64, &'static str) {
    const UNITS: [(f64, &str); 3] = [(1e9, "G/sec"), (1e6, "M/sec"), (1e3, "K/sec")];
    let unit = UNITS.into_iter().find(|(one, _)| per_second > *one);
    unit.map_or((per_second, "/sec"), |(one, name)| (per_second / one, name))
}

/// Returns how many decimals a mean deserves whose error is `error`: two digits more than
/// the error leaves certain.
pub(super) fn decimals_for_error(error: f64) -> usize {
    let leading = if error > 0.0 { (0..7).find(|&places| error * 10_f64.powi(places) >= 1.0).unwrap_or(7) } else { 0 };
    // Nanoseconds are the smallest unit there is.
    leading as usize + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three() {
        let text = |value| number(value, 0, Grouping::Thousands);
        let expected = ["0", "999", "1,000", "163,516,953", "-1,234"];
        assert_eq!([0.0, 999.0, 1000.0, 163_516_953.0, -1234.0].map(text), expected);
        assert_eq!(number(-123_456.5, 2, Grouping::Thousands), "-123,456.50");
        assert_eq!(number(123_456.5, 2, Grouping::None), "123456.50");
        assert_eq!(number(f64::NAN, 0, Grouping::None), "0");
    }

    #[test]
    fn decimals_follow_the_scale_and_the_error() {
        assert_eq!([1e-6, 1.0, 64.0].map(decimals), [2, 0, 0]);
        assert_eq!([0.000_032, 0.000_446, 2.0, 0.0, f64::NAN, 1e-15].map(decimals_for_error), [7, 6, 2, 2, 2, 9]);
    }

    #[test]
    fn seconds_have_nine_decimals_and_rates_a_unit_above_a_thousand() {
        assert_eq!([100_227_072, 12_000_000_001].map(seconds), ["0.100227072", "12.000000001"]);
        let rates = [(1_000.0, "/sec"), (2.0, "K/sec"), (3.0, "M/sec"), (4.0, "G/sec")];
        assert_eq!([1_000.0, 2_000.0, 3e6, 4e9].map(rate), rates);
    }
}
