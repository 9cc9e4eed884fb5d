//! Where a picture goes: a file, compressed if its name says so, or standard output.
//!
//! **Invariant:** a file that could not be written whole is complained about and taken away; a file that pmux did not write is left as it
//! is, unless the user says otherwise; a reader that has enough is no error.

use crate::failure::{Failure, failed};
use crate::options::picture::OutputOptions;
use crate::stderr::write_stderr;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use pmux::units::bytes_text;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// In so many bytes at most the mark of a file is looked for: a pprof profile has it at its end.
const LOOKED_AT: u64 = 1 << 26;

/// What is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Its name, with an article.
    pub(crate) name: &'static str,
    /// What files of this kind begin with.
    pub(crate) begins: &'static str,
    /// What only files that pmux wrote have in them; `None` where the format has no place for it.
    pub(crate) mark: Option<&'static str>,
    pub(crate) packing: Packing,
    /// What a user does with it.
    pub(crate) opens: &'static str,
}

/// Whether a format is compressed wherever it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    Always,
    /// Where the name of the file ends in `.gz`.
    ByName,
}

pub(crate) struct Place {
    path: PathBuf,
    json: bool,
}

impl Place {
    fn is_stdout(&self) -> bool {
        self.path == Path::new("-")
    }
}

/// Where to write: what was typed, or standard output; on a terminal and with `--json`, a file of this name.
///
/// # Errors
/// A file is there that pmux has not written and that it may not replace; or both the picture and JSON would go to standard output.
pub(crate) fn place(options: &OutputOptions, name: &str, kind: Kind) -> Result<Place, Failure> {
    let path = match &options.output {
        Some(path) => path.clone(),
        None if options.json || io::stdout().is_terminal() => name.into(),
        None => "-".into(),
    };
    let place = Place { path, json: options.json };
    if place.is_stdout() && options.json {
        return Err(failed("with --json standard output says what was written: -o names a file".to_owned()));
    }
    if !place.is_stdout() && !options.force {
        check(&place.path, kind)?;
    }
    Ok(place)
}

/// Refuses to replace a file without the mark of this command.
///
/// # Errors
/// There is such a file.
fn check(to: &Path, kind: Kind) -> Result<(), Failure> {
    let mut text = Vec::new();
    let is_file = std::fs::metadata(to).is_ok_and(|it| it.is_file());
    let (true, Ok(file)) = (is_file, File::open(to)) else { return Ok(()) };
    // What can't be read is judged by what there is of it.
    let _ = file.take(LOOKED_AT).read_to_end(&mut text);
    if text.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let _ = GzDecoder::new(&text[..]).take(LOOKED_AT).read_to_end(&mut unpacked);
        text = unpacked;
    }
    // An empty file was made for it.
    let has = |mark: &str| text.windows(mark.len()).any(|part| part == mark.as_bytes());
    if text.is_empty() || (text.starts_with(kind.begins.as_bytes()) && kind.mark.is_some_and(has)) {
        return Ok(());
    }
    let why = match kind.mark {
        Some(_) => format!("is not {} that pmux wrote", kind.name),
        None => "could be of another program".to_owned(),
    };
    let to = to.display();
    Err(failed(format!("{to} is there and {why}: it is not replaced. --force replaces it, -o names another file")))
}

/// Writes to a [`place`]. On a terminal the user is told what was written, and how to open it.
///
/// # Errors
/// It can't be written there.
pub(crate) fn write(
    to: &Place,
    kind: Kind,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let (is_stdout, json, to) = (to.is_stdout(), to.json, &*to.path);
    let name = if is_stdout { "standard output".to_owned() } else { to.display().to_string() };
    let cant = |error: io::Error| failed(format!("can't write to {name}: {error}"));
    let place: Box<dyn Write> =
        if is_stdout { Box::new(io::stdout().lock()) } else { Box::new(File::create(to).map_err(cant)?) };
    let into = || -> io::Result<()> {
        let mut place = BufWriter::with_capacity(1 << 16, place);
        if kind.packing == Packing::Always || to.extension().is_some_and(|extension| extension == "gz") {
            let mut packed = GzEncoder::new(&mut place, Compression::default());
            write(&mut packed)?;
            packed.finish()?;
        } else {
            write(&mut place)?;
        }
        place.flush()
    };
    match into() {
        Err(error) if is_stdout && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            // Half a picture looks like a whole one.
            if !is_stdout && std::fs::symlink_metadata(to).is_ok_and(|it| it.is_file()) {
                let _ = std::fs::remove_file(to);
            }
            Err(cant(error))
        }
        Ok(()) => {
            let bytes = std::fs::metadata(to).map_or(0, |it| it.len());
            if json {
                let what = kind.name.strip_prefix("a ").unwrap_or(kind.name);
                let written = serde_json::json!({ "file": name, "what": what, "bytes": bytes });
                match writeln!(io::stdout().lock(), "{written}") {
                    Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                        return Err(failed(format!("can't write to standard output: {error}")));
                    }
                    _ => {}
                }
            } else if !is_stdout && io::stderr().is_terminal() {
                write_stderr(&format!("wrote {name}, {}, {}. {}", kind.name, bytes_text(bytes), kind.opens));
            }
            Ok(())
        }
    }
}
