//! Reading manifests and sources as text.
//!
//! What it is: as much of TOML as this workspace's manifests use, and lines of Rust that are no comments.
//!
//! **Invariant:** it judges nothing.

use std::path::{Path, PathBuf};

/// A manifest: tables with their lines `key = value`.
pub(crate) struct Manifest {
    tables: Vec<(String, Vec<(String, String)>)>,
}

impl Manifest {
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(path).unwrap())
    }

    fn parse(text: &str) -> Self {
        let mut tables = vec![(String::new(), Vec::new())];
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if line.starts_with('[') && line.ends_with(']') {
                let name = line.trim_matches(['[', ']']).replace(['"', '\''], "");
                tables.push((name, Vec::new()));
            } else if let Some((key, value)) = line.split_once('=') {
                let entry = (key.trim().replace('"', ""), value.trim().to_owned());
                tables.last_mut().unwrap().1.push(entry);
            }
        }
        Self { tables }
    }

    pub(crate) fn value(&self, table: &str, key: &str) -> Option<&str> {
        let tables = self.tables.iter().filter(|(name, _)| name == table);
        tables.flat_map(|(_, lines)| lines).find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, table: &str, key: &str, value: &str) -> bool {
        self.value(table, key) == Some(value)
    }

    /// What is built into the crate: its dependencies for every platform, and those of a build script.
    pub(crate) fn dependencies(&self) -> Vec<String> {
        self.names(|table| matches!(table, "dependencies" | "build-dependencies"))
    }

    /// Every dependency of a table whose name ends so; `dev-dependencies` ends in `dependencies`.
    pub(crate) fn names_in(&self, end: &str) -> Vec<String> {
        self.names(|table| table.ends_with(end))
    }

    fn names(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names = Vec::new();
        for (table, lines) in &self.tables {
            // [target.'cfg(unix)'.dependencies] counts as [dependencies], [dependencies.x] names x.
            let table = match table.strip_prefix("target.") {
                Some(rest) => rest.rfind(").").map_or(rest, |end| &rest[end + 2..]),
                None => table,
            };
            if wanted(table) {
                names.extend(lines.iter().map(|(key, _)| key.split('.').next().unwrap_or_default().to_owned()));
            } else if let Some((table, name)) = table.rsplit_once('.')
                && wanted(table)
            {
                names.push(name.to_owned());
            }
        }
        names
    }
}

pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn read(path: &Path) -> Self {
        Self { path: path.to_owned(), text: std::fs::read_to_string(path).unwrap() }
    }

    /// Every `.rs` file below a folder, but for what was built there.
    pub(crate) fn below(folder: &Path) -> Vec<Self> {
        let mut sources = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                sources.extend(Self::below(&path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(Self::read(&path));
            }
        }
        sources
    }

    /// Whether one of its lines is a statement, an item or an attribute that begins so, or has it behind a blank.
    pub(crate) fn has(&self, start: &str) -> bool {
        let has = |line: &str| line.starts_with(start) || line.contains(&format!(" {start}"));
        self.text.lines().map(str::trim_start).any(|line| !line.starts_with("//") && has(line))
    }

    /// Its path, for people.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// What looks like a path of this project between backquotes: it begins with a folder of the project.
pub(crate) fn paths_in_backquotes(text: &str) -> impl Iterator<Item = &str> {
    let roots = ["crates/", "ci/", ".ci/"];
    let plain = |path: &&str| path.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c));
    text.split('`').skip(1).step_by(2).filter(move |path| roots.iter().any(|root| path.starts_with(root))).filter(plain)
}

/// What the links of a page lead to, but for other sites.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    let behind = without_code(text).flat_map(|line| line.split("](").skip(1));
    let all = behind.filter_map(|rest| rest.split(')').next());
    all.filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
}

/// The headings of a page, as links name them.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = String> {
    let all = without_code(text).filter(|line| line.starts_with('#'));
    all.map(|line| {
        let kept = line.trim_start_matches('#').trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}

fn without_code(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code
    })
}

#[test]
fn links_and_headings_are_found() {
    let page = "# A `b`, and c\n[x](a.md#b) [y](https://x.y) ![z](d.svg)\n```sh\n[n](none)\n```\n";
    assert_eq!(links(page).collect::<Vec<_>>(), ["a.md#b", "d.svg"]);
    assert_eq!(headings(page).collect::<Vec<_>>(), ["a-b-and-c"]);
}

#[test]
fn dependencies_are_found_however_they_are_written() {
    let manifest = Manifest::parse(
        "[package]\nname = \"x\"\nlicense.workspace = true\n[dependencies]\na = \"1\"\nb.workspace = true\n\
         [dependencies.c]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nd = { path = \"..\" }\n\
         [dev-dependencies]\ne = \"1\"\n[build-dependencies]\nf = \"1\"\n",
    );
    assert_eq!(manifest.dependencies(), ["a", "b", "c", "d", "f"]);
    assert_eq!(manifest.names_in("dependencies").len(), 6);
    assert!(manifest.has("package", "license.workspace", "true"));
    assert!(!manifest.has("package", "edition.workspace", "true"));
}

#[test]
fn paths_are_found_between_backquotes() {
    let found: Vec<_> = paths_in_backquotes("see `crates/abi`, crates/none and `cargo test`, `.ci/run`").collect();
    assert_eq!(found, ["crates/abi", ".ci/run"]);
}
