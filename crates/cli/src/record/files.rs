//! Which file is written.
//!
//! What it is: [`Files`] opens the file, or the next one of `--switch-output`, and removes the oldest.
//!
//! **Invariant:** what was there under the same name is kept, as `NAME.old`; of `--switch-output` only files of this run are
//! removed.

use crate::options::record::{RecordOptions, SwitchWhen};
use pmux::date::{Date, date};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const USUAL: &str = "perf.data";

pub(super) struct Files {
    base: PathBuf,
    switch: Option<SwitchWhen>,
    most: Option<u32>,
    /// Those that are finished, oldest first.
    pub(super) finished: VecDeque<PathBuf>,
    pub(super) current: PathBuf,
    begun: Instant,
}

impl Files {
    pub(super) fn new(options: &RecordOptions) -> Self {
        let base = options.output.clone().unwrap_or_else(|| PathBuf::from(USUAL));
        Self {
            current: base.clone(),
            base,
            switch: options.switch_output,
            most: options.switch_max_files,
            finished: VecDeque::new(),
            begun: Instant::now(),
        }
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.base.as_os_str() == "-"
    }

    /// Opens the first file, or the next one.
    pub(super) fn open(&mut self) -> Result<File, String> {
        self.begun = Instant::now();
        if self.is_stdout() {
            let opened = File::options().write(true).open("/dev/stdout");
            return opened.map_err(|error| format!("standard output: {error}"));
        }
        self.current = if self.switch.is_some() { self.next_name() } else { self.base.clone() };
        let path = &self.current;
        let wrong = |error: std::io::Error| {
            format!("{} can't be written: {error}\n  what helps: another file, with -o FILE", path.display())
        };
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|meta| meta.is_file() && meta.len() > 0) {
            fs::rename(path, with_suffix(path, ".old")).map_err(wrong)?;
        }
        let special = found.is_some_and(|meta| !meta.is_file());
        let mut how = OpenOptions::new();
        // Ids are read back; a pipe or a device need only be written to. No other user has access to what is recorded.
        how.write(true).read(!special).create(!special).truncate(!special).mode(0o600);
        how.open(path).map_err(wrong)
    }

    /// A name that says when the file was begun, in UTC, and sorts by that.
    fn next_name(&self) -> PathBuf {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut hundredths = now.as_millis() / 10;
        loop {
            let name = with_suffix(&self.base, &format!(".{}", timestamp(hundredths)));
            if !self.finished.contains(&name) && self.current != name {
                return name;
            }
            hundredths += 1;
        }
    }

    /// The file is finished; the oldest ones that are too many are removed.
    pub(super) fn finished(&mut self) {
        self.finished.push_back(self.current.clone());
        let too_many = self.most.map_or(0, |most| self.finished.len().saturating_sub(most as usize));
        for oldest in self.finished.drain(..too_many) {
            // Another process may have taken it away.
            let _ = fs::remove_file(oldest);
        }
    }

    /// Whether it is another file's turn, after so many bytes.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        match self.switch {
            Some(SwitchWhen::Bytes(most)) => bytes >= most,
            Some(SwitchWhen::Time(most)) => self.begun.elapsed() >= most,
            Some(SwitchWhen::Signal) | None => false,
        }
    }

    /// When it is another file's turn, if that is a matter of time.
    pub(super) fn turn_at(&self) -> Option<Instant> {
        if let Some(SwitchWhen::Time(most)) = self.switch { Some(self.begun + most) } else { None }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// `YYYYMMDDhhmmsscc` of so many hundredths of a second since 1970.
pub(crate) fn timestamp(hundredths: u128) -> String {
    let (seconds, hundredth) = (hundredths / 100, hundredths % 100);
    let (days, second) = ((seconds / 86_400).cast_signed(), seconds % 86_400);
    let Date { year, month, day } = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}{hundredth:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_names() {
        assert_eq!(timestamp(0), "1970010100000000");
        assert_eq!(timestamp(95_178_239_912), "2000022823595912");
        assert_eq!(timestamp(95_178_240_000), "2000022900000000");
        assert_eq!(timestamp(95_186_880_000), "2000030100000000");
        assert_eq!(timestamp(176_722_559_900), "2025123123595900");
    }
}
