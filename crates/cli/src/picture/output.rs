//! Where a picture goes: a file, compressed if its name says so, or standard output.
//!
//! **Invariant:** a file that could not be written whole is complained about and taken away; a reader that has enough is no error.

use crate::failure::{Failure, failed};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Whether a format is compressed wherever it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packing {
    /// Always.
    Always,
    /// Where the name of the file ends in `.gz`.
    ByName,
}

/// Where to write: what was typed, or standard output; on a terminal, a file of this name.
pub(crate) fn place(typed: Option<&Path>, name: &str) -> PathBuf {
    match typed {
        Some(path) => path.to_owned(),
        None if io::stdout().is_terminal() => name.into(),
        None => "-".into(),
    }
}

/// Writes.
///
/// # Errors
/// It can't be written there.
pub(crate) fn write(
    to: &Path,
    packing: Packing,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let is_stdout = to == Path::new("-");
    let name = if is_stdout { "standard output".to_owned() } else { to.display().to_string() };
    let cant = |error: io::Error| failed(format!("can't write to {name}: {error}"));
    let place: Box<dyn Write> =
        if is_stdout { Box::new(io::stdout().lock()) } else { Box::new(File::create(to).map_err(cant)?) };
    let into = || -> io::Result<()> {
        let mut place = BufWriter::with_capacity(1 << 16, place);
        if packing == Packing::Always || to.extension().is_some_and(|extension| extension == "gz") {
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
        Ok(()) => Ok(()),
    }
}
