//! Probes of tracefs, for events that are inherited.
//!
//! What it is: the kernel makes an inherited event from the attribute of the first one, in the task that forks. The PMUs `uprobe`
//! and `kprobe` read what the attribute points to once more then, in the memory of *that* task, and ask for its rights: the fork
//! fails (`EFAULT`, `EACCES`). A tracepoint is a number and needs neither. So an event that is to be inherited becomes the
//! tracepoint of a probe of the same place, which [`Traced`] adds to tracefs and takes away again.
//!
//! A name in tracefs outlives a process that is killed. It holds the number and the start of the process that made it
//! (`pmux/p…`), and each new probe takes away those of processes that are no more.
//!
//! **Invariant:** tracefs holds no name of this process for which there is no [`Traced`], but those whose event is still open
//! elsewhere; they go when the next one does. Names of others are touched only where their process is known to be gone.
//!
//! Source: `inherit_event` and `perf_uprobe_event_init` (kernel/events/core.c, Linux 6.18), `Documentation/trace/uprobetracer.rst`.

use super::{AT_RETURN, ProbePmu, path_at};
use crate::procfs::{Proc, own_namespace};
use crate::sys::{self, Errno};
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The system that the names are in.
const GROUP: &str = "pmux";
/// The longest path that is written as it is: the kernel takes a line of 4,096 bytes.
const LONGEST_PATH: usize = 2048;

/// Which probe: its PMU, `config`, `config1` and `config2`.
type ProbeKey = (ProbePmu, [u64; 3]);

/// A probe in tracefs. It is taken away when this is dropped, which must be after the events on it are closed.
#[derive(Debug)]
pub(crate) struct Traced {
    tracefs: PathBuf,
    pmu: ProbePmu,
    name: String,
    id: u64,
}

impl ProbePmu {
    /// The file of tracefs that probes are added to.
    const fn file(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe_events",
            Self::Uprobe => "uprobe_events",
        }
    }
}

/// Why an event of the PMUs `uprobe` and `kprobe` can't be inherited here, in a sentence without a full stop; `None` for one that
/// can, and for all other events.
#[must_use]
pub fn cannot_be_inherited(attr: &Attr) -> Option<String> {
    let pmu = ProbePmu::of(attr.kind)?;
    if place(pmu, attr).is_none() {
        return Some(
            "the kernel makes events for children from the attribute alone, and this one points to a name".to_owned(),
        );
    }
    match events_file(pmu) {
        Ok(_) => None,
        Err(error) => Some(format!(
            "for children the kernel needs the place in tracefs, and {}/{} can't be written ({})",
            PLACES[0],
            pmu.file(),
            Errno::from(&error)
        )),
    }
}

impl Traced {
    /// The tracepoint to be opened in place of an event, and what keeps it there; `None` where the event can be opened as it is.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where [`cannot_be_inherited`] says why. What tracefs says of the place.
    pub(crate) fn in_place_of(attr: &Attr) -> Result<Option<(Attr, Arc<Self>)>, Errno> {
        if !attr.flags.contains(AttrFlags::INHERIT) {
            return Ok(None);
        }
        let Some(pmu) = ProbePmu::of(attr.kind) else { return Ok(None) };
        let probe = Self::at(pmu, attr)?;
        let attr = Attr { kind: EventType::TRACEPOINT, config: probe.id, config1: 0, config2: 0, ..*attr };
        Ok(Some((attr, probe)))
    }

    /// The probe of a place, which all events on it share.
    fn at(pmu: ProbePmu, attr: &Attr) -> Result<Arc<Self>, Errno> {
        static KNOWN: OnceLock<Mutex<HashMap<ProbeKey, Weak<Traced>>>> = OnceLock::new();
        let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let key = (pmu, [attr.config, attr.config1, attr.config2]);
        if let Some(probe) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(probe);
        }
        known.retain(|_, probe| probe.strong_count() > 0);
        let place = place(pmu, attr).ok_or(Errno::EOPNOTSUPP)?;
        let (tracefs, file) = events_file(pmu).map_err(|_| Errno::EOPNOTSUPP)?;
        sweep(&tracefs, pmu);
        let probe = Arc::new(Self::add(tracefs, file, pmu, attr.config, &place)?);
        known.insert(key, Arc::downgrade(&probe));
        Ok(probe)
    }

    fn add(tracefs: PathBuf, mut file: File, pmu: ProbePmu, config: u64, place: &ProbeLocation) -> Result<Self, Errno> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only distinct numbers are wanted.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", maker().ok_or(Errno::EOPNOTSUPP)?);
        let kind = if config & AT_RETURN != 0 { 'r' } else { 'p' };
        let mut line = format!("{kind}:{GROUP}/{name} ").into_bytes();
        let _opened = place.write(&mut line).map_err(|error| Errno::from(&error))?;
        file.write_all(&line).map_err(|error| Errno::from(&error))?;
        let mut probe = Self { tracefs, pmu, name, id: 0 };
        // Dropped, it takes its name away again.
        probe.id = probe.number().ok_or(Errno::EOPNOTSUPP)?;
        Ok(probe)
    }

    fn number(&self) -> Option<u64> {
        let path = self.tracefs.join("events").join(GROUP).join(&self.name).join("id");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let mut left = left_behind();
        left.push((self.tracefs.clone(), self.pmu, std::mem::take(&mut self.name)));
        // One that is in use yet (the kernel frees inherited events a little later) goes with the next one.
        left.retain(|(tracefs, pmu, name)| matches!(remove(tracefs, *pmu, name), Err(error) if error == Errno::EBUSY));
    }
}

/// Names that could not be taken away because an event was open on them.
fn left_behind() -> MutexGuard<'static, Vec<(PathBuf, ProbePmu, String)>> {
    static LEFT: Mutex<Vec<(PathBuf, ProbePmu, String)>> = Mutex::new(Vec::new());
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(tracefs: &Path, pmu: ProbePmu, name: &str) -> Result<(), Errno> {
    // Each write is a command of its own.
    let line = format!("-:{GROUP}/{name}");
    let removed = append(&tracefs.join(pmu.file())).and_then(|mut file| file.write_all(line.as_bytes()));
    removed.map_err(|error| Errno::from(&error))
}

/// Takes away what processes have left that were killed.
fn sweep(tracefs: &Path, pmu: ProbePmu) {
    let Ok(text) = std::fs::read(tracefs.join(pmu.file())) else { return };
    for name in String::from_utf8_lossy(&text).lines().filter_map(name_of) {
        if is_orphan(name) {
            // One that is in use is not ours to judge.
            let _ = remove(tracefs, pmu, name);
        }
    }
}

/// The name in a line such as `p:pmux/p4026531836_17_5_0 /bin/sh:0x1000`, where it is in our system.
fn name_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(':')?;
    rest.split_ascii_whitespace().next()?.strip_prefix(GROUP)?.strip_prefix('/')
}

/// What the names of this process begin with: its namespace of processes, its number there, and when it began.
fn maker() -> Option<String> {
    let pid = std::process::id();
    let start = Proc::system().stat(i32::try_from(pid).ok()?).ok()?.start_ticks;
    Some(format!("p{}_{pid}_{start}", own_namespace("pid")?))
}

/// Whether a name was made by a process of this namespace that is no more.
fn is_orphan(name: &str) -> bool {
    let mut parts = name.strip_prefix('p').unwrap_or_default().split('_').map(str::parse::<u64>);
    let (Some(Ok(namespace)), Some(Ok(pid)), Some(Ok(start))) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(pid) = i32::try_from(pid) else { return false };
    let lives = || match Proc::system().stat(pid) {
        Ok(stat) => stat.start_ticks == start,
        Err(error) => !matches!(error, crate::procfs::ProcError::Gone { .. }),
    };
    own_namespace("pid") == Some(namespace) && !lives()
}

/// A place as tracefs names it.
enum ProbeLocation {
    File(PathBuf, u64),
    Address(u64),
}

/// Where an event's probe is, as far as that can be told from its attribute.
fn place(pmu: ProbePmu, attr: &Attr) -> Option<ProbeLocation> {
    match pmu {
        ProbePmu::Uprobe => Some(ProbeLocation::File(path_at(attr.config1)?, attr.config2)),
        ProbePmu::Kprobe => (attr.config1 == 0).then_some(ProbeLocation::Address(attr.config2)),
    }
}

impl ProbeLocation {
    /// Adds it to a line. What is answered must stay open until the line is written.
    fn write(&self, line: &mut Vec<u8>) -> io::Result<Option<File>> {
        match self {
            Self::Address(address) => write!(line, "{address:#x}").map(|()| None),
            Self::File(path, offset) => {
                let bytes = path.as_os_str().as_bytes();
                // The kernel takes a line apart at spaces, and what is behind a # for a comment.
                let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#' || *byte >= 0x80;
                let opened = if bytes.len() <= LONGEST_PATH && bytes.iter().all(plain) {
                    line.extend_from_slice(bytes);
                    None
                } else {
                    let file = File::open(path)?;
                    write!(line, "/proc/self/fd/{}", file.as_raw_fd())?;
                    Some(file)
                };
                write!(line, ":{offset:#x}")?;
                Ok(opened)
            }
        }
    }
}

/// The first tracefs whose file of probes can be written, and that file.
fn events_file(pmu: ProbePmu) -> io::Result<(PathBuf, File)> {
    let find = || {
        let mut refused = None;
        for place in PLACES.map(Path::new) {
            match append(&place.join(pmu.file())) {
                Ok(file) => return Ok((place.to_owned(), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
    };
    match find() {
        Err(error) if error.kind() == io::ErrorKind::NotFound && sys::mount_tracefs().is_ok() => find(),
        found => found,
    }
}

/// Opened in any other way, the file would lose the probes of all programs.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn names_tell_who_made_them() {
        let line = "p:pmux/p4026531836_17_5_0 /bin/sh:0x0000000000001000";
        assert_eq!(name_of(line), Some("p4026531836_17_5_0"));
        assert_eq!(name_of("r:uprobes/p_bin_0x1000 /bin/sh:0x1000"), None);
        assert_eq!(name_of("p:pmuxed/x /bin/sh:0x1000"), None);
        let own = format!("{}_0", maker().unwrap());
        assert!(!is_orphan(&own));
        let (kept, start) = own.strip_suffix("_0").unwrap().rsplit_once('_').unwrap();
        assert!(is_orphan(&format!("{kept}_{}_0", start.parse::<u64>().unwrap() + 1)), "the number is another's now");
        let (namespace, _) = kept.rsplit_once('_').unwrap();
        assert!(is_orphan(&format!("{namespace}_{}_5_0", i32::MAX)), "there is no such process");
        assert!(!is_orphan(&format!("p1_{}_5_0", i32::MAX)), "its namespace is not ours");
        assert!(!is_orphan("p_bin_sh") && !is_orphan("p4_x_5_0") && !is_orphan(""));
    }

    #[test]
    fn a_path_that_would_break_the_line_is_named_by_a_file() {
        let folder = std::env::temp_dir().join(format!("pmux traced#{}", std::process::id()));
        std::fs::write(&folder, "").unwrap();
        let mut line = Vec::new();
        let opened = ProbeLocation::File(folder.clone(), 16).write(&mut line).unwrap().expect("it is open");
        assert_eq!(line, format!("/proc/self/fd/{}:0x10", opened.as_raw_fd()).into_bytes());
        line.clear();
        assert!(ProbeLocation::File("/bin/sh".into(), 16).write(&mut line).unwrap().is_none());
        assert_eq!(line, b"/bin/sh:0x10");
        std::fs::remove_file(folder).unwrap();
    }
}
