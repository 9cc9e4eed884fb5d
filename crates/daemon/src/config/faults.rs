//! All that is wrong with a text, not only what a parser meets first.
//!
//! **Invariant:** a table or line with a fault is left out, and the rest is read as if it were not there; lines keep their numbers.

use super::{Config, in_a_line};
use std::ops::Range;

/// Reads a text: what is understood of it, and a sentence for each fault.
pub(super) fn read(text: &str) -> (Config, Vec<String>) {
    let mut rest = text.to_owned();
    let mut faults = Vec::new();
    loop {
        let wrong = match toml::from_str::<Config>(&rest) {
            Ok(config) => {
                faults.extend(config.check().iter().map(|wrong| wrong.within(&rest)));
                pmux::order::sort_by_key(&mut faults, |fault| line(fault));
                return (config, faults);
            }
            Err(wrong) => wrong,
        };
        faults.push(in_a_line(&wrong, &rest));
        // Where brackets or quotes don't close, what comes after it means nothing.
        let is_toml = toml::from_str::<toml::Table>(&rest).is_ok();
        match wrong.span().filter(|_| is_toml).and_then(|span| faulty(&rest, span)) {
            Some(range) => {
                let left = rest[range.clone()].matches('\n').count();
                rest.replace_range(range, &"\n".repeat(left));
            }
            None => return (Config::default(), faults),
        }
    }
}

/// The line that a sentence begins with; what has none comes last.
fn line(fault: &str) -> usize {
    let number = fault.strip_prefix("line ").and_then(|rest| rest.split([',', ':']).next()?.parse().ok());
    number.unwrap_or(usize::MAX)
}

/// What to leave out for a fault at `span`: its lines, or the table of which it is the head.
fn faulty(text: &str, span: Range<usize>) -> Option<Range<usize>> {
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
    let is_head = |line: &str| line.trim_start().starts_with('[');
    let mut end = begin;
    for (nth, line) in text.get(begin..)?.split_inclusive('\n').enumerate() {
        let is_in = if is_head(&text[begin..]) { nth == 0 || !is_head(line) } else { end < span.end.max(begin + 1) };
        if !is_in {
            break;
        }
        end += line.len();
    }
    (!text[begin..end].trim().is_empty()).then_some(begin..end)
}
