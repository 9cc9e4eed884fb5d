//! The interactive view of `pmux report`, driven by keys in a terminal of its own.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Door, PMUX, eventually, kernel, program, record_faults, role, start};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A shell in a terminal that nobody else sees.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    fn new(door: &Door, columns: u16, lines: u16) -> Self {
        let terminal = Self { socket: door.path("tmux") };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let started =
            terminal.command(&["new-session", "-d", "-x", &columns, "-y", &lines, "env", "PS1=ready> ", "sh"]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        terminal.shows(&["ready>"]);
        terminal
    }

    fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null", "-u"]).args(words);
        command.env("TERM", "xterm-256color").env_remove("TMUX").env_remove("NO_COLOR").output().unwrap()
    }

    /// Keys by their names, one after the other.
    fn press(&self, keys: &[&str]) {
        assert!(self.command(&[&["send-keys"], keys].concat()).status.success());
    }

    fn write(&self, text: &str) {
        assert!(self.command(&["send-keys", "-l", text]).status.success());
    }

    fn screen(&self, options: &[&str]) -> String {
        String::from_utf8(self.command(&[&["capture-pane", "-p"], options].concat()).stdout).unwrap()
    }

    /// Waits until all of this is on the screen.
    #[track_caller]
    fn shows(&self, texts: &[&str]) -> String {
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
    fn leaves(&self, texts: &[&str]) {
        eventually("the screen", || {
            let screen = self.screen(&[]);
            texts.iter().all(|text| !screen.contains(text)).then_some(())
        });
    }

    /// Shows a recording; the shell tells how it ended.
    fn report(&self, file: &Path, options: &str) {
        self.write(&format!("clear; '{PMUX}' report -i '{}' {options}; echo ended $?", file.display()));
        self.press(&["Enter"]);
    }

    /// What is typed is seen, and done.
    #[track_caller]
    fn is_a_shell(&self) {
        self.write("echo $((600 + 66))");
        self.press(&["Enter"]);
        self.shows(&["echo $((600 + 66))", "666"]);
        assert!(!self.screen(&[]).contains("q quit"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.command(&["kill-server"]);
    }
}

/// A terminal, and a recording of who touches pages, with its stacks.
fn setting(columns: u16, lines: u16) -> Option<(Door, Terminal, PathBuf)> {
    if !(kernel() && program("tmux")) {
        return None;
    }
    let door = Door::new();
    let file = door.path("it.data");
    record_faults(&file, &[], role::words("threads:2,200"));
    let terminal = Terminal::new(&door, columns, lines);
    Some((door, terminal, file))
}

#[test]
fn keys_lead_from_the_table_to_the_line() {
    let Some((_door, terminal, file)) = setting(120, 30) else { return };
    terminal.report(&file, "");
    terminal.shows(&["page-faults", "everything", "Children", "Self", "Symbol", "q quit"]);
    // Filter, while it is typed.
    terminal.press(&["/"]);
    terminal.write("role::touch");
    terminal.shows(&["filter: role::touch", "role::touch▏"]);
    terminal.press(&["Enter"]);
    // Open: what it called, and who called it.
    terminal.press(&["Right"]);
    terminal.shows(&["▾ [.]", "calls", "called by", "atomic_store"]);
    // The line that does it.
    terminal.press(&["Enter"]);
    let screen = terminal.shows(&["role.rs", "Source", ".store(2, Ordering::Relaxed)"]);
    let line = screen.lines().find(|line| line.contains(".store(2, Ordering::Relaxed)")).unwrap();
    let share: f64 = line.split('%').next().unwrap().trim().parse().unwrap();
    assert!(share > 90.0, "{line}");
    // Back, and into one thread.
    terminal.press(&["Escape"]);
    terminal.shows(&["everything", "filter: role::touch"]);
    terminal.press(&["Escape", "t"]);
    terminal.shows(&["Which thread?", "all threads"]);
    terminal.press(&["Down", "Enter"]);
    terminal.shows(&["everything › ", "of everything"]);
    terminal.press(&["Escape"]);
    terminal.leaves(&["›"]);
    terminal.press(&["?"]);
    terminal.shows(&["Keys", "Everywhere"]);
    terminal.press(&["i"]);
    terminal.shows(&["About the recording", "What is missing", "written by"]);
    terminal.press(&["q"]);
    terminal.shows(&["ended 0"]);
    terminal.is_a_shell();
}

#[test]
fn a_terminal_may_have_any_size() {
    let Some((_door, terminal, file)) = setting(80, 24) else { return };
    terminal.report(&file, "");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.command(&["resize-window", "-x", "30", "-y", "6"]);
    terminal.shows(&["Too small: 30 columns"]);
    terminal.command(&["resize-window", "-x", "200", "-y", "50"]);
    terminal.shows(&["page-faults", "Symbol", "i info"]);
    terminal.press(&["q"]);
    terminal.shows(&["ended 0"]);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    for (signal, status) in [("TERM", "ended 143"), ("INT", "ended 130"), ("HUP", "ended 129")] {
        terminal.report(&file, "");
        terminal.shows(&["page-faults", "q quit"]);
        terminal.command(&["run-shell", &format!("pkill -{signal} -P \"$(tmux display -p '#{{pane_pid}}')\"")]);
        terminal.shows(&[status]);
        terminal.is_a_shell();
    }
}

#[test]
fn it_stops_and_goes_on() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    terminal.report(&file, "");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.press(&["C-z"]);
    terminal.shows(&["ready>"]);
    terminal.leaves(&["q quit"]);
    terminal.is_a_shell();
    terminal.write("fg");
    terminal.press(&["Enter"]);
    terminal.shows(&["page-faults", "q quit"]);
    terminal.press(&["?"]);
    terminal.shows(&["Everywhere"]);
    terminal.press(&["C-c"]);
    terminal.leaves(&["Everywhere"]);
    terminal.is_a_shell();
}

#[test]
fn colours_are_left_out_where_nobody_wants_them() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    let coloured = |options: &str| {
        terminal.report(&file, options);
        terminal.shows(&["page-faults", "q quit", "Symbol"]);
        let screen = terminal.screen(&["-e"]);
        terminal.press(&["q"]);
        terminal.shows(&["ended 0"]);
        // Colours of text: 30 to 37.
        ["\u{1b}[31m", "\u{1b}[33m", "\u{1b}[36m", ";31m", ";33m", ";36m"].iter().any(|code| screen.contains(code))
    };
    assert!(coloured(""));
    assert!(!coloured("--color never"));
    terminal.write("export NO_COLOR=1");
    terminal.press(&["Enter"]);
    assert!(!coloured(""));
}

#[test]
fn what_is_wrong_is_said_on_the_ordinary_screen() {
    let Some((door, terminal, file)) = setting(100, 24) else { return };
    std::fs::write(door.path("text.data"), "this is no recording at all").unwrap();
    terminal.report(&door.path("text.data"), "");
    terminal.shows(&["this is no recording", "ended 125"]);
    // A table where one is asked for, and through a pipe.
    terminal.report(&file, "--stdio | head -n 3");
    terminal.shows(&["# Total Lost Samples", "ended 0"]);
    terminal.report(&file, "| head -n 3");
    terminal.shows(&["# Total Lost Samples", "ended 0"]);
    // And the view all the same where it is asked for.
    terminal.report(&file, "--tui | cat");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.press(&["q"]);
    terminal.shows(&["ended 0"]);
    // Keys come from the terminal, and the recording from elsewhere.
    terminal.write(&format!("clear; cat '{}' | '{PMUX}' report -i -; echo ended $?", file.display()));
    terminal.press(&["Enter"]);
    terminal.shows(&["page-faults", "everything", "q quit"]);
    terminal.press(&["q"]);
    terminal.shows(&["ended 0"]);
    if program("setsid") {
        let words = ["-w", PMUX, "report", "--tui", "-i", file.to_str().unwrap()];
        start("setsid", words).run().bad(125, &["needs a terminal", "leave out --tui"]);
    }
    start(PMUX, ["report", "--tui", "--stdio"]).run().bad(125, &["--stdio", "--tui"]);
}
