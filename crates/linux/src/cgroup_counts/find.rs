//! Which cgroups there are, by patterns.
//!
//! **Invariant:** it only lists folders; one that goes away meanwhile is left out. The number of its inode is the cgroup's.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::Utf8Chunk;

/// Names of cgroups, from the root: `system.slice/*.service`. `*` stands for any letters within a name, `?` for one, and a name
/// `**` for any number of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(Vec<String>);

/// Why a text is no pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` names no cgroups: write names from the root, as `system.slice/*.service`", self.0)
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// Understands a pattern; a `/` in front changes nothing, and `/` alone is the root.
    ///
    /// # Errors
    /// [`PatternError`]: it is empty, a name in it is empty, `.` or `..`, or too many are `**`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let wrong = || PatternError(text.to_owned());
        if text.is_empty() || text.contains('\0') {
            return Err(wrong());
        }
        let names: Vec<String> = match text.trim_matches('/') {
            "" => Vec::new(),
            inner => inner.split('/').map(str::to_owned).collect(),
        };
        // Each would walk all that is below what the one before has found.
        let deep = names.iter().filter(|name| *name == "**").count();
        if deep > 1 || names.iter().any(|name| matches!(&name[..], "" | "." | "..")) {
            return Err(wrong());
        }
        Ok(Self(names))
    }

    /// Whether it stands for the cgroup with this path from the root, which is `/`.
    #[must_use]
    pub fn fits(&self, path: &str) -> bool {
        let names: Vec<_> = path.split('/').filter(|name| !name.is_empty()).collect();
        fits(&self.0, &names)
    }
}

fn fits(pattern: &[String], names: &[&str]) -> bool {
    match (pattern.split_first(), names.split_first()) {
        (None, first) => first.is_none(),
        (Some((any, rest)), first) if any == "**" => {
            fits(rest, names) || first.is_some_and(|(_, below)| fits(pattern, below))
        }
        (Some((name, rest)), Some((first, below))) => matches(name.as_bytes(), first.as_bytes()) && fits(rest, below),
        (Some(_), None) => false,
    }
}

/// A cgroup that is there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FoundCgroup {
    /// Its path from the root, which is `/`. Bytes that are no text are written as `\xff`.
    pub name: String,
    /// Its folder, from the mount on.
    pub folder: PathBuf,
    /// Its number.
    pub inode: u64,
}

/// What patterns stand for now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FoundCgroups {
    /// The cgroups, by name; each once.
    pub cgroups: Vec<FoundCgroup>,
    /// How many more there are than were wanted, or than can be told apart by name.
    pub left_out: usize,
}

/// Finds at most so many cgroups below a mount.
#[must_use]
pub fn find(root: &Path, patterns: &[Pattern], most: usize) -> FoundCgroups {
    let mut cgroups = Vec::new();
    for pattern in patterns {
        if let Ok(folder) = fs::metadata(root) {
            let here = FoundCgroup { name: "/".to_owned(), folder: PathBuf::new(), inode: folder.ino() };
            walk(root, here, &pattern.0, &mut cgroups);
        }
    }
    crate::order::sort(&mut cgroups);
    cgroups.dedup();
    let there = cgroups.len();
    // A name that is no text is written like another one that is.
    cgroups.dedup_by(|one, other| one.name == other.name);
    cgroups.truncate(most);
    let left_out = there - cgroups.len();
    FoundCgroups { cgroups, left_out }
}

fn walk(root: &Path, here: FoundCgroup, names: &[String], out: &mut Vec<FoundCgroup>) {
    let Some((name, rest)) = names.split_first() else { return out.push(here) };
    if name == "**" {
        for below in folders(root, &here) {
            walk(root, below, names, out);
        }
        return walk(root, here, rest, out);
    }
    if !name.contains(['*', '?']) {
        let folder = here.folder.join(name);
        if let Ok(found) = fs::metadata(root.join(&folder))
            && found.is_dir()
        {
            walk(root, FoundCgroup { name: join(&here.name, name), folder, inode: found.ino() }, rest, out);
        }
        return;
    }
    for below in folders(root, &here) {
        if matches(name.as_bytes(), below.folder.file_name().unwrap_or_default().as_bytes()) {
            walk(root, below, rest, out);
        }
    }
}

/// The cgroups right below one.
fn folders(root: &Path, above: &FoundCgroup) -> Vec<FoundCgroup> {
    let Ok(entries) = fs::read_dir(root.join(&above.folder)) else { return Vec::new() };
    let folder = |entry: fs::DirEntry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name();
        let found = || FoundCgroup {
            name: join(&above.name, &text_of(&name)),
            folder: above.folder.join(&name),
            inode: entry.ino(),
        };
        is_folder.then(found)
    };
    entries.flatten().filter_map(folder).collect()
}

fn text_of(name: &OsStr) -> String {
    let part = |chunk: Utf8Chunk<'_>| {
        let escaped = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        std::iter::once(chunk.valid().to_owned()).chain(escaped).collect::<String>()
    };
    name.as_bytes().utf8_chunks().map(part).collect()
}

fn join(above: &str, name: &str) -> String {
    if above == "/" { format!("/{name}") } else { format!("{above}/{name}") }
}

/// Whether a name is as a pattern says. Its time grows with the product of the lengths, not faster.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[of] => (at, of) = (at + 1, of + 1),
            _ => match &mut star {
                // The last star takes one letter more.
                Some((place, taken)) => {
                    *taken += 1;
                    (at, of) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

/// The numbers of all cgroups below a mount.
#[must_use]
pub fn all(root: &Path) -> HashSet<u64> {
    let anything = Pattern(vec!["**".to_owned()]);
    find(root, &[anything], usize::MAX).cgroups.into_iter().map(|found| found.inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_match() {
        for (pattern, name, answer) in [
            ("*", "a.service", true),
            ("*.service", "a.service", true),
            ("*.service", "a.scope", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-c-d", false),
            ("?-*", "x-y", true),
            ("?", "", false),
            ("**x", "xx", true),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), answer, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_find_what_they_name() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["system.slice/a.service/x", "system.slice/b.service", "system.slice/c.scope", "user.slice"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("system.slice/file.service"), "").unwrap();
        let names = |patterns: &[&str], most| {
            let patterns: Vec<_> = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
            let found = find(root.path(), &patterns, most);
            (found.cgroups.into_iter().map(|found| found.name).collect::<Vec<_>>().join(" "), found.left_out)
        };
        assert_eq!(names(&["/"], 9), ("/".to_owned(), 0));
        assert_eq!(names(&["system.slice/*.service"], 9).0, "/system.slice/a.service /system.slice/b.service");
        assert_eq!(names(&["/system.slice/*", "*/a.service", "none", "system.slice/file.service"], 2).1, 1);
        assert_eq!(names(&["system.slice/**"], 9).0.split(' ').count(), 5);
        assert_eq!(names(&["**/x", "user.slice/"], 9).0, "/system.slice/a.service/x /user.slice");
        assert_eq!(all(root.path()).len(), 7);
        let inode = fs::metadata(root.path().join("user.slice")).unwrap().ino();
        assert_eq!(find(root.path(), &[Pattern::parse("user.slice").unwrap()], 1).cgroups[0].inode, inode);
    }

    #[test]
    fn a_name_that_is_no_text_is_written_and_not_left_out() {
        let root = tempfile::tempdir().unwrap();
        for name in [&b"a\xff\xfeb"[..], b"a\xc3\xa4", b"a\\x2db"] {
            fs::create_dir_all(root.path().join(OsStr::from_bytes(name)).join("below")).unwrap();
        }
        let found = |pattern: &str| find(root.path(), &[Pattern::parse(pattern).unwrap()], 9);
        let names = |pattern: &str| found(pattern).cgroups.into_iter().map(|found| found.name).collect::<Vec<_>>();
        assert_eq!(names("a*"), ["/a\\x2db", "/a\\xff\\xfeb", "/aä"]);
        assert_eq!(names("a??b/*"), ["/a\\xff\\xfeb/below"]);
        assert_eq!(all(root.path()).len(), 7, "those with such a name have not gone");
        // Two are never told by one name.
        fs::create_dir(root.path().join("a\\xff\\xfeb")).unwrap();
        assert_eq!((found("a*").cgroups.len(), found("a*").left_out), (3, 1));
    }

    #[test]
    fn patterns_fit_what_they_would_find() {
        for (pattern, path, answer) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("system.slice/*.service", "/system.slice/a.service", true),
            ("system.slice/*.service", "/system.slice/a.service/x", false),
            ("system.slice/*.service", "/user.slice/system.slice/a.service", false),
            ("system.slice/**", "/system.slice", true),
            ("system.slice/**", "/system.slice/a/b", true),
            ("**/agent", "/a/b/agent", true),
            ("**/agent", "/a/b/agent/c", false),
            ("a/**/b", "/a/b", true),
            ("a/**/b", "/a/x/y/b", true),
            ("a", "/", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().fits(path), answer, "{pattern} {path}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for text in ["", "a//b", "a/../b", "./a", "**/**", "a\0"] {
            let error = Pattern::parse(text).unwrap_err().to_string();
            assert!(error.contains("names no cgroups"), "{error}");
        }
    }
}
