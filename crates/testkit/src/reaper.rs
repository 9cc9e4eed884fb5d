//! No program outlives the tests that started it, however they end.
//!
//! What it is: [`marked`] writes into the environment of a program which test executable it belongs to; what the program starts inherits
//! that. A process beside the tests, in the role `reaper`, waits for the end of a pipe that only the executable holds, and then kills
//! every process with the mark. `PR_SET_PDEATHSIG` would reach the program, but not what it has started.

use crate::signals::default_signals;
use crate::{eventually, role, with_environment};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

const VARIABLE: &str = "PMUX_TEST_HARNESS";

/// Lets a program that is about to be started end with this test executable at the latest, and so everything that it starts; and gives
/// it the default disposition of the signals that end a program (`signals.rs`). The reaper is this executable in a role: one without the
/// test `role` has none.
pub fn marked(command: &mut Command) -> &mut Command {
    // Kept as long as this process lives: its standard input is the pipe.
    static REAPER: OnceLock<Child> = OnceLock::new();
    let is_reaper = std::env::args().any(|word| word.starts_with("role=reaper:"));
    assert!(!is_reaper, "this executable does not begin with role::play_if_asked: each reaper would start another one");
    default_signals();
    let harness = std::process::id();
    REAPER.get_or_init(|| {
        let mut reaper = role::unmarked(&std::env::current_exe().unwrap(), &format!("reaper:{harness}"));
        // In a group of its own, which no interrupt from the terminal reaches.
        std::os::unix::process::CommandExt::process_group(&mut reaper, 0);
        reaper.env_remove(VARIABLE);
        reaper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    command.env(VARIABLE, harness.to_string())
}

/// The role `reaper:HARNESS`.
pub(crate) fn play(harness: &str) {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let mark = format!("{VARIABLE}={harness}");
    // Again until none is left: they may start others meanwhile.
    eventually("all have gone", || {
        let left = with_environment(&mark);
        if !left.is_empty() {
            let _ = Command::new("kill").args(["-s", "KILL", "--"]).args(left.iter().map(i32::to_string)).status();
        }
        left.is_empty().then_some(())
    });
}

#[cfg(test)]
mod tests {
    use crate::{SyncDir, eventually, lives, role};
    use std::process::Command;

    #[test]
    fn what_a_killed_harness_has_started_ends() {
        let sync_dir = SyncDir::new();
        let mut harness = role::command(&format!("leaves-a-sleeper:{}", sync_dir.text(""))).spawn().unwrap();
        // The shell's child, which the harness does not know of.
        let sleeper: i32 = sync_dir.read("sleeper").parse().unwrap();
        assert!(lives(sleeper));
        harness.kill().unwrap();
        harness.wait().unwrap();
        eventually("it has ended", || (!lives(sleeper)).then_some(()));
    }

    #[test]
    fn what_was_ignored_is_not_ignored_by_programs_under_test() {
        let role = role::line("interrupts-itself");
        for ignored in ["INT", "QUIT", "HUP", "TERM"] {
            let line = format!("trap '' {ignored}; SIGNAL={ignored} exec {role}");
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("it was killed"), "{ignored}: {text}");
        }
    }
}
