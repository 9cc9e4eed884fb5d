//! Lines of a process tree as a page: columns that fit the terminal as far as that is possible.
//!
//! What gives way, in this order: the command column, heads (several lines each), the column of process ids, and what
//! is left of the command column. Numbers never do.
//!
//! **Invariant:** all lines have the same columns.

use super::text;
use crate::stat::report::EventColumn;
use crate::style::{Ink, Style};
use std::fmt::Write as _;

/// The command column, where no terminal sets a limit.
const COMMAND_WIDTH: usize = 60;
/// The command column has at least this much, as long as something else can give way.
const COMMAND_WIDTH_GOOD: usize = 24;
/// The command column has at least this much in any case.
const COMMAND_WIDTH_MIN: usize = 12;
/// A head of several lines is at least this wide, so that it has not too many of them.
const HEAD_WIDTH_MIN: usize = 8;

/// One line: a process, or equal siblings together.
#[derive(Default)]
pub(super) struct TreeLine {
    pub(super) rails: String,
    pub(super) command: String,
    pub(super) note: String,
    pub(super) pid: String,
    pub(super) wall: String,
    pub(super) values: Vec<String>,
}

pub(super) struct Head(String);

impl Head {
    /// The head of an event's column: name and unit.
    pub(super) fn of(event: &EventColumn) -> Self {
        Self(match event.unit.as_str() {
            "" => text::visible(&event.name),
            unit => format!("{} {unit}", text::visible(&event.name)),
        })
    }

    /// Breaks the head into lines of about this width, between words only.
    fn broken(&self, width: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in self.0.split_inclusive([' ', '-', '_', ':', '/', '.', ',']) {
            match lines.last_mut() {
                Some(line) if text::columns(line) + text::columns(word.trim_end()) <= width => line.push_str(word),
                _ => lines.push(word.to_owned()),
            }
        }
        for line in &mut lines {
            text::trim_line_end(line);
        }
        lines
    }
}

/// Widths of the columns; `None` for one that is left out.
struct TreeWidths {
    command: usize,
    pid: Option<usize>,
    wall: usize,
    values: Vec<usize>,
}

impl TreeWidths {
    /// Everything but the command: two spaces before each column, one before the command.
    fn others(&self) -> usize {
        1 + self.pid.map_or(0, |pid| pid + 2) + 2 + self.wall + self.values.iter().map(|width| width + 2).sum::<usize>()
    }
}

pub(super) fn push(out: &mut String, heads: &[Head], lines: &[TreeLine], total: &TreeLine, style: Style) {
    let all = || lines.iter().chain([total]);
    let widest = |text_of: &dyn Fn(&TreeLine) -> usize| all().map(text_of).max().unwrap_or(0);
    let numbers: Vec<usize> = (0..heads.len())
        .map(|at| widest(&|line| line.values.get(at).map_or(0, |value| text::columns(value))))
        .collect();
    let commands =
        widest(&|line| text::columns(&line.rails) + text::columns(&line.command) + text::columns(&line.note));
    let mut shown: Vec<Vec<String>> = heads.iter().map(|head| vec![head.0.clone()]).collect();
    let mut widths = TreeWidths {
        command: commands.max("command".len()),
        pid: Some(widest(&|line| text::columns(&line.pid)).max("pid".len())),
        wall: widest(&|line| text::columns(&line.wall)).max("wall ms".len()),
        values: columns(&numbers, &shown),
    };
    match style.width {
        None => widths.command = widths.command.min(COMMAND_WIDTH),
        Some(width) => {
            let room = |widths: &TreeWidths| width.saturating_sub(widths.others());
            let good = widths.command.min(COMMAND_WIDTH_GOOD);
            if room(&widths) < good {
                let broken = heads.iter().zip(&numbers).map(|(head, &width)| head.broken(width.max(HEAD_WIDTH_MIN)));
                shown = broken.collect();
                widths.values = columns(&numbers, &shown);
            }
            if room(&widths) < good.min(COMMAND_WIDTH_GOOD - 4) {
                widths.pid = None;
            }
            widths.command = widths.command.min(room(&widths).max(COMMAND_WIDTH_MIN));
        }
    }
    push_heads(out, &shown, &widths, style);
    for line in lines {
        push_line(out, line, &widths, Ink::Plain, style);
    }
    push_line(out, total, &widths, Ink::Strong, style);
}

/// The width of each value's column.
fn columns(numbers: &[usize], heads: &[Vec<String>]) -> Vec<usize> {
    let head = |lines: &[String]| lines.iter().map(|line| text::columns(line)).max().unwrap_or(0);
    numbers.iter().zip(heads).map(|(&number, lines)| number.max(head(lines))).collect()
}

fn push_heads(out: &mut String, heads: &[Vec<String>], widths: &TreeWidths, style: Style) {
    let height = heads.iter().map(Vec::len).max().unwrap_or(1).max(1);
    for row in 0..height {
        let last = row + 1 == height;
        let only_last = |text: &str| if last { text.to_owned() } else { String::new() };
        // Heads stand on their numbers.
        let value = |lines: &Vec<String>| {
            (row + lines.len()).checked_sub(height).and_then(|at| lines.get(at)).cloned().unwrap_or_default()
        };
        let line = TreeLine {
            command: only_last("command"),
            pid: only_last("pid"),
            wall: only_last("wall ms"),
            values: heads.iter().map(value).collect(),
            ..TreeLine::default()
        };
        push_line(out, &line, widths, Ink::Faint, style);
    }
}

fn push_line(out: &mut String, line: &TreeLine, widths: &TreeWidths, ink: Ink, style: Style) {
    out.push(' ');
    let (mut rails, mut command) = (line.rails.clone(), line.command.clone());
    let mut note = text::columns(&line.note);
    if style.width.is_some() {
        // However deep a process is, something of its name is seen.
        rails = text::cut(&rails, widths.command.saturating_sub(COMMAND_WIDTH_MIN / 2));
        // The count of folded siblings is worth more than the end of a long command.
        let room = widths.command.saturating_sub(text::columns(&rails));
        command = text::cut(&command, room.saturating_sub(note).max(1));
        note = note.min(room.saturating_sub(text::columns(&command)));
    }
    style.paint(out, Ink::Faint, &rails);
    style.paint(out, ink, &command);
    style.paint(out, Ink::Faint, &text::cut(&line.note, note));
    let used = text::columns(&rails) + text::columns(&command) + note;
    let mut rest = String::new();
    let (gap, wall) = (widths.command.saturating_sub(used), widths.wall);
    let _ = write!(rest, "{:gap$}", "");
    if let Some(pid) = widths.pid {
        let _ = write!(rest, "  {:>pid$}", line.pid);
    }
    let _ = write!(rest, "  {:>wall$}", line.wall);
    for (value, &width) in line.values.iter().zip(&widths.values) {
        let _ = write!(rest, "  {value:>width$}");
    }
    style.paint(out, ink, &rest);
    text::trim_line_end(out);
    out.push('\n');
}
