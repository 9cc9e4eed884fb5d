//! The example that makes a glitch, and triggers that notice it.
//!
//! **Invariant:** without a compiler, and without the right to look, it is skipped and says so.

use crate::common::{Killed, debug_registers, first_fired, needs, session};
use pmux::trigger::{Fired, Reason, Rule, TriggerOptions, Triggers};
use pmux::{Session, Target};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn built(folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/glitch/glitch.c");
    let program = folder.join("glitch");
    let built = Command::new("cc").args(["-g", "-O1", "-pthread", "-o"]).arg(&program).arg(source).output();
    let there = matches!(&built, Ok(built) if built.status.success());
    if let Ok(built) = built {
        print!("{}", String::from_utf8_lossy(&built.stderr));
    }
    needs("cc", "cc", there).then_some(program)
}

fn first(session: &Session, text: &str, setting: TriggerOptions<'_>) -> Fired {
    let rule = Rule::parse(text, None).unwrap();
    let mut triggers = Triggers::open(session, &[rule], setting).unwrap_or_else(|error| panic!("{error}"));
    first_fired(&mut triggers)
}

#[test]
fn a_glitch_is_noticed_by_its_faults_its_line_and_its_variable() {
    // Before the program starts, which runs for a while only.
    let Some(_registers) = debug_registers() else { return };
    let Some(session) = session() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built(folder.path()) else { return };
    let mut child = Command::new(&program).args(["200", "50"]).stdout(Stdio::piped()).spawn().unwrap();
    let output = OwnedFd::from(child.stdout.take().unwrap());
    // A program whose output nothing reads any more would be ended by its next line.
    let _open = output.try_clone().unwrap();
    let running = Killed(child);
    let pid = running.0.id().cast_signed();
    let of_it =
        || TriggerOptions { interval: Duration::from_millis(20), ..TriggerOptions::of(Target::Processes(vec![pid])) };
    let fired = first(&session, "rate(page-faults) > 5k/s", of_it());
    assert!(matches!(fired.reasons[..], [Reason::Number { value, .. }] if value > 5000.0), "{fired}");
    let lines = TriggerOptions { lines: Some(output), ..of_it() };
    let fired = first(&session, "line:/glitch [0-9]+: [0-9]+ ms/", lines);
    assert!(fired.to_string().contains("pages"), "{fired}");
    let rule = Rule::parse("watch:visits:w", None).unwrap();
    match Triggers::open(&session, &[rule], of_it()) {
        Ok(triggers) => drop(triggers),
        Err(error) => {
            needs("breakpoints", &format!("debug registers ({error})"), false);
            return;
        }
    }
    let fired = first(&session, "watch:visits:w", of_it());
    assert!(matches!(&fired.reasons[..], [Reason::Hit(hit)] if hit.pid == pid), "{fired}");
}

#[test]
fn it_makes_as_many_as_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = built(folder.path()) else { return };
    let done = Command::new(&program).args(["10", "5", "3"]).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success());
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(
        text.lines().enumerate().all(|(index, line)| line.starts_with(&format!("glitch {}: ", index + 1))),
        "{text}"
    );
    let refused = Command::new(&program).arg("often").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("usage"));
}
