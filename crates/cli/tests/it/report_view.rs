//! The interactive view of `pmux report`, driven by keys in a terminal of its own.

use crate::common::terminal::Terminal;
use crate::common::{PMUX, SyncDir, cc, kernel, new_file, program, record_faults, start};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shows a recording; the shell tells how it ended.
fn report(terminal: &Terminal, file: &Path, options: &str) {
    terminal.enter(&format!("clear; '{PMUX}' report -i '{}' {options}; echo ended $?", file.display()));
}

/// Two threads that touch pages, in a function of their own.
const PROGRAM: &str = "\
#include <pthread.h>
static char pages[8][64 << 12];
__attribute__((noinline)) void touch(char *from) {
	for (int page = 0; page < 64; page++)
		((volatile char *)from)[page << 12] = 1; /* here */
}
__attribute__((noinline)) void carry(char *from) { touch(from); touch(from + sizeof pages[0]); }
static void *help(void *unused) { carry(pages[0]); carry(pages[2]); return unused; }
int main(void) {
	pthread_t other;
	pthread_create(&other, 0, help, 0);
	carry(pages[4]);
	return pthread_join(other, 0);
}
";

/// A terminal, and a recording of who touches pages, with its stacks.
fn setting(columns: u16, lines: u16) -> Option<(SyncDir, Terminal, PathBuf)> {
    if !(kernel() && program("tmux") && program("cc") && program("pkill")) {
        return None;
    }
    let (sync_dir, file) = new_file("it.data");
    let options = ["-g", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"];
    let made = cc(sync_dir.path(""), "carrier", PROGRAM, &options);
    record_faults(&file, &[], [made.into_os_string()]);
    let terminal = Terminal::new(&sync_dir, columns, lines);
    Some((sync_dir, terminal, file))
}

#[test]
fn keys_lead_from_the_table_to_the_line() {
    let Some((_door, terminal, file)) = setting(120, 30) else { return };
    report(&terminal, &file, "");
    terminal.shows(&["page-faults", "everything", "Children", "Self", "Symbol", "q quit"]);
    // Filter, while it is typed.
    terminal.press(&["/"]);
    terminal.write("CARRIER tou");
    terminal.shows(&["filter: CARRIER tou 1 of ", "/CARRIER tou▏", "[.] touch"]);
    terminal.press(&["Enter"]);
    // Open: who called it, with their shares.
    terminal.press(&["Right"]);
    terminal.shows(&["▾ [.] touch", "called by", "help", "main"]);
    // The line that does it.
    terminal.press(&["Enter"]);
    let screen = terminal.shows(&["carrier.c", "Source", "/* here */"]);
    let line = screen.lines().find(|line| line.contains("/* here */")).unwrap();
    let shares: Vec<f64> = line.split('%').take(2).map(|share| share.trim().parse().unwrap()).collect();
    assert!(shares.iter().all(|share| *share > 99.0), "{line}");
    // And the instructions that it is made of.
    terminal.press(&["a"]);
    if program("objdump") {
        terminal.shows(&["Instruction", "+0x", "ret"]);
    } else {
        terminal.shows(&["Instruction", "+0x", "install binutils"]);
    }
    // Back, and into one thread.
    terminal.press(&["Escape"]);
    terminal.shows(&["everything", "filter: CARRIER tou"]);
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
    // Closes what stands before the table, and only there ends all.
    terminal.press(&["q"]);
    terminal.shows(&["everything", "Symbol"]);
    terminal.quit("ended 0");
    terminal.is_a_shell();
}

#[test]
fn a_terminal_may_have_any_size() {
    let Some((_door, terminal, file)) = setting(80, 24) else { return };
    report(&terminal, &file, "");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.command(&["resize-window", "-x", "30", "-y", "6"]);
    terminal.shows(&["Too small: 30 columns"]);
    terminal.command(&["resize-window", "-x", "200", "-y", "50"]);
    terminal.shows(&["page-faults", "Symbol", "i info"]);
    terminal.quit("ended 0");
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    for (signal, status) in [("TERM", "ended 143"), ("HUP", "ended 129")] {
        report(&terminal, &file, "");
        terminal.shows(&["page-faults", "q quit"]);
        // Only the view: the shell lives on.
        let shell = String::from_utf8(terminal.command(&["display", "-p", "#{pane_pid}"]).stdout).unwrap();
        let words = [&format!("-{signal}"), "-P", shell.trim()];
        assert!(Command::new("pkill").args(words).status().unwrap().success());
        terminal.shows(&[status]);
        terminal.is_a_shell();
    }
}

#[test]
fn it_stops_and_goes_on() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    report(&terminal, &file, "");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.press(&["C-z"]);
    terminal.shows(&["Stopped"]);
    terminal.leaves(&["q quit"]);
    terminal.is_a_shell();
    terminal.enter("fg");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.press(&["?"]);
    terminal.shows(&["Everywhere"]);
    terminal.press(&["C-c"]);
    terminal.leaves(&["Everywhere"]);
    terminal.is_a_shell();
}

#[test]
fn colours_are_left_out_with_no_color() {
    let Some((_door, terminal, file)) = setting(100, 24) else { return };
    let coloured = |options: &str| {
        report(&terminal, &file, options);
        terminal.shows(&["page-faults", "q quit", "Symbol"]);
        let screen = terminal.screen(&["-e"]);
        terminal.quit("ended 0");
        screen.contains("38;5;")
    };
    assert!(coloured(""));
    assert!(!coloured("--color never"));
    terminal.enter("export NO_COLOR=1");
    assert!(!coloured(""));
}

#[test]
fn what_is_wrong_is_said_on_the_ordinary_screen() {
    let Some((sync_dir, terminal, file)) = setting(100, 24) else { return };
    std::fs::write(sync_dir.path("text.data"), "this is no recording at all").unwrap();
    report(&terminal, &sync_dir.path("text.data"), "");
    terminal.shows(&["this is no recording", "ended 125"]);
    // A table where one is asked for, and through a pipe.
    report(&terminal, &file, "--stdio | head -n 3");
    terminal.shows(&["# Total Lost Samples", "ended 0"]);
    report(&terminal, &file, "| head -n 3");
    terminal.shows(&["# Total Lost Samples", "ended 0"]);
    // And the view all the same where it is asked for.
    report(&terminal, &file, "--tui | cat");
    terminal.shows(&["page-faults", "q quit"]);
    terminal.quit("ended 0");
    // Keys come from the terminal, and the recording from elsewhere.
    terminal.enter(&format!("clear; cat '{}' | '{PMUX}' report -i -; echo ended $?", file.display()));
    terminal.shows(&["page-faults", "everything", "q quit"]);
    terminal.quit("ended 0");
    if program("setsid") {
        let words = ["-w", PMUX, "report", "--tui", "-i", file.to_str().unwrap()];
        start("setsid", words).run().bad(125, &["needs a terminal", "leave out --tui"]);
    }
    start(PMUX, ["report", "--tui", "--stdio"]).run().bad(125, &["--stdio", "--tui"]);
}
