//! Numbers with units: as they are typed on a command line or in a configuration, and as they are shown to people.
//!
//! **Invariant:** pure.

#[cfg(feature = "record")]
use crate::flight::Keeping;
use std::time::Duration;

/// Bytes, and their multiples.
pub const BYTE_UNITS: [(char, u64); 4] = [('B', 1), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

/// Bytes, at least one: `4096`, `100M`, `64MiB`.
///
/// # Errors
/// A sentence for the user.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected bytes, such as 100M or 2G".to_owned();
    let plain = text.strip_suffix("iB").unwrap_or(text);
    scaled(plain, &BYTE_UNITS).filter(|&bytes| bytes > 0).ok_or_else(wrong)
}

/// Units of time, in seconds. No name stands at the end of another one that stands behind it.
pub const TIME_UNITS: [(&str, f64); 7] =
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("m", 60.0), ("s", 1.0), ("h", 3600.0)];

/// A time in ns, or as many as there can be.
#[must_use]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What is said of more than ten years.
const TOO_LONG: &str = "it is too large";

/// A time, with its unit: `10us`, `500ms`, `30s`, `5m` or `5min`, `1h`; nothing is `0`.
///
/// # Errors
/// A sentence for the user.
pub fn span(text: &str) -> Result<Duration, String> {
    const MOST_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;
    let wrong = || "expected a time, such as 500ms, 30s, 5m or 1h".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) =
        TIME_UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds))).ok_or_else(wrong)?;
    let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let seconds = number.parse::<f64>().ok().filter(|_| digits).map(|number| number * unit).ok_or_else(wrong)?;
    if seconds > MOST_SECONDS {
        return Err(TOO_LONG.to_owned());
    }
    // To the nanosecond: 7us are no 6.999.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Milliseconds: a number of them, as perf takes it, or a time with its unit: `100`, `100ms`, `2s`, `1m`.
///
/// # Errors
/// A sentence for the user.
pub fn milliseconds(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let time = span(text).map_err(|why| of_number(why, "milliseconds"))?;
    let whole = u64::try_from(time.as_millis()).ok().filter(|&ms| Duration::from_millis(ms) == time);
    whole.ok_or_else(|| "expected whole milliseconds".to_owned())
}

/// A number of seconds, which may be a fraction, or a time with its unit: `1.5`, `100ms`, `2s`, `1m`.
///
/// # Errors
/// A sentence for the user.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let is_number = text.ends_with(|last: char| last.is_ascii_digit());
    let time = if is_number { span(&format!("{text}s")) } else { span(text) };
    time.map_err(|why| of_number(why, "seconds"))
}

fn of_number(why: String, unit: &str) -> String {
    if why == TOO_LONG { why } else { format!("expected a number of {unit}, or a time such as 100ms, 2s or 1m") }
}

/// A time, or bytes of each CPU: `30s`, `64MiB`. A number alone could be either, and is neither.
///
/// # Errors
/// A sentence for the user.
#[cfg(feature = "record")]
pub fn kept(text: &str) -> Result<Keeping, String> {
    let wrong = || "expected a time, such as 30s or 5m, or bytes of each CPU, such as 64MiB".to_owned();
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    match span(text) {
        Ok(Duration::ZERO) => Err(wrong()),
        Ok(span) => Ok(Keeping::Span(span)),
        Err(_) => size_bytes(text).map(Keeping::Bytes).map_err(|_| wrong()),
    }
}

/// A number, with one of these units or without.
pub fn scaled(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().last()?.to_ascii_uppercase();
    match units.iter().find(|(unit, _)| *unit == last) {
        Some((_, factor)) => text.get(..text.len() - 1)?.parse::<u64>().ok()?.checked_mul(*factor),
        None => text.parse().ok(),
    }
}

/// A time, for people.
#[must_use]
pub fn span_text(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds if seconds < 10.0 => format!("{seconds:.1} s"),
        seconds => format!("{seconds:.0} s"),
    }
}

/// A number of bytes, for people.
#[must_use]
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let value = bytes as f64 / unit as f64;
            if bytes.is_multiple_of(unit) { format!("{value} {name}") } else { format!("{value:.1} {name}") }
        }
        None => format!("{bytes} bytes"),
    }
}

/// A number with separators.
#[must_use]
pub fn number_text(value: u64) -> String {
    let digits = value.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default());
    groups.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_unit() {
        for (text, ms) in [("1.5", 1_500), ("0", 0), ("100ms", 100), ("2m", 120_000), ("1h", 3_600_000), (".5", 500)] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (text, why) in [("", "a number of seconds"), (".", "a number of seconds"), ("-1", "a number of seconds")] {
            assert!(seconds(text).is_err_and(|text| text.contains(why)), "{text}");
        }
        assert_eq!(seconds("99999999999h"), Err("it is too large".to_owned()));
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(bytes_text(1 << 20), "1 MiB");
        assert_eq!(bytes_text(1_500), "1.5 KiB");
        assert_eq!(bytes_text(12), "12 bytes");
        assert_eq!(number_text(1_234_567), "1,234,567");
        assert_eq!(number_text(12), "12");
        assert_eq!(span_text(Duration::from_millis(12)), "12 ms");
        assert_eq!(span_text(Duration::from_millis(2_500)), "2.5 s");
    }

    #[test]
    fn sizes() {
        assert_eq!(size_bytes("2G"), Ok(2 << 30));
        assert_eq!(size_bytes("64MiB"), Ok(64 << 20));
        for wrong in ["", "99999999999G", "0", "iB", "3x", "-1M", "M"] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "record")]
    #[test]
    fn what_is_kept_is_a_time_or_bytes() {
        assert_eq!(kept("30s"), Ok(Keeping::Span(Duration::from_secs(30))));
        assert_eq!(kept("64MiB"), Ok(Keeping::Bytes(64 << 20)));
        // As with `pmux record`: minutes are lower case.
        assert_eq!(kept("5m"), Ok(Keeping::Span(Duration::from_secs(300))));
        assert_eq!(kept("5M"), Ok(Keeping::Bytes(5 << 20)));
        for wrong in ["", "0s", "0", "many", "-5s", "30", "0M"] {
            assert!(kept(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans() {
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(span("0"), Ok(Duration::ZERO));
        assert_eq!((span("7us"), span("7ns")), (Ok(Duration::from_micros(7)), Ok(Duration::from_nanos(7))));
        assert_eq!((span("5m"), span("5min")), (Ok(Duration::from_secs(300)), Ok(Duration::from_secs(300))));
        for wrong in ["", "s", "30", "-1s", "1e9s", "nans", "infs", "99999999h", "1..2s", "5 s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
