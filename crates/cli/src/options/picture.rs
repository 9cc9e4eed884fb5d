//! What the commands that read a recording have in common: which recording, and which part of it.
//!
//! **Invariant:** plain data.

use clap::Args;
use std::path::PathBuf;

/// Which recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct InputOptions {
    /// Read this recording: a file, a folder, whose recordings (*.data) become one, or `-` for standard input (default: what is piped
    /// in, or perf.data)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
}

/// Which part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct PartOptions {
    /// Only these events, by name with or without modifiers; separated by commas, may be given again
    #[arg(short, long = "event", value_name = "EVENT,…", value_delimiter = ',')]
    pub(crate) events: Vec<String>,

    /// Only from so long after the first sample: seconds, or with ms, us or ns
    #[arg(long = "from", value_name = "TIME", value_parser = time_ns)]
    pub(crate) from_ns: Option<u64>,

    /// Only until so long after the first sample
    #[arg(long = "to", value_name = "TIME", value_parser = time_ns)]
    pub(crate) to_ns: Option<u64>,
}

impl PartOptions {
    /// Checks what clap can't.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.from_ns, self.to_ns) {
            (from, Some(to)) if from.unwrap_or(0) >= to => Err("--to must be later than --from".to_owned()),
            _ => Ok(()),
        }
    }

    /// The same, as the library is asked.
    pub(crate) fn wanted(&self) -> pmux::profile::Wanted {
        pmux::profile::Wanted { events: self.events.clone(), from_ns: self.from_ns, to_ns: self.to_ns }
    }
}

/// `1.5`, `1.5s`, `200ms`, in ns.
pub(crate) fn time_ns(text: &str) -> Result<u64, String> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        "ns" => 1.0,
        _ => return Err(format!("'{unit}' is no unit of time: take s, ms, us or ns")),
    };
    match number.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok((value * unit_ns).round() as u64),
        _ => Err(format!("'{number}' is no time: take a number of seconds, or one with ms, us or ns")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time_ns("1.5"), Ok(1_500_000_000));
        assert_eq!(time_ns("200ms"), Ok(200_000_000));
        assert_eq!(time_ns("7us"), Ok(7_000));
        assert!(time_ns("-1").is_err() && time_ns("1h").is_err() && time_ns("").is_err() && time_ns("inf").is_err());
    }

    #[test]
    fn a_part_has_some_length() {
        let part = |from_ns, to_ns| PartOptions { from_ns, to_ns, ..PartOptions::default() };
        assert!(part(None, None).check().is_ok() && part(Some(5), None).check().is_ok());
        assert!(part(Some(5), Some(6)).check().is_ok());
        assert!(part(Some(5), Some(5)).check().is_err() && part(None, Some(0)).check().is_err());
    }
}
