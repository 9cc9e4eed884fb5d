//! Times and numbers as people read them.
//!
//! **Invariant:** exact: no digit of a time or a count is dropped or made up.

use pmux_engine::Nanos;

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A span of time by itself: `12.5 ms`.
pub(super) fn span(span: Nanos) -> String {
    let (unit, size) = UNITS.into_iter().find(|(_, size)| span.0 >= *size).unwrap_or(("ns", 1));
    format!("{} {unit}", fraction(span.0, size, None))
}

/// How all times of a column are written: one unit, as many digits behind the point as any of them needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    pub(super) unit: &'static str,
    size: u64,
    digits: usize,
}

impl Scale {
    pub(super) fn of(times: impl Iterator<Item = Nanos> + Clone) -> Self {
        let longest = times.clone().map(|time| time.0).max().unwrap_or(0);
        // Milliseconds where nothing speaks against it: ticks are so long, and so are most things.
        let (unit, size) = match longest {
            10_000_000_000.. => ("s", 1_000_000_000),
            100_000.. => ("ms", 1_000_000),
            100.. => ("us", 1_000),
            _ => ("ns", 1),
        };
        let needed = |time: Nanos| {
            let (mut digits, mut rest) = (0, time.0 % size);
            let mut size = size;
            while rest > 0 {
                size /= 10;
                rest %= size;
                digits += 1;
            }
            digits
        };
        Self { unit, size, digits: times.map(needed).max().unwrap_or(0) }
    }

    pub(super) fn text(self, time: Nanos) -> String {
        fraction(time.0, self.size, Some(self.digits))
    }
}

/// `value / size`, with so many digits behind the point, or as many as it needs. `size` is a power of ten.
fn fraction(value: u64, size: u64, digits: Option<usize>) -> String {
    let (whole, rest) = (value / size, value % size);
    let places = size.ilog10() as usize;
    let mut text = if places == 0 { String::new() } else { format!("{rest:0places$}") };
    match digits {
        Some(digits) => text.truncate(digits),
        None => text.truncate(text.trim_end_matches('0').len()),
    }
    if text.is_empty() { grouped(whole) } else { format!("{}.{text}", grouped(whole)) }
}

/// A number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 time`, `12 times`.
pub(super) fn several(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// How many columns a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Goes on at this column, or where the text is, if that is further.
pub(super) fn pad(text: &mut String, column: usize) {
    text.push_str(&" ".repeat(column.saturating_sub(width(text))));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_keep_all_their_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (12_500, "12.5 us"),
            (5_000_000, "5 ms"),
            (10_002_731, "10.002731 ms"),
            (61_000_000_000, "61 s"),
        ] {
            assert_eq!(span(Nanos(ns)), text);
        }
    }

    #[test]
    fn a_column_has_one_unit_and_as_many_digits_as_it_needs() {
        let column = |times: &[u64]| {
            let times: Vec<_> = times.iter().copied().map(Nanos).collect();
            let scale = Scale::of(times.iter().copied());
            (scale.unit, times.iter().map(|&time| scale.text(time)).collect::<Vec<_>>())
        };
        assert_eq!(column(&[0, 10_000_000, 400_000_000]), ("ms", vec!["0".into(), "10".into(), "400".into()]));
        assert_eq!(
            column(&[0, 1_500_000, 2_000_250]),
            ("ms", vec!["0.00000".into(), "1.50000".into(), "2.00025".into()])
        );
        assert_eq!(column(&[7, 99]), ("ns", vec!["7".into(), "99".into()]));
        assert_eq!(column(&[12_345_000_000_000]), ("s", vec!["12,345".into()]));
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (60_000_000, "60,000,000")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!((several(1, "time"), several(2_000, "row")), ("1 time".into(), "2,000 rows".into()));
    }
}
