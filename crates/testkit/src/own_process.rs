//! A test in a process of its own.
//!
//! Tests run side by side, as threads of one process. A test that measures the process (its open files, its threads, its page faults)
//! begins with `skip_unless!(own_process());`, before it takes a lock.

use crate::marked;
use std::process::Command;

/// By this variable the child knows that it is the process of its own.
const VARIABLE: &str = "PMUX_TEST_OWN_PROCESS";

/// Whether this is the process in which the calling test runs alone. If not, the test has run there, its skips were printed, and it has
/// passed.
///
/// # Panics
///
/// Where the test has failed there, with what it printed. Must be called in the test's own thread, which has its name.
#[track_caller]
pub fn own_process() -> bool {
    own_process_with(&[])
}

/// As [`own_process`], with these variables in that process.
#[track_caller]
pub fn own_process_with(variables: &[(&str, &str)]) -> bool {
    let thread = std::thread::current();
    let name = thread.name().unwrap();
    if std::env::var_os(VARIABLE).is_some_and(|own| own == name) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(VARIABLE, name);
    let output = marked(&mut command).envs(variables.iter().copied()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}, in a process of its own: {}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "there is no test {name}:\n{out}");
    // The harness has begun a line.
    for (at, _) in out.match_indices("skipped: ") {
        println!("{}", out[at..].lines().next().unwrap_or_default());
    }
    false
}
