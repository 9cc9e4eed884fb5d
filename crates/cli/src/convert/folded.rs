//! A line for each stack, of one event.

use crate::options::flame::GroupStacksBy;
use crate::picture::Drawn;
use crate::picture::folded::{Marks, lines};
use pmux::profile::Tally;
use std::io::{self, Write};

pub(super) fn write(drawn: &Drawn<Tally>, out: &mut dyn Write) -> io::Result<()> {
    for (stack, weight) in lines(drawn, drawn.one_event(), GroupStacksBy::Command, Marks::Hidden) {
        writeln!(out, "{stack} {weight}")?;
    }
    Ok(())
}

/// Whether a file that begins like this has stacks: its first line ends with a number.
pub(super) fn is_folded(begins: &[u8]) -> bool {
    let line = begins.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let last = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    last.len() < line.len() && !last.is_empty() && last.iter().all(u8::is_ascii_digit)
}
