//! Numbers with units, as they are typed.
//!
//! **Invariant:** pure.

use std::time::Duration;

/// Bytes, and their multiples.
pub(super) const BYTE_UNITS: [(char, u64); 4] = [('B', 1), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

/// Bytes, at least one: `4096`, `100M`, `64MiB`.
///
/// # Errors
/// A sentence for the user.
pub(super) fn size_bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected bytes, such as 100M or 2G".to_owned();
    let plain = text.strip_suffix("iB").unwrap_or(text);
    scaled(plain, &BYTE_UNITS).filter(|&bytes| bytes > 0).ok_or_else(wrong)
}

/// A time, with its unit: `500ms`, `30s`, `5m`, `1h`; nothing is `0`.
///
/// # Errors
/// A sentence for the user.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    const MOST_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;
    let wrong = || "expected a time, such as 500ms, 30s, 5m or 1h".to_owned();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) =
        UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds))).ok_or_else(wrong)?;
    let digits = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let seconds = number.parse::<f64>().ok().filter(|_| digits).map(|number| number * unit);
    seconds.filter(|seconds| *seconds <= MOST_SECONDS).map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// A number, with one of these units or without.
pub(super) fn scaled(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().last()?.to_ascii_uppercase();
    match units.iter().find(|(unit, _)| *unit == last) {
        Some((_, factor)) => text.get(..text.len() - 1)?.parse::<u64>().ok()?.checked_mul(*factor),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size_bytes("2G"), Ok(2 << 30));
        assert_eq!(size_bytes("64MiB"), Ok(64 << 20));
        for wrong in ["", "99999999999G", "0", "iB", "3x", "-1M", "M"] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans() {
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(span("0"), Ok(Duration::ZERO));
        for wrong in ["", "s", "30", "-1s", "1e9s", "nans", "infs", "99999999h", "1..2s", "5 s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
