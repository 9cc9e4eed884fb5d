//! A terminal that only a test sees.

use super::{SyncDir, eventually};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A shell in a terminal that only the test sees.
pub struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    pub fn new(sync_dir: &SyncDir, columns: u16, lines: u16) -> Self {
        let terminal = Self { socket: sync_dir.path("tmux") };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let started =
            terminal.command(&["new-session", "-d", "-x", &columns, "-y", &lines, "env", "PS1=ready> ", "sh"]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        terminal.shows(&["ready>"]);
        terminal
    }

    pub fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null", "-u"]).args(words);
        command.env("TERM", "xterm-256color").env_remove("TMUX").env_remove("NO_COLOR").output().unwrap()
    }

    /// Keys by their names, one after the other.
    pub fn press(&self, keys: &[&str]) {
        assert!(self.command(&[&["send-keys"], keys].concat()).status.success());
    }

    pub fn write(&self, text: &str) {
        assert!(self.command(&["send-keys", "-l", text]).status.success());
    }

    /// Writes a line, and ends it.
    pub fn enter(&self, text: &str) {
        self.write(text);
        self.press(&["Enter"]);
    }

    pub fn screen(&self, options: &[&str]) -> String {
        String::from_utf8(self.command(&[&["capture-pane", "-p"], options].concat()).stdout).unwrap()
    }

    /// Waits until all of this is on the screen.
    #[track_caller]
    pub fn shows(&self, texts: &[&str]) -> String {
        let mut last = String::new();
        let look = || {
            last = self.screen(&[]);
            texts.iter().all(|text| last.contains(text)).then(|| last.clone())
        };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| eventually("the screen", look)));
        found.unwrap_or_else(|_| panic!("{texts:?} is not on\n{last}"))
    }

    /// Waits until none of this is on the screen.
    #[track_caller]
    pub fn leaves(&self, texts: &[&str]) {
        eventually("the screen", || {
            let screen = self.screen(&[]);
            texts.iter().all(|text| !screen.contains(text)).then_some(())
        });
    }

    /// Ends what is shown, and waits until all that it says then is on the screen.
    #[track_caller]
    pub fn quit(&self, says: &str) {
        self.press(&["q"]);
        self.shows(&[says]);
    }

    /// What is typed is seen, and done.
    #[track_caller]
    pub fn is_a_shell(&self) {
        self.enter("echo $((600 + 66))");
        self.shows(&["echo $((600 + 66))", "666"]);
        assert!(!self.screen(&[]).contains("q quit"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}
