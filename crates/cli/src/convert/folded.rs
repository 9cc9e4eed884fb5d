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
