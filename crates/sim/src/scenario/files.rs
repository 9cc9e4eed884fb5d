//! Which files are run.
//!
//! **Invariant:** the order is that of the command line; in a folder that of the names.

use std::path::{Path, PathBuf};

/// No scenario is larger.
const LARGEST_BYTES: u64 = 16 << 20;

/// The files that are named, and those with the ending `.scn` in the folders that are named.
///
/// # Errors
/// A sentence: something is not there, can't be read, or is a folder without scenarios.
pub fn find(named: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for path in named {
        let about = |error: std::io::Error| format!("{}: {}", path.display(), reason(&error));
        if !std::fs::metadata(path).map_err(about)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        for entry in std::fs::read_dir(path).map_err(about)? {
            let inside = entry.map_err(about)?.path();
            if inside.extension().is_some_and(|ending| ending == "scn") {
                files.push(inside);
            }
        }
        if files.len() == before {
            return Err(format!("{}: there is no scenario (*.scn) in this folder", path.display()));
        }
        files[before..].sort();
    }
    Ok(files)
}

/// The text of a file.
///
/// # Errors
/// A sentence with the name of the file.
pub fn read(file: &Path) -> Result<String, String> {
    let about = |what: String| format!("{}: {what}\n", file.display());
    let length = std::fs::metadata(file).map_err(|error| about(reason(&error)))?.len();
    if length > LARGEST_BYTES {
        return Err(about(format!("this is no scenario: it has {length} bytes")));
    }
    let bytes = std::fs::read(file).map_err(|error| about(reason(&error)))?;
    String::from_utf8(bytes).map_err(|error| {
        about(format!("this is no text: byte {} is not UTF-8", error.utf8_error().valid_up_to().saturating_add(1)))
    })
}

/// What went wrong, without the number of the error.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_give_their_scenarios_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.scn", "a.scn", "c.txt"] {
            std::fs::write(folder.path().join(name), "task A\n").unwrap();
        }
        let text = folder.path().join("c.txt");
        let found = find(&[text.clone(), folder.path().to_owned()]).unwrap();
        assert_eq!(found, [text, folder.path().join("a.scn"), folder.path().join("b.scn")]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.scn");
        assert!(find(std::slice::from_ref(&missing)).unwrap_err().contains("missing.scn: there is no such file"));
        assert!(find(&[folder.path().to_owned()]).unwrap_err().contains("no scenario (*.scn)"));
        let binary = folder.path().join("x.scn");
        std::fs::write(&binary, b"task A\n\xff").unwrap();
        assert!(read(&binary).unwrap_err().contains("byte 8 is not UTF-8"));
        assert!(read(&missing).is_err());
    }
}
