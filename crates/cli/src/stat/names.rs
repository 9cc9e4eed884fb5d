//! What threads are called.
//!
//! **Invariant:** a thread that has been seen keeps its last name, also after its end.

use pmux::Snapshot;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

/// The longest name of a thread that the kernel keeps, in bytes.
const COMM_BYTES: usize = 15;

/// The names of threads by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    known: HashMap<i32, String>,
}

impl Names {
    /// A command that will have this name once it has executed its program.
    pub(crate) fn expect(&mut self, pid: i32, program: &OsStr) {
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        let end = (0..=COMM_BYTES.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        self.known.insert(pid, name[..end].to_owned());
    }

    /// Looks up the threads of a snapshot, as far as they still live.
    pub(crate) fn learn(&mut self, snapshot: &Snapshot) {
        for tid in snapshot.rows.iter().filter_map(|row| row.who.thread) {
            if let Ok(comm) = std::fs::read(format!("/proc/{tid}/comm")) {
                let comm = String::from_utf8_lossy(&comm);
                self.known.insert(tid, comm.strip_suffix('\n').unwrap_or(&comm).to_owned());
            }
        }
    }

    /// The name of a thread; empty where it had ended before it was seen.
    pub(crate) fn of(&self, tid: i32) -> String {
        self.known.get(&tid).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_called_as_the_kernel_does() {
        let mut names = Names::default();
        names.expect(1, OsStr::new("/usr/bin/a-name-that-is-too-long"));
        names.expect(2, OsStr::new("ls"));
        names.expect(3, OsStr::new("a-name-of-1234\u{fc}"));
        assert_eq!(names.of(1), "a-name-that-is-");
        assert_eq!(names.of(2), "ls");
        assert_eq!(names.of(3), "a-name-of-1234");
        assert_eq!(names.of(4), "");
    }
}
