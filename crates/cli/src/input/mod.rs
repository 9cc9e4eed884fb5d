//! Which recording is meant, and what its flight recorder has written beside it: the same for all commands that read one.
//!
//! What it is: [`open`] takes what was typed; [`manifest`] is what stands beside a snapshot. Read first: [`OpenedInput`].
//!
//! **Invariant:** a folder stands for all recordings in it, what is piped in is read without being asked for.

pub(crate) mod manifest;
pub(crate) mod progress;

use crate::failure::{Failure, failed};
use crate::options::picture::InputOptions;
use crate::options::symbols::SymbolOptions;
use manifest::Manifest;
use pmux::profile::{Input, Sources};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

pub(crate) struct OpenedInput {
    pub(crate) input: Input,
    pub(crate) name: String,
    /// What its flight recorder tells of its parts, in the order of time.
    pub(crate) manifests: Vec<Manifest>,
    /// What is wrong with what it tells.
    pub(crate) wrong: Vec<String>,
}

impl OpenedInput {
    /// What to say of it: why it was taken, when, what it lacks.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.manifests.iter().map(Manifest::sentence).chain(self.wrong.iter().cloned()).collect()
    }
}

/// A recording that is meant, and where the files of its machine are looked for.
#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    path: PathBuf,
    sources: Sources,
}

impl InputSpec {
    /// Another recording, whose files are looked for in the same places.
    pub(crate) fn at(&self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }
}

/// The recording that is meant: what was typed, what is piped in, or `perf.data`.
///
/// # Errors
/// What was typed about its files makes no sense.
pub(crate) fn spec(options: &InputOptions) -> Result<InputSpec, Failure> {
    let is_piped = || std::fs::metadata("/dev/stdin").is_ok_and(|input| input.file_type().is_fifo());
    let path = match options.named() {
        Some(path) => path.to_owned(),
        None if is_piped() => "-".into(),
        None => "perf.data".into(),
    };
    Ok(InputSpec { path, sources: sources(&options.symbols)? })
}

/// Where the files of the recorded machine are looked for.
///
/// # Errors
/// What was typed about it makes no sense.
pub(crate) fn sources(options: &SymbolOptions) -> Result<Sources, Failure> {
    options.sources(std::env::var_os("DEBUGINFOD_URLS").as_deref()).map_err(failed)
}

/// Opens it: a file, a folder of snapshots, or `-` for standard input.
///
/// # Errors
/// It can't be read.
pub(crate) fn open(asked: &InputSpec) -> Result<OpenedInput, Failure> {
    let path = &asked.path;
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let input = Input::open(path).map_err(|error| about(&name, &error))?.with_sources(asked.sources.clone());
    let (mut manifests, mut wrong) = (Vec::new(), Vec::new());
    for file in input.files() {
        match manifest::beside(file) {
            Ok(manifest) => manifests.extend(manifest),
            Err(why) => wrong.push(why),
        }
    }
    Ok(OpenedInput { input, name, manifests, wrong })
}

/// What is wrong with a recording, with its name in front where it doesn't tell it.
pub(crate) fn about(name: &str, error: &dyn std::fmt::Display) -> Failure {
    let text = error.to_string();
    failed(if text.contains(name) { text } else { format!("{name}: {text}") })
}
