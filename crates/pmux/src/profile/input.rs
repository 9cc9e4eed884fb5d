//! Where a recording comes from: a file, a folder of them, or something that is read once.
//!
//! **Invariant:** a file is read from its front to its end, once, whatever its size; it is never whole in memory.

use super::Sources;
use super::error::ProfileError;
use super::folder;
use super::head::{Data, Head, PIPE_HEADER, is_pipe};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A recording to read.
pub struct Input {
    source: Source,
    pub(super) sources: Sources,
    /// What a folder has beside the first one, in the order of time.
    next: Vec<PathBuf>,
    files: Vec<PathBuf>,
    notes: Vec<String>,
}

enum Source {
    File(File),
    Stream(Box<dyn Read + Send>),
}

impl Input {
    /// Of a file; of a folder of recordings of one machine, such as the snapshots of a flight recorder; or of standard input for `-`.
    ///
    /// The recordings of a folder (`*.data`) become one: in the order of time, and what two of them have is there once.
    ///
    /// # Errors
    /// [`ProfileError::Open`], [`ProfileError::Folder`], [`ProfileError::Machines`], and of a folder what is wrong with all that is in
    /// it.
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        if path == Path::new("-") {
            return Ok(Self::stream(io::stdin()));
        }
        let failed = |error| ProfileError::Open(path.to_owned(), error);
        let file = File::open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            return Self::join(path, folder::recordings(path)?);
        }
        let mut input = if kind.is_file() { Self::file(file) } else { Self::stream(file) };
        input.files.push(path.to_owned());
        Ok(input)
    }

    /// Of several recordings of one machine, which become one as those of a folder do.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn of_files(paths: Vec<PathBuf>) -> Result<Self, ProfileError> {
        let first = paths.first().cloned().unwrap_or_default();
        Self::join(&first, paths)
    }

    fn join(path: &Path, paths: Vec<PathBuf>) -> Result<Self, ProfileError> {
        let (files, notes) = folder::in_order(path, paths)?;
        let Some((first, next)) = files.split_first() else { return Err(ProfileError::Folder(path.to_owned())) };
        let file = File::open(first).map_err(|error| ProfileError::Open(first.clone(), error))?;
        Ok(Self { next: next.to_vec(), files, notes, ..Self::file(file) })
    }

    /// Of an opened file.
    #[must_use]
    pub fn file(file: File) -> Self {
        Self {
            source: Source::File(file),
            sources: Sources::default(),
            next: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Of anything that can be read once.
    #[must_use]
    pub fn stream(source: impl Read + Send + 'static) -> Self {
        Self {
            source: Source::Stream(Box::new(source)),
            sources: Sources::default(),
            next: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// With what is said about where the files of the recorded machine are.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// The files that are read, in the order of time; none of a stream.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What is to be read after this one, and what should be known of all.
    pub(super) fn take_rest(&mut self) -> (Vec<PathBuf>, Vec<String>) {
        (std::mem::take(&mut self.next), std::mem::take(&mut self.notes))
    }

    /// Reads the description, and leaves the records.
    pub(super) fn begin(self) -> Result<(Head, Records), ProfileError> {
        match self.source {
            Source::File(file) => of_file(file),
            Source::Stream(mut stream) => {
                let mut first = [0; PIPE_HEADER];
                let read = read_full(&mut stream, &mut first)?;
                if is_pipe(first.get(..read).unwrap_or_default())? {
                    return Ok((Head::default(), Records { source: stream, total: None, taken: 0 }));
                }
                // A file that comes through a pipe: what describes it stands at its end.
                let mut copy = temporary_file()?;
                io::copy(&mut first.chain(stream), &mut copy)?;
                of_file(copy)
            }
        }
    }
}

fn of_file(file: File) -> Result<(Head, Records), ProfileError> {
    let mut first = [0; PIPE_HEADER];
    let mut front = Range { file: file.try_clone()?, at: 0, end: u64::MAX };
    let read = read_full(&mut front, &mut first)?;
    if is_pipe(first.get(..read).unwrap_or_default())? {
        let total = file.metadata()?.len();
        front.at = PIPE_HEADER as u64;
        return Ok((Head::default(), Records { source: Box::new(front), total: Some(total), taken: 0 }));
    }
    let (head, Data { offset, end }) = Head::read(&file)?;
    let range = Range { file, at: offset, end };
    Ok((head, Records { source: Box::new(range), total: Some(end - offset), taken: 0 }))
}

/// A file without a name.
fn temporary_file() -> io::Result<File> {
    let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let path = std::env::temp_dir().join(format!("pmux-{}-{unique}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Fills as much as there is.
fn read_full(source: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A part of a file.
struct Range {
    file: File,
    at: u64,
    end: u64,
}

impl Read for Range {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read_at(&mut into[..room], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The bytes of all records, one after another.
pub(super) struct Records {
    source: Box<dyn Read + Send>,
    /// How many bytes there are, where that is known.
    pub(super) total: Option<u64>,
    /// How many were taken.
    pub(super) taken: u64,
}

impl Records {
    /// Adds up to so many bytes. Returns how many; fewer only at the end.
    pub(super) fn read_more(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let before = into.len();
        into.resize(before + most, 0);
        let read = read_full(&mut self.source, &mut into[before..]);
        into.truncate(before + *read.as_ref().unwrap_or(&0));
        self.taken += *read.as_ref().unwrap_or(&0) as u64;
        read
    }

    /// Leaves bytes out that are no records.
    pub(super) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.taken += io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        Ok(())
    }
}
