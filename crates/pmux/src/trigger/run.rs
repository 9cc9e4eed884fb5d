//! Commands that rules run.
//!
//! What it is: `run COMMAND` as a child of the shell, told of the snapshot and of the reason through its environment.
//!
//! **Invariant:** what has been said by others (a line, a path) is never a part of what the shell reads.

use super::events::Fired;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// In the environment of a command: the path of the last snapshot, or nothing.
pub const SNAPSHOT_VARIABLE: &str = "PMUX_SNAPSHOT";
/// In the environment of a command: why the trigger has fired.
pub const REASON_VARIABLE: &str = "PMUX_REASON";

/// Commands that were started and have not been reaped yet. Dropped, they go on.
#[derive(Debug, Default)]
pub struct Commands {
    running: Vec<(String, Child)>,
}

impl Commands {
    /// Starts a command with `/bin/sh -c`. `{}` in it stands for the path of the snapshot. It reads nothing, and writes where this
    /// process writes.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(&mut self, command: &str, snapshot: Option<&Path>, fired: &Fired) -> io::Result<()> {
        // The shell puts the value in; it doesn't read it.
        let text = command.replace("{}", &format!("\"${SNAPSHOT_VARIABLE}\""));
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(text).stdin(Stdio::null());
        shell.env(SNAPSHOT_VARIABLE, snapshot.unwrap_or(Path::new(""))).env(REASON_VARIABLE, fired.to_string());
        self.running.push((command.to_owned(), shell.spawn()?));
        Ok(())
    }

    /// Reaps those that have ended, and says how.
    pub fn reap(&mut self) -> Vec<(String, io::Result<ExitStatus>)> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(command, child)| {
            let end = child.try_wait().transpose();
            let runs = end.is_none();
            ended.extend(end.map(|how| (command.clone(), how)));
            runs
        });
        ended
    }

    /// How many have not been reaped.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}
