//! Where a recording comes from: a file, a folder of them, or something that is read once.
//!
//! **Invariant:** a file is read from its front to its end, once, whatever its size; it is never whole in memory.

use super::error::ProfileError;
use super::folder;
use super::head::{Head, PIPE_HEADER, is_pipe};
use super::{Progress, Sources};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A recording to read.
pub struct Input {
    source: InputSource,
    is_live: bool,
    pub(super) sources: Sources,
    /// What a folder has beside the first one, in the order of time.
    pub(super) next: Vec<PathBuf>,
    /// What the threads of `perf record --threads` wrote beside the first one: records, and nothing that describes them.
    beside: Vec<PathBuf>,
    files: Vec<PathBuf>,
    pub(super) notes: Vec<String>,
    pub(super) on_progress: Option<Box<dyn FnMut(Progress) + Send>>,
    /// Whether each branch of a sample stands for it.
    pub(super) by_branches: bool,
}

enum InputSource {
    File(File),
    Stream(Box<dyn Read + Send>),
}

impl Input {
    /// Of a file; of a folder of recordings of one machine, such as the snapshots of a flight recorder; of a folder that `perf record`
    /// wrote with `--threads` or `--kcore`; or of standard input for `-`.
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
            if let Some((first, beside)) = folder::parts(path)? {
                let file = File::open(&first).map_err(|error| ProfileError::Open(first.clone(), error))?;
                return Ok(Self { beside, files: vec![first], ..Self::file(file) });
            }
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
        if let [one] = &paths[..] {
            return Self::open(one);
        }
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
        Self::of(InputSource::File(file))
    }

    /// Of a recording in the form of a stream that is still being written: what comes is told as soon as it is in the order of time,
    /// which is two rounds of the recorder later, or where it ends one ([`crate::record::Recorder::end_round`]).
    #[must_use]
    pub fn live(source: impl Read + Send + 'static) -> Self {
        Self { is_live: true, ..Self::stream(source) }
    }

    /// Of anything that can be read once.
    #[must_use]
    pub fn stream(source: impl Read + Send + 'static) -> Self {
        Self::of(InputSource::Stream(Box::new(source)))
    }

    fn of(source: InputSource) -> Self {
        Self {
            source,
            is_live: false,
            sources: Sources::default(),
            next: Vec::new(),
            beside: Vec::new(),
            files: Vec::new(),
            notes: Vec::new(),
            on_progress: None,
            by_branches: false,
        }
    }

    /// With what is said about where the files of the recorded machine are.
    #[must_use]
    pub fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// Tells how far reading is, some hundred times in a large recording. It is dropped when reading has ended.
    #[must_use]
    pub fn on_progress(self, on_progress: impl FnMut(Progress) + Send + 'static) -> Self {
        Self { on_progress: Some(Box::new(on_progress)), ..self }
    }

    /// Makes a sample of each of the last branches that were recorded with one: its stack is where the branch went, called from where it
    /// was. Samples without branches are left out.
    #[must_use]
    pub fn by_branches(self) -> Self {
        Self { by_branches: true, ..self }
    }

    /// The files that are read, in the order of time; none of a stream.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// What is to be read beside the first one.
    ///
    /// # Errors
    /// [`ProfileError::Open`].
    pub(super) fn take_beside(&mut self) -> Result<Vec<Records>, ProfileError> {
        let open = |path: PathBuf| {
            let opened = File::open(&path).and_then(|file| {
                let end = file.metadata()?.len();
                Ok(Records { source: Box::new(file.take(end)), total: Some(end), taken: 0, is_live: false })
            });
            opened.map_err(|error| ProfileError::Open(path, error))
        };
        std::mem::take(&mut self.beside).into_iter().map(open).collect()
    }

    /// When what is read was written last; `None` of a stream.
    pub(super) fn written(&self) -> Option<SystemTime> {
        let InputSource::File(first) = &self.source else { return None };
        let next = self.next.iter().map(std::fs::metadata);
        std::iter::once(first.metadata()).chain(next).filter_map(|data| data.ok()?.modified().ok()).max()
    }

    /// Reads the description, and leaves the records.
    pub(super) fn begin(self) -> Result<(Head, Records), ProfileError> {
        match self.source {
            InputSource::File(file) => of_file(file),
            InputSource::Stream(mut stream) => {
                let mut first = Vec::new();
                (&mut stream).take(PIPE_HEADER as u64).read_to_end(&mut first)?;
                if is_pipe(&first)? {
                    let records = Records { source: stream, total: None, taken: 0, is_live: self.is_live };
                    return Ok((Head::default(), records));
                }
                // A file that comes through a pipe: what describes it stands at its end.
                let mut copy = temporary_file()?;
                io::copy(&mut first.as_slice().chain(stream), &mut copy)?;
                of_file(copy)
            }
        }
    }
}

fn of_file(mut file: File) -> Result<(Head, Records), ProfileError> {
    let mut first = Vec::new();
    file.rewind()?;
    (&mut file).take(PIPE_HEADER as u64).read_to_end(&mut first)?;
    if is_pipe(&first)? {
        let total = file.metadata()?.len();
        return Ok((Head::default(), Records { source: Box::new(file), total: Some(total), taken: 0, is_live: false }));
    }
    let (head, data) = Head::read(&file)?;
    let total = data.end - data.start;
    file.seek(SeekFrom::Start(data.start))?;
    Ok((head, Records { source: Box::new(file.take(total)), total: Some(total), taken: 0, is_live: false }))
}

/// A file without a name.
fn temporary_file() -> io::Result<File> {
    let unique = SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let path = std::env::temp_dir().join(format!("pmux-{}-{unique}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The bytes of all records, one after another.
pub(super) struct Records {
    source: Box<dyn Read + Send>,
    /// How many bytes there are, where that is known.
    pub(super) total: Option<u64>,
    pub(super) taken: u64,
    /// Whether what is there is worth more than what would come by waiting.
    is_live: bool,
}

impl Records {
    /// Adds up to so many bytes. Returns how many; fewer only at the end, or of what is live.
    pub(super) fn read_more(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        // How many are asked for may be what a recording claims: memory is taken as they come. The room is not filled with zeros first.
        const PIECE_BYTES: usize = 1 << 20;
        if self.is_live {
            return self.read_once(into, most);
        }
        let mut all = 0;
        while all < most {
            let (before, wanted) = (into.len(), PIECE_BYTES.min(most - all));
            into.reserve(wanted);
            let read = (&mut self.source).take(wanted as u64).read_to_end(into);
            let count = into.len() - before;
            self.taken += count as u64;
            all += count;
            if read? < wanted {
                break;
            }
        }
        Ok(all)
    }

    /// Adds what is there, or waits until something is.
    fn read_once(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        const PIECE_BYTES: usize = 1 << 16;
        let before = into.len();
        into.resize(before + PIECE_BYTES.min(most), 0);
        let read = loop {
            match self.source.read(&mut into[before..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let count = *read.as_ref().unwrap_or(&0);
        into.truncate(before + count);
        self.taken += count as u64;
        read
    }

    /// Leaves bytes out that are no records.
    pub(super) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.taken += io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        Ok(())
    }
}
