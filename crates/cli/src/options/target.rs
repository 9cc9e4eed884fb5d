//! Lists of process and thread ids on the command line, and which target was meant.
//!
//! **Invariant:** an id is only read, never looked up: whether it is alive is for the
//! measurement to find out.

use std::ffi::OsString;

/// The target of a command that takes one kind of target at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TargetSpec {
    #[default]
    Command,
    Pids(Vec<i32>),
    Tids(Vec<i32>),
    /// `None` for all.
    Cpus(Option<String>),
}

/// The one that was meant, of processes, threads, all CPUs or some, and a command. `question` is what to ask where that isn't said, `give`
/// how a command is given.
///
/// # Errors
/// A sentence for the user: none, or several.
pub(crate) fn target_spec(
    (pids, tids): (&[i32], &[i32]),
    (all_cpus, cpus): (bool, Option<&String>),
    command: &[OsString],
    (verb, give): (&str, &str),
) -> Result<TargetSpec, String> {
    // As in perf, a list of CPUs is more than all of them.
    let all_cpus = all_cpus && cpus.is_none();
    let given = [
        ("-p", (!pids.is_empty()).then(|| TargetSpec::Pids(pids.to_vec()))),
        ("-t", (!tids.is_empty()).then(|| TargetSpec::Tids(tids.to_vec()))),
        ("-a", all_cpus.then_some(TargetSpec::Cpus(None))),
        ("-C", cpus.map(|list| TargetSpec::Cpus(Some(list.clone())))),
    ];
    let mut found = given.into_iter().filter_map(|(option, target_spec)| Some((option, target_spec?)));
    match (found.next(), found.next()) {
        (Some((one, _)), Some((other, _))) => {
            Err(format!("{one} and {other} name different things to {verb}: give one of them"))
        }
        (Some((_, target_spec)), None) => Ok(target_spec),
        (None, _) if command.is_empty() => {
            Err(format!("nothing to {verb}: give a command{give}, or -p PID, -t TID, -a, -C CPUS"))
        }
        (None, _) => Ok(TargetSpec::Command),
    }
}

/// Reads one process or thread id.
///
/// # Errors
/// A sentence for the user: not a number, or not a possible id.
pub(crate) fn id(text: &str) -> Result<i32, String> {
    match text.trim().parse::<i32>() {
        Ok(id) if id > 0 => Ok(id),
        Ok(_) => Err("ids are greater than 0".to_owned()),
        Err(_) => Err("expected ids separated by commas, such as 1234,1250".to_owned()),
    }
}

/// Reads a list of CPUs (`0-3,6`) far enough to tell a typing mistake; it stays text,
/// because it is also the title of the report.
pub(crate) fn cpus(text: &str) -> Result<String, String> {
    let wrong = || "expected CPUs and ranges, such as 0-3,6".to_owned();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        if number(first)? > number(last)? {
            return Err(format!("the range {part} runs backwards"));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive() {
        assert_eq!(id("1234"), Ok(1234));
        for wrong in ["0", "-5", "bash", "99999999999"] {
            assert!(id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(cpus("0-3,6"), Ok("0-3,6".to_owned()));
        for wrong in ["3-1", "", "0,,1", "all"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }
}
