//! The source code of a function, with what was met in each line.
//!
//! What it is: frames of the function become lines by its debugging information, and lines get their text from the source file, if it
//! is there. Read first: [`make`].
//!
//! **Invariant:** a sample counts once for each line that it has in its stack, however often. What was inlined counts for the line that
//! it was inlined into, and is named below that line. A file that is not there, or that can't be the one, is said.

use super::super::messages::{Source, SourceBy, SourceLine, SourcePlace};
use super::instructions::{self, Instruction};
use super::{Made, is_at};
use crate::stderr::visible;
use pmux::profile::{FrameId, Function, Inlining, Profile, Spot, Symbols, Weight};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Larger files are no source code.
const LARGEST_BYTES: u64 = 16 << 20;

/// A line of a file.
type FileLine = (Arc<str>, u32);

/// What was met somewhere, and below it.
#[derive(Clone, Copy, Default)]
struct Met {
    own: Weight,
    total: Weight,
}

/// What is known of a frame of the function.
struct FrameLines {
    offset: u64,
    /// Bytes between the address and the instruction that is meant: an address to which a call returns stands behind the call.
    behind: u64,
    /// The line of the function itself.
    place: Option<FileLine>,
    /// What stands in that line by inlining: the innermost function, and its place.
    inlined: Option<String>,
}

/// The source of the function at a spot; its instructions, too, where these are asked for.
pub(super) fn make(profile: &Profile, symbols: &mut Symbols, made: &Made, (spot, by): (Spot, SourceBy)) -> Source {
    let Spot::Function(id) = spot else { return Source::default() };
    let function = symbols.function(id).clone();
    let module = profile.modules.get(function.module);
    let mut gathered = Gathered::default();
    let mut known: HashMap<FrameId, FrameLines> = HashMap::new();
    let mut total = Weight::default();
    let of_event = made.part.rows().filter(|(key, _)| key.event as usize == made.query.event);
    for (key, weight) in of_event {
        let mut met: HashSet<(Option<FileLine>, u64)> = HashSet::new();
        for (depth, frame) in profile.stacks.walk(key.stack).enumerate() {
            if !is_at(profile, symbols, frame, spot) {
                continue;
            }
            let known = known.entry(frame).or_insert_with(|| look_up(profile, symbols, frame, &function));
            gathered.add(known, *weight, depth == 0, &mut met);
        }
        if !met.is_empty() {
            total.add(*weight);
        }
    }
    let found = match by {
        SourceBy::Lines => Ok(Vec::new()),
        SourceBy::Addresses => instructions::of(profile, symbols, id),
    };
    let mut source = Source {
        program: visible(profile.names.get(module.path)),
        total,
        addresses: gathered.addresses(found.as_deref().unwrap_or_default()),
        remarks: found.err().into_iter().collect(),
        ..Source::default()
    };
    match gathered.main_file() {
        Some(file) => gathered.lines(&file, &mut source),
        None => source.remarks.push(format!(
            "{} has no line numbers here: addresses are shown. Compile with -g, or install its debugging information",
            source.program
        )),
    }
    source
}

fn look_up(profile: &Profile, symbols: &mut Symbols, frame: FrameId, function: &Function) -> FrameLines {
    let lines = symbols.lines_of(profile, frame);
    let place = profile.stacks.frame(frame);
    let (offset, behind) = (place.address.wrapping_sub(function.start), place.address - place.lookup());
    // Where the function stands among those that the frame is in.
    let at = match function.inlining {
        Inlining::Called => lines.len().saturating_sub(1),
        Inlining::Inlined => {
            lines.iter().position(|line| line.function.as_deref() == Some(&function.name)).unwrap_or(0)
        }
    };
    let place = lines.get(at).and_then(|line| Some((line.file.clone()?, line.line?)));
    let inlined = lines.first().filter(|_| at > 0).map(|first| {
        let name = visible(first.function.as_deref().unwrap_or("?"));
        match (first.file.as_deref(), first.line) {
            (Some(file), Some(line)) => {
                format!("{name} ({}:{line})", visible(file.rsplit('/').next().unwrap_or(file)))
            }
            _ => name,
        }
    });
    FrameLines { offset, behind, place, inlined }
}

/// Weights by place.
#[derive(Default)]
struct Gathered {
    lines: HashMap<FileLine, Met>,
    inlined: HashMap<(FileLine, String), Weight>,
    /// By offset, and what stands between that and the instruction.
    addresses: BTreeMap<(u64, u64), Met>,
}

impl Gathered {
    /// A frame of a stack; `met` is what the stack was counted for.
    fn add(
        &mut self,
        known: &FrameLines,
        weight: Weight,
        is_innermost: bool,
        met: &mut HashSet<(Option<FileLine>, u64)>,
    ) {
        let count = |into: &mut Met, is_new: bool| {
            if is_innermost {
                into.own.add(weight);
            }
            if is_new {
                into.total.add(weight);
            }
        };
        let is_new = met.insert((None, known.offset));
        count(self.addresses.entry((known.offset, known.behind)).or_default(), is_new);
        let Some(place) = &known.place else { return };
        let is_new = met.insert((Some(place.clone()), 0));
        count(self.lines.entry(place.clone()).or_default(), is_new);
        if let Some(inlined) = &known.inlined
            && is_innermost
        {
            self.inlined.entry((place.clone(), inlined.clone())).or_default().add(weight);
        }
    }

    /// What was met at each address; with instructions, at each of them.
    fn addresses(&self, instructions: &[Instruction]) -> Vec<SourceLine> {
        let line = |offset: u64, text: &str, Met { own, total }: Met| {
            let place = SourcePlace::Offset(offset);
            SourceLine { place, text: text.to_owned(), own, total }
        };
        if instructions.is_empty() {
            return self.addresses.iter().map(|(&(offset, _), met)| line(offset, "", *met)).collect();
        }
        let mut mets = vec![Met::default(); instructions.len()];
        for (&(offset, behind), met) in &self.addresses {
            let inside = offset.saturating_sub(behind);
            let at = instructions.partition_point(|instruction| instruction.offset <= inside);
            if let Some(sum) = at.checked_sub(1).and_then(|at| mets.get_mut(at)) {
                sum.own.add(met.own);
                sum.total.add(met.total);
            }
        }
        let lines = instructions.iter().zip(mets);
        lines.map(|(instruction, met)| line(instruction.offset, &instruction.text, met)).collect()
    }

    /// The file in which most was met.
    fn main_file(&self) -> Option<Arc<str>> {
        let mut files: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for ((file, _), met) in &self.lines {
            *files.entry(file).or_default() += met.total.period;
        }
        files.into_iter().max_by_key(|(_, period)| *period).map(|(file, _)| Arc::clone(file))
    }

    /// Fills in the lines of a file, and what has to be said of it.
    fn lines(&self, file: &Arc<str>, source: &mut Source) {
        let mut met: BTreeMap<u32, Met> = BTreeMap::new();
        let mut others = Weight::default();
        for ((of_file, line), weights) in &self.lines {
            if of_file == file {
                met.insert(*line, *weights);
            } else {
                others.add(weights.total);
            }
        }
        source.file = Some(visible(file));
        if others.samples > 0 {
            let plural = if others.samples == 1 { "sample is" } else { "samples are" };
            source.remarks.push(format!("{} {plural} of lines in other files", others.samples));
        }
        // Without the file lines have no text.
        let texts = read(Path::new(&**file), source).unwrap_or_else(|why| {
            source.remarks.push(why);
            Vec::new()
        });
        let last_met = met.keys().next_back().copied().unwrap_or(0);
        if !texts.is_empty() && last_met as usize > texts.len() {
            source.remarks.push(format!(
                "{} has {} lines, and the program is of a file that has more: it is another version",
                visible(file),
                texts.len()
            ));
        }
        let numbers: Vec<u32> = if texts.is_empty() {
            met.keys().copied().collect()
        } else {
            (1..=(texts.len() as u32).max(last_met)).collect()
        };
        for number in numbers {
            let Met { own, total } = met.get(&number).copied().unwrap_or_default();
            let text = texts.get(number.wrapping_sub(1) as usize).cloned().unwrap_or_default();
            source.lines.push(SourceLine { place: SourcePlace::Line(number), text, own, total });
            let mut inlined: Vec<_> =
                self.inlined.iter().filter(|(((of, line), _), _)| of == file && *line == number).collect();
            pmux::order::sort_by_key(&mut inlined, |((_, name), weight)| {
                (std::cmp::Reverse(weight.period), name.clone())
            });
            source.lines.extend(inlined.into_iter().map(|((_, name), weight)| SourceLine {
                place: SourcePlace::Inlined,
                text: name.clone(),
                own: *weight,
                total: *weight,
            }));
        }
    }
}

/// The lines of a source file.
fn read(path: &Path, source: &mut Source) -> Result<Vec<String>, String> {
    let shown = visible(&path.display().to_string());
    let found = locate(path).ok_or_else(|| format!("the source file {shown} is not here: lines have numbers only"))?;
    if found != path {
        source.remarks.push(format!("{shown} is not here: this is {}", visible(&found.display().to_string())));
    }
    let about = std::fs::metadata(&found).and_then(|about| Ok((about.len(), about.modified()?)));
    if let Ok((bytes, written)) = about {
        if bytes > LARGEST_BYTES {
            return Err(format!("{shown} is no source code: it has {} MiB", bytes >> 20));
        }
        let built = std::fs::metadata(&source.program).and_then(|about| about.modified());
        if built.is_ok_and(|built| written > built) {
            source.remarks.push(format!("{shown} was written after the program: lines may have moved"));
        }
    }
    let bytes = std::fs::read(&found).map_err(|error| format!("{shown} can't be read: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).lines().map(plain).collect())
}

/// A line as it may stand on a terminal.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => {
                let column = out.chars().count();
                out.extend(std::iter::repeat_n(' ', 8 - column % 8));
            }
            c => out.push(c),
        }
    }
    visible(&out)
}

/// The file itself, or the one below the working directory whose path ends in the longest end of this one: programs are built elsewhere.
fn locate(path: &Path) -> Option<PathBuf> {
    let is_file = |path: &Path| std::fs::metadata(path).is_ok_and(|about| about.is_file());
    if is_file(path) {
        return Some(path.to_owned());
    }
    let parts: Vec<_> = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    (0..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>()).find(|end| is_file(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_on_a_terminal_as_in_an_editor() {
        assert_eq!(plain("\tx\ty"), "        x       y");
        assert_eq!(plain("a\u{1b}[31m"), "a\\u{1b}[31m");
    }

    #[test]
    fn the_lines_of_a_file_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.c");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let file: Arc<str> = path.to_str().unwrap().into();
        let mut gathered = Gathered::default();
        let known = |line, inlined: Option<&str>| FrameLines {
            offset: u64::from(line) * 16,
            behind: 0,
            place: Some((file.clone(), line)),
            inlined: inlined.map(str::to_owned),
        };
        let weight = Weight { period: 10, samples: 1 };
        let mut met = HashSet::new();
        // The function called itself from line 3, and was met in what was inlined into line 2.
        gathered.add(&known(2, Some("f (b.h:7)")), weight, true, &mut met);
        gathered.add(&known(3, None), weight, false, &mut met);
        gathered.add(&known(3, None), weight, false, &mut met);
        let mut source = Source::default();
        assert_eq!(gathered.main_file(), Some(file.clone()));
        gathered.lines(&file, &mut source);
        let shown: Vec<_> =
            source.lines.iter().map(|line| (line.text.as_str(), line.own.period, line.total.period)).collect();
        assert_eq!(shown, [("one", 0, 0), ("two", 10, 10), ("f (b.h:7)", 10, 10), ("three", 0, 10)]);
        assert_eq!(gathered.addresses(&[]).len(), 2);
        // What was met inside an instruction counts for it.
        let instructions = [0, 30, 33, 60].map(|offset| Instruction { offset, text: format!("at {offset}") });
        let shown: Vec<u64> = gathered.addresses(&instructions).iter().map(|line| line.total.period).collect();
        assert_eq!(shown, [0, 10, 10, 0]);
        assert!(source.remarks.is_empty(), "{:?}", source.remarks);
        // Without the file there are numbers.
        std::fs::remove_file(&path).unwrap();
        let mut source = Source::default();
        gathered.lines(&file, &mut source);
        assert_eq!(source.lines.len(), 3);
        assert!(source.remarks[0].contains("a.c is not here"), "{:?}", source.remarks);
    }
}
