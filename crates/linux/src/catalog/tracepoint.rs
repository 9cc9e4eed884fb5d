//! Tracepoints as tracefs shows them.
//!
//! **Invariant:** nothing in tracefs is ever switched on from here. Where none is mounted, it is, as by `perf`, if this process may.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Catalog, CatalogError, files};
use crate::sys::Errno;

/// The `events` directory of a tracefs, looked for at the first question.
#[derive(Debug)]
pub(super) struct Tracefs {
    places: Vec<PathBuf>,
    mount: Mount,
    events: OnceLock<Result<PathBuf, CatalogError>>,
}

/// What is done where no tracefs is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mount {
    /// It is mounted at its usual place, if this process may.
    IfMissing,
    /// Nothing.
    Never,
}

/// Files of tracefs, as a parser of raw data wants them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TracingFiles {
    /// How a page of records begins.
    pub header_page: Vec<u8>,
    /// How a record begins.
    pub header_event: Vec<u8>,
    /// Systems, each with the formats of some of its tracepoints.
    pub systems: Vec<(String, Vec<Vec<u8>>)>,
    /// Texts that records refer to by their address.
    pub printk_formats: Vec<u8>,
}

impl Tracefs {
    pub(super) fn new(places: Vec<PathBuf>, mount: Mount) -> Self {
        Self { places, mount, events: OnceLock::new() }
    }

    /// The directory that holds the systems, from the first place that has one.
    fn events(&self) -> Result<&Path, CatalogError> {
        let found = self.events.get_or_init(|| match (self.look(None), self.mount) {
            (Err(CatalogError::NoTracefs { .. }), Mount::IfMissing) => self.look(crate::sys::mount_tracefs().err()),
            (found, _) => found,
        });
        found.as_deref().map_err(Clone::clone)
    }

    /// Looks for it; `refused` is why it could not be mounted.
    fn look(&self, refused: Option<Errno>) -> Result<PathBuf, CatalogError> {
        let mut denied = None;
        for place in &self.places {
            let events = place.join("events");
            match std::fs::read_dir(&events) {
                Ok(_) => return Ok(events),
                Err(error) => match CatalogError::from_io(&events, &error) {
                    refused @ CatalogError::Denied { .. } => denied = denied.or(Some(refused)),
                    _ => continue,
                },
            }
        }
        Err(denied.unwrap_or_else(|| CatalogError::NoTracefs { places: self.places.clone(), refused }))
    }
}

/// What a file of a tracepoint's folder says.
fn of_tracepoint<T>(
    events: &Path,
    (system, name): (&str, &str),
    file: &str,
    read: impl FnOnce(&Path) -> Result<Option<T>, CatalogError>,
) -> Result<T, CatalogError> {
    let is_plain = files::is_plain_name(system) && files::is_plain_name(name);
    let found = if is_plain { read(&events.join(system).join(name).join(file))? } else { None };
    found.ok_or_else(|| CatalogError::NoSuchTracepoint { system: system.to_owned(), name: name.to_owned() })
}

impl Catalog {
    /// The number of a tracepoint, for the `config` of an attribute.
    ///
    /// # Errors
    /// In this order: [`CatalogError::NoTracefs`], [`CatalogError::Denied`], [`CatalogError::NoSuchTracepoint`].
    pub fn tracepoint(&self, system: &str, name: &str) -> Result<u64, CatalogError> {
        of_tracepoint(self.tracefs.events()?, (system, name), "id", files::read_number)
    }

    /// The fields of a tracepoint that filters can name, without those that all of them have.
    ///
    /// # Errors
    /// As [`Catalog::tracepoint`].
    pub fn tracepoint_fields(&self, system: &str, name: &str) -> Result<Vec<String>, CatalogError> {
        self.tracepoint(system, name)?;
        let text = files::read(&self.tracefs.events()?.join(system).join(name).join("format"))?.unwrap_or_default();
        Ok(text.lines().filter_map(field).filter(|field| !field.starts_with("common_")).collect())
    }

    /// The systems that have tracepoints, sorted.
    ///
    /// # Errors
    /// [`CatalogError::NoTracefs`] or [`CatalogError::Denied`].
    pub fn tracepoint_systems(&self) -> Result<Vec<String>, CatalogError> {
        let events = self.tracefs.events()?;
        let mut names = files::names(events)?.unwrap_or_default();
        names.retain(|name| events.join(name).is_dir());
        Ok(names)
    }

    /// The tracepoints of a system, sorted; an unknown system has none.
    ///
    /// # Errors
    /// [`CatalogError::NoTracefs`] or [`CatalogError::Denied`].
    pub fn tracepoint_names(&self, system: &str) -> Result<Vec<String>, CatalogError> {
        let dir = self.tracefs.events()?.join(system);
        if !files::is_plain_name(system) {
            return Ok(Vec::new());
        }
        let mut names = files::names(&dir)?.unwrap_or_default();
        // Beside the tracepoints there are the files `enable` and `filter`.
        names.retain(|name| dir.join(name).join("id").is_file());
        Ok(names)
    }

    /// What tracefs says of these tracepoints, `(SYSTEM, NAME)`, and of records as such.
    ///
    /// # Errors
    /// [`CatalogError::NoTracefs`], [`CatalogError::Denied`] or [`CatalogError::NoSuchTracepoint`].
    pub fn formats_of(&self, tracepoints: &[(&str, &str)]) -> Result<TracingFiles, CatalogError> {
        let events = self.tracefs.events()?;
        let mut found = TracingFiles {
            header_page: at_once(&events.join("header_page")),
            header_event: at_once(&events.join("header_event")),
            printk_formats: files::read(&events.with_file_name("printk_formats"))?.unwrap_or_default().into_bytes(),
            systems: Vec::new(),
        };
        for &(system, name) in tracepoints {
            let format = of_tracepoint(events, (system, name), "format", files::read)?.into_bytes();
            match found.systems.iter_mut().find(|(known, _)| known == system) {
                Some((_, formats)) => formats.push(format),
                None => found.systems.push((system.to_owned(), vec![format])),
            }
        }
        Ok(found)
    }
}

/// Reads a file that must be read in one call: the kernel gives its text only at the start.
fn at_once(path: &Path) -> Vec<u8> {
    use std::io::Read;
    let mut text = vec![0; 64 << 10];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    text.truncate(read);
    text
}

/// The name in a line such as `field:char comm[16];\toffset:8; …`.
fn field(line: &str) -> Option<String> {
    let declared = line.trim().strip_prefix("field:")?.split(';').next()?;
    // `char comm[16]`, but `char[] what`.
    let last = declared.rsplit([' ', '*']).next()?;
    let name = last.split('[').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_found_whatever_their_type() {
        let name = |line| field(line);
        assert_eq!(name("\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;").as_deref(), Some("comm"));
        assert_eq!(name("\tfield:pid_t pid;\toffset:24;").as_deref(), Some("pid"));
        assert_eq!(name("\tfield:const char * name;\toffset:24;").as_deref(), Some("name"));
        assert_eq!(name("\tfield:__data_loc char[] what;\toffset:24;").as_deref(), Some("what"));
        assert_eq!(name("print fmt: \"%s\""), None);
    }
}
