//! How a program becomes a worker: what has to be done while there is still a standard library.
//!
//! **Invariant:** nothing is allocated once the memory has been made ready.

use super::{BASE, Code, Stage, WORD};
use crate::procfs::Mapping;
use crate::sys::worker::{Memory, MemoryPlan, Plan, fault_in, lock_in, serve};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;

/// The exit status of a worker that never got ready.
pub(super) const NOT_READY: i32 = 125;

/// The words behind the program's name that make it a worker.
pub(super) fn words(stage: &Stage) -> Vec<String> {
    let code = match stage.code {
        Code::Runs => "code",
        Code::No => "data",
    };
    vec![WORD.to_owned(), stage.pages.to_string(), code.to_owned(), stage.children.to_string()]
}

fn parse(words: &[OsString]) -> Option<Stage> {
    let word = |index: usize| words.get(index)?.to_str();
    let code = match word(1)? {
        "code" => Code::Runs,
        "data" => Code::No,
        _ => return None,
    };
    Some(Stage { pages: word(0)?.parse().ok()?, code, children: word(2)?.parse().ok()? })
}

/// Goes on as a worker where the program was started as one, and never returns then. Otherwise does nothing.
///
/// Call it first thing in `main`, before there are other threads.
pub fn serve_if_asked() {
    let words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_none_or(|word| word != WORD) {
        return;
    }
    let why = match parse(words.get(2..).unwrap_or_default()) {
        Some(stage) if is_socket() => become_worker(stage, words),
        _ => "only scenarios start workers".to_owned(),
    };
    eprintln!("pmux: {WORD}: {why}");
    std::process::exit(NOT_READY);
}

/// Returns only where it can't be done, with the reason.
fn become_worker(stage: Stage, words: Vec<OsString>) -> String {
    let (pages, stacks) = (stage.pages as usize, stage.children as usize);
    let plan = MemoryPlan { base: BASE as usize, pages, executable: stage.code == Code::Runs, stacks };
    let memory = match Memory::map(plan) {
        Ok(memory) => memory,
        Err(errno) => return format!("the memory for accesses can't be had: {errno}"),
    };
    let texts =
        |words: Vec<OsString>| words.into_iter().filter_map(|word| CString::new(word.into_vec()).ok()).collect();
    let environment = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    // For as long as the process lives.
    let plan: &'static Plan = Box::leak(Box::new(Plan::new(memory, texts(words), texts(environment.collect()))));
    lock_in();
    // Not by its number, which `/proc` may give to another process: it may be that of another PID namespace.
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    let maps: Vec<Mapping> = text.split(|&byte| byte == b'\n').filter_map(Mapping::parse).collect();
    for mapping in maps.iter().filter(|mapping| mapping.rights.read) {
        let bytes = (mapping.end - mapping.start) as usize;
        // What can't be had (memory of the kernel, guards of stacks) is not used.
        let _ = fault_in(mapping.start as usize, bytes, mapping.rights.write);
    }
    serve(plan)
}

fn is_socket() -> bool {
    std::fs::read_link("/proc/self/fd/0").is_ok_and(|to| to.as_os_str().to_string_lossy().starts_with("socket:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_as_they_went_in() {
        for stage in
            [Stage { pages: 0, code: Code::No, children: 0 }, Stage { pages: 7, code: Code::Runs, children: u32::MAX }]
        {
            let words: Vec<OsString> = words(&stage).into_iter().map(OsString::from).collect();
            assert_eq!(words[0], WORD);
            assert_eq!(parse(&words[1..]), Some(stage));
        }
        for words in [&["1", "data"][..], &["x", "data", "1"], &["1", "rwx", "1"], &["-1", "code", "1"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(parse(&words), None);
        }
    }
}
