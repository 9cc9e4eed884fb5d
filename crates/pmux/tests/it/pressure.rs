//! Pressure as a trigger: of a cgroup, and for a user without rights.
//!
//! **Invariant:** nothing depends on how fast the machine is: there is pressure until it is noticed.

use crate::common::cgroup::Cgroup;
use crate::common::{Killed, as_unprivileged, first_fired, needs, session, skip_unless};
use pmux::Target;
use pmux::trigger::{Reason, Rule, TriggerError, TriggerOptions, Triggers};
use std::path::Path;
use std::process::Command;

fn open(session: &pmux::Session, text: &str) -> Result<Triggers, TriggerError> {
    let rule = Rule::parse(text, None).unwrap_or_else(|error| panic!("{error}"));
    Triggers::open(session, &[rule], TriggerOptions::of(Target::CurrentThread))
}

#[test]
fn a_cgroup_under_pressure() {
    let Some(session) = session() else { return };
    let Some(cgroup) = Cgroup::make("pressure") else { return };
    skip_unless!(needs("psi", "cgroups with pressure stall information", cgroup.path.join("cpu.pressure").exists()));
    // More than there are CPUs.
    let spin = |_| {
        let child = Killed(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        std::fs::write(cgroup.path.join("cgroup.procs"), child.0.id().to_string()).unwrap();
        child
    };
    let _busy: Vec<Killed> = (0..3 * session.online().len()).map(spin).collect();
    let text = format!("psi:cpu:/{} some 50ms/2s", cgroup.name());
    let mut triggers = open(&session, &text).unwrap();
    let fired = first_fired(&mut triggers);
    assert!(matches!(fired.reasons[..], [Reason::Pressure(_)]), "{fired}");
    assert_eq!(fired.to_string(), text);
    let error = open(&session, "psi:cpu:/no/such/cgroup some 50ms/2s").err().unwrap();
    assert!(error.to_string().contains("/no/such/cgroup"), "{error}");
}

/// The role `unprivileged`, as a user that may not do much.
pub(crate) fn role(name: &str, _: &str) {
    assert_eq!(name, "unprivileged");
    let Some(session) = session() else { return };
    let error = open(&session, "psi:cpu some 20ms/500ms").err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("2s, 4s, 6s, 8s or 10s") && error.contains("CAP_SYS_RESOURCE"), "{error}");
    match open(&session, "psi:cpu some 300ms/2s") {
        Ok(_) => println!("waits for 2s"),
        // Before Linux 6.5.
        Err(error) => assert!(error.to_string().contains("CAP_SYS_RESOURCE"), "{error}"),
    }
}

#[test]
fn a_user_without_rights() {
    let psi = Path::new("/proc/pressure/cpu").exists();
    skip_unless!(session().is_some() && needs("psi", "pressure stall information", psi));
    if let Some((_folder, mut program)) = as_unprivileged("pressure/unprivileged") {
        assert!(program.status().unwrap().success());
    }
}
