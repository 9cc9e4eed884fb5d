//! Sets of CPUs: their notation, and which of them the machine has.
//!
//! What it is: [`CpuList`], plain data with the kernel's notation (`0-3,5,8-11`), and [`Cpus`], the folder in sysfs
//! that tells which CPUs are possible, present and online.
//! Read first: [`CpuList`].
//!
//! **Invariant:** no limit on the number of CPUs is compiled in beyond one that keeps a slip of the keyboard from
//! filling the memory.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use crate::procfs::Proc;
use crate::sys;

/// The largest CPU number that a list may hold: over a hundred times what any kernel can be built for today.
pub const HIGHEST_CPU: u32 = (1 << 20) - 1;

/// A set of CPUs, sorted, each once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// Makes a set of any numbers, in any order.
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }

    /// Parses a file of the kernel, where an empty line means no CPU at all.
    ///
    /// # Errors
    /// As the parser of [`FromStr`], but never [`CpuListProblem::Empty`] for the whole.
    pub fn parse_kernel(text: &str) -> Result<Self, CpuListError> {
        if text.trim().is_empty() { Ok(Self::default()) } else { text.parse() }
    }

    /// The CPUs, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// Walks over the CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The lowest, if any.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The highest, if any.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self::new(cpus)
    }
}

impl fmt::Display for CpuList {
    /// Writes neighbours as a range: `0-3,5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match run {
                [only] => write!(f, "{comma}{only}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// What is wrong with the text of a CPU list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuListProblem {
    /// A number is missing.
    Empty,
    /// A sign that is no digit.
    NotANumber(char),
    /// A number above [`HIGHEST_CPU`].
    TooLarge,
    /// The end of a range comes before its start.
    Backwards {
        /// The start.
        first: u32,
        /// The end.
        last: u32,
    },
    /// A stride of 0, or more CPUs to use than a stride has.
    BadStride,
}

/// Where the text of a CPU list is wrong, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuListError {
    /// The place, in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: CpuListProblem,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: ", self.column)?;
        match self.problem {
            CpuListProblem::Empty => f.write_str("a CPU number is missing"),
            CpuListProblem::NotANumber(sign) => write!(f, "`{sign}` is no part of a CPU number"),
            CpuListProblem::TooLarge => write!(f, "CPU numbers end at {HIGHEST_CPU}"),
            CpuListProblem::Backwards { first, last } => write!(f, "the range {first}-{last} runs backwards"),
            CpuListProblem::BadStride => f.write_str("a stride needs 1 or more CPUs, and as many as it uses"),
        }
    }
}

impl std::error::Error for CpuListError {}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Parses `0-3,5`, with `0-7:2` for every second CPU and `0-7:1/4` for the first one of every four.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        // Only the end may carry white space: a file ends with a line end.
        let text = text.trim_end();
        let mut cpus = Vec::new();
        let mut column = 1;
        for part in text.split(',') {
            let (range, stride) = cut(part, ':');
            let (first, last) = cut(range, '-');
            let start = number(first, column)?;
            let after_first = column + first.chars().count() + 1;
            let end = last.map_or(Ok(start), |last| number(last, after_first))?;
            if end < start {
                let problem = CpuListProblem::Backwards { first: start, last: end };
                return Err(CpuListError { column, problem });
            }
            let after_range = column + range.chars().count() + 1;
            let (used, group) = stride.map_or(Ok((1, 1)), |stride| stride_of(stride, after_range))?;
            cpus.extend((start..=end).filter(|cpu| (cpu - start) % group < used));
            // Many overlapping ranges must not add up to more than there can be.
            if cpus.len() > HIGHEST_CPU as usize + 1 {
                cpus = Self::new(cpus).0;
            }
            column += part.chars().count() + 1;
        }
        Ok(Self::new(cpus))
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

fn stride_of(text: &str, column: usize) -> Result<(u32, u32), CpuListError> {
    let (head, tail) = cut(text, '/');
    let first = number(head, column)?;
    let (used, group) = match tail {
        Some(tail) => (first, number(tail, column + head.chars().count() + 1)?),
        None => (1, first),
    };
    if used == 0 || group < used {
        return Err(CpuListError { column, problem: CpuListProblem::BadStride });
    }
    Ok((used, group))
}

fn number(text: &str, column: usize) -> Result<u32, CpuListError> {
    if text.is_empty() {
        return Err(CpuListError { column, problem: CpuListProblem::Empty });
    }
    let mut value: u32 = 0;
    for (index, sign) in text.chars().enumerate() {
        let digit = sign
            .to_digit(10)
            .ok_or(CpuListError { column: column + index, problem: CpuListProblem::NotANumber(sign) })?;
        // The bound is far below the width of the number, so neither step can overflow.
        value = value * 10 + digit;
        if value > HIGHEST_CPU {
            return Err(CpuListError { column, problem: CpuListProblem::TooLarge });
        }
    }
    Ok(value)
}

/// Why the CPUs of the machine could not be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpusError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error number, 0 where there is none.
        errno: i32,
    },
    /// The file holds no CPU list.
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: CpuListError,
    },
}

impl fmt::Display for CpusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, errno } => {
                write!(f, "{} could not be read: {}", path.display(), io::Error::from_raw_os_error(*errno))
            }
            Self::Malformed { path, error } => write!(f, "{} holds no CPU list: {error}", path.display()),
        }
    }
}

impl std::error::Error for CpusError {}

/// Where a list of CPUs comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuSource {
    /// Sysfs, which knows all of them.
    Sysfs,
    /// `/proc/stat`, which knows those that are online.
    Proc,
    /// `sched_getaffinity(2)`: those that this process could run on when it first asked.
    Affinity,
}

/// The folder of the machine's CPUs in sysfs. Where it is not mounted (a chroot, a sandbox), those of `/proc/stat` are all that are
/// known, and without that those that this process may run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus {
    root: PathBuf,
    proc: Proc,
}

impl Cpus {
    /// The machine's own, at `/sys/devices/system/cpu`.
    #[must_use]
    pub fn system() -> Self {
        Self::at("/sys/devices/system/cpu")
    }

    /// One at another place.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self::with(root, Proc::system())
    }

    pub(crate) fn with(root: impl Into<PathBuf>, proc: Proc) -> Self {
        Self { root: root.into(), proc }
    }

    /// Where the lists come from.
    #[must_use]
    pub fn source(&self) -> CpuSource {
        if self.root.exists() {
            CpuSource::Sysfs
        } else if self.listed().is_some() {
            CpuSource::Proc
        } else {
            CpuSource::Affinity
        }
    }

    /// The CPUs that run at this moment.
    ///
    /// # Errors
    /// [`CpusError`].
    pub fn online(&self) -> Result<CpuList, CpusError> {
        self.list("online")
    }

    /// The CPUs that could ever be there without a reboot.
    ///
    /// # Errors
    /// [`CpusError`].
    pub fn possible(&self) -> Result<CpuList, CpusError> {
        self.list("possible")
    }

    /// The CPUs that are plugged in, online or not.
    ///
    /// # Errors
    /// [`CpusError`].
    pub fn present(&self) -> Result<CpuList, CpusError> {
        self.list("present")
    }

    fn list(&self, name: &str) -> Result<CpuList, CpusError> {
        let path = self.root.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => CpuList::parse_kernel(&text).map_err(|error| CpusError::Malformed { path, error }),
            Err(error) => {
                let without = if self.root.exists() { None } else { self.listed().or_else(allowed) };
                without.ok_or(CpusError::Unreadable { path, errno: error.raw_os_error().unwrap_or(0) })
            }
        }
    }

    /// The CPUs that `/proc/stat` has a line for: those that are online.
    fn listed(&self) -> Option<CpuList> {
        let cpus = self.proc.machine().ok()?.cpus;
        (!cpus.is_empty()).then(|| cpus.iter().map(|(cpu, _)| *cpu).collect())
    }
}

/// The CPUs that this process could run on when it first asked: later a thread may have gone to one of them.
fn allowed() -> Option<CpuList> {
    static ALLOWED: OnceLock<Option<CpuList>> = OnceLock::new();
    ALLOWED.get_or_init(|| sys::thread_affinity().ok().map(|mask| mask.iter().collect())).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<u32> {
        text.parse::<CpuList>().unwrap().as_slice().to_vec()
    }

    #[test]
    fn the_notation_of_the_kernel() {
        assert_eq!(list("0-3,5,8-9"), [0, 1, 2, 3, 5, 8, 9]);
        assert_eq!(list("5,1,1-2\n"), [1, 2, 5]);
        assert_eq!(list("0-7:2"), [0, 2, 4, 6]);
        assert_eq!(list("1-8:2/4"), [1, 2, 5, 6]);
        assert_eq!(list("1048575"), [HIGHEST_CPU]);
        assert!(CpuList::parse_kernel("\n").unwrap().is_empty());
    }

    #[test]
    fn printing_and_parsing_are_inverse() {
        for mask in 0_u32..1 << 10 {
            let cpus = CpuList::new((0..10).filter(|cpu| mask & (1 << cpu) != 0));
            let text = cpus.to_string();
            assert_eq!(CpuList::parse_kernel(&text).unwrap(), cpus, "{text}");
        }
        assert_eq!(CpuList::new([7, 3, 2, 1, 0, 5, 5, 8]).to_string(), "0-3,5,7-8");
    }

    #[test]
    fn errors_point_at_the_column() {
        use CpuListProblem as P;
        let cases = [
            ("", 1, P::Empty),
            ("1,", 3, P::Empty),
            ("1,,2", 3, P::Empty),
            ("1-", 3, P::Empty),
            ("-3", 1, P::Empty),
            ("0,1x", 4, P::NotANumber('x')),
            ("0, 1", 3, P::NotANumber(' ')),
            ("é", 1, P::NotANumber('é')),
            ("0,9-3", 3, P::Backwards { first: 9, last: 3 }),
            ("0-99999999999999999999", 3, P::TooLarge),
            ("4294967296", 1, P::TooLarge),
            ("0-7:0", 5, P::BadStride),
            ("0-7:3/2", 5, P::BadStride),
            ("0-7:1/", 7, P::Empty),
        ];
        for (text, column, problem) in cases {
            assert_eq!(text.parse::<CpuList>(), Err(CpuListError { column, problem }), "{text}");
        }
        let error = "0,9-3".parse::<CpuList>().unwrap_err();
        assert_eq!(error.to_string(), "column 3: the range 9-3 runs backwards");
    }

    #[test]
    fn this_machine_has_cpus() {
        let cpus = Cpus::system();
        let (online, present, possible) = (cpus.online().unwrap(), cpus.present().unwrap(), cpus.possible().unwrap());
        assert!(!online.is_empty());
        assert!(present.iter().all(|cpu| possible.contains(cpu)));
        assert!(!online.contains(HIGHEST_CPU));
    }

    #[test]
    fn a_fabricated_machine() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("online"), "0,2-3\n").unwrap();
        std::fs::write(folder.path().join("present"), "none\n").unwrap();
        let cpus = Cpus::at(folder.path());
        assert_eq!(cpus.online().unwrap().as_slice(), [0, 2, 3]);
        assert!(matches!(cpus.present(), Err(CpusError::Malformed { .. })));
        assert!(matches!(cpus.possible(), Err(CpusError::Unreadable { errno: libc::ENOENT, .. })));
        assert_eq!(cpus.source(), CpuSource::Sysfs);
    }

    #[test]
    fn without_sysfs_and_without_proc() {
        let folder = tempfile::tempdir().unwrap();
        let (none, proc) = (folder.path().join("sys"), folder.path().join("proc"));
        std::fs::create_dir(&proc).unwrap();
        std::fs::write(proc.join("stat"), "cpu  3 0 0 0\ncpu0 1 0 0 0\ncpu5 2 0 0 0\nctxt 1\n").unwrap();
        let cpus = Cpus::with(&none, Proc::at(&proc));
        assert_eq!((cpus.source(), cpus.online().unwrap().as_slice()), (CpuSource::Proc, &[0, 5][..]));
        assert_eq!(cpus.possible().unwrap().as_slice(), [0, 5], "more is not known");
        let cpus = Cpus::with(&none, Proc::at(&none));
        assert_eq!(cpus.source(), CpuSource::Affinity);
        let (allowed, online) = (cpus.online().unwrap(), Cpus::system().online().unwrap());
        assert!(!allowed.is_empty() && allowed.iter().all(|cpu| online.contains(cpu)));
    }
}
