//! `pmux list`, `explain`, `completions`, `man` and help.

use crate::common;
use crate::common::{SyncDir, has_pmu, kernel, kernel_mode, pmux, program, root, skip_unless, start, tracefs};

#[test]
fn events_are_listed_by_kind_with_what_can_be_opened() {
    let ran = pmux(["list"]).run().good();
    let text = ran.text();
    for expected in
        ["hardware events\n", "software events\n", "page-faults or faults", "task-clock", "L1-dcache-load-misses"]
    {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
    if kernel() {
        let line = text.lines().find(|line| line.contains("page-faults or faults")).unwrap();
        assert!(line.starts_with("  yes  "), "{line}");
    }
    if kernel() && !has_pmu() {
        let line = text.lines().find(|line| line.contains("cpu-cycles or cycles")).unwrap();
        assert!(line.starts_with("  no   "), "{line}");
        assert!(text.contains("\nwhy not\n"));
    }
    let some = pmux(["list", "page-faults"]).run().good().text();
    assert!(some.lines().count() < text.lines().count() && some.contains("page-faults or faults"));
    let none = pmux(["list", "no-such-event-here"]).run().bad(125, &["no event matches 'no-such-event-here'"]);
    assert_eq!(none.text(), "");
}

#[test]
fn lists_are_for_programs_too() {
    let list = pmux(["list", "-j"]).run().good().document();
    let events = list["events"].as_array().unwrap();
    let find = |name: &str| {
        let names = |event: &&serde_json::Value| {
            event["name"] == name || event["aliases"].as_array().unwrap().iter().any(|alias| alias == name)
        };
        events.iter().find(names).unwrap_or_else(|| panic!("{name} is not listed"))
    };
    let faults = find("page-faults");
    assert_eq!(faults["kind"], "software");
    if kernel() {
        assert_eq!(faults["opens"], true);
    }
    assert!(events.iter().all(|event| event["name"].is_string() && event["kind"].is_string()));
    if kernel() && !has_pmu() {
        let cycles = find("cycles");
        assert_eq!(cycles["opens"], false);
        assert!(cycles["reason"].as_str().unwrap().contains("PMU"), "{cycles}");
    }
    if root() && tracefs() {
        let list = pmux(["list", "sched:*", "--json"]).run().good().document();
        let events = list["events"].as_array().unwrap();
        assert!(events.iter().all(|event| event["name"].as_str().unwrap().starts_with("sched:")));
        assert!(events.iter().any(|event| event["name"] == "sched:sched_switch"));
    }
}

#[test]
fn what_is_listed_as_open_can_be_counted() {
    skip_unless!(kernel_mode());
    let list = pmux(["list", "-j"]).run().good().document();
    let events = list["events"].as_array().unwrap().iter();
    let software = events.filter(|event| event["kind"] == "software" && event["opens"] == true);
    let software: Vec<&str> = software.map(|event| event["name"].as_str().unwrap()).collect();
    assert!(software.len() > 5, "{software:?}");
    let counted = common::stat(["-x,", "-e", &software.join(","), "true"]).run().good();
    let shown: Vec<String> = counted.rows().iter().map(|row| row[2].to_owned()).collect();
    assert_eq!(shown, software);
    assert!(counted.rows().iter().all(|row| row[0] != "<not supported>"), "{}", counted.err);
}

#[test]
fn a_reader_may_have_enough() {
    for line in ["list", "list -j", "completions bash", "--help", "stat --help"] {
        let shell = format!("\"$0\" {line} | head -n 1; echo after");
        let ran = start("sh", ["-c", &shell, common::PMUX]).run().good();
        assert_eq!(ran.err, "", "{line}");
        assert!(ran.text().ends_with("after\n"));
    }
    let sync_dir = SyncDir::new();
    let shell = format!("\"$0\" man '{}' | true; echo after", sync_dir.text("pages"));
    assert_eq!(start("sh", ["-c", &shell, common::PMUX]).run().good().err, "");
}

#[test]
fn an_event_is_explained() {
    let faults = pmux(["explain", "page-faults"]).run().good().text();
    for expected in ["event  page-faults", "PMU software", "PERF_COUNT_SW_PAGE_FAULTS", "opens  yes"] {
        assert!(faults.contains(expected), "{expected:?} is not in:\n{faults}");
    }
    let number = pmux(["explain", "-3"]).run().good().text();
    assert!(number.contains("page-faults"), "{number}");
    if kernel() && !has_pmu() {
        let cycles = pmux(["explain", "cycles"]).run();
        assert_eq!(cycles.code(), 125, "it can't be opened");
        let text = cycles.text();
        assert!(text.contains("opens  no") && text.contains("because  this machine has no hardware PMU"), "{text}");
        assert!(text.contains("what helps  "), "{text}");
    }
    let group = pmux(["explain", "{faults,cs}"]).run().good().text();
    assert_eq!(group.matches("tried on").count(), 2, "{group}");
    pmux(["explain", "pagefaults"]).run().bad(125, &["unknown event", "page-faults"]);
    pmux(["explain"]).run().bad(125, &["EVENT"]);
}

#[test]
fn an_event_is_tried_where_it_is_wanted() {
    skip_unless!(kernel());
    let own = std::process::id().to_string();
    let process = pmux(["explain", "page-faults", "-p", &own]).run().good().text();
    assert!(process.contains(&format!("process {own}")), "{process}");
    pmux(["explain", "page-faults", "-p", "99999999"]).run().bad(125, &["99999999"]);
    pmux(["explain", "page-faults", "-C", "99999"]).run().bad(125, &["CPU 99999"]);
    pmux(["explain", "page-faults", "-a", "-p", "1"]).run().bad(125, &["cannot be used with"]);
    if root() {
        assert!(pmux(["explain", "page-faults", "-a"]).run().good().text().contains("every CPU"));
    }
    if root() && tracefs() {
        assert!(pmux(["explain", "sched:sched_switch", "-C", "0"]).run().good().text().contains("PMU tracepoint"));
    }
}

#[test]
fn shells_complete_the_options() {
    for shell in ["bash", "fish", "zsh"] {
        let text = pmux(["completions", shell]).run().good().text();
        for option in ["for-each-cgroup", "per-thread", "explain", "timec"] {
            assert!(text.contains(option), "{shell} lacks {option}");
        }
        if matches!(shell, "bash" | "zsh") && program(shell) {
            let sync_dir = SyncDir::new();
            std::fs::write(sync_dir.path("pmux"), &text).unwrap();
            start(shell, ["-n", &sync_dir.text("pmux")]).run().good();
        }
    }
    if program("bash") {
        let line = "source <(\"$0\" completions bash) && \
                    COMP_WORDS=(pmux stat --for-e) COMP_CWORD=2 && _pmux pmux --for-e stat && echo \"${COMPREPLY[@]}\"";
        let ran = start("bash", ["-c", line, common::PMUX]).run().good();
        assert_eq!(ran.text().trim(), "--for-each-cgroup");
    }
    pmux(["completions", "csh"]).run().bad(125, &["csh", "bash"]);
}

#[test]
fn manual_pages_can_be_read() {
    let sync_dir = SyncDir::new();
    let folder = sync_dir.text("man1");
    let written = pmux(["man", &folder]).run().good().text();
    let pages: Vec<&str> = written.lines().collect();
    assert_eq!(pages.len(), 31, "{written}");
    for page in pages {
        let text = std::fs::read_to_string(page).unwrap();
        assert!(text.contains(".TH"), "{page}");
        if program("groff") {
            let plain = ["-P-c", "-P-b", "-P-o", "-P-u"];
            let shown = start("groff", ["-man", "-Tutf8", "-ww"]).args(plain).args([page]).run().good();
            assert_eq!(shown.err, "", "{page}");
            for section in ["NAME\n", "SYNOPSIS\n", "EXIT STATUS\n", "EXAMPLES\n"] {
                assert!(shown.text().contains(section), "{page} lacks {section:?}:\n{}", shown.text());
            }
        }
    }
    pmux(["man", "/dev/null/here"]).run().bad(125, &["/dev/null/here"]);
    // Again into the same place: pages are replaced.
    pmux(["man", &folder]).run().good();
}

/// That a help ends with three examples.
fn has_examples(help: &str) {
    let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{help}"));
    assert!(examples.matches("\n    ").count() >= 3 && !examples.contains("\n\n"), "{help}");
}

#[test]
fn help_is_there_for_everything() {
    let all = pmux(["--help"]).run().good().text();
    let page = all.split_once("\nOptions:\n").unwrap().0;
    let lines = page.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> = lines.filter(|name| !name.is_empty()).collect();
    assert_eq!(commands.len(), 23, "{all}");
    assert_eq!(pmux(["help"]).run().good().text(), all);
    assert_eq!(pmux(["help", "stat"]).run().good().text(), pmux(["stat", "--help"]).run().good().text());
    assert_eq!(pmux(["version"]).run().good().text(), pmux(["--version"]).run().good().text());
    for (command, help) in commands.iter().flat_map(|command| [(command, "--help"), (command, "-h")]) {
        let text = pmux([command, help]).run().good().text();
        assert!(text.contains("Usage: pmux "), "{command} {help}: {text}");
        has_examples(&text);
    }
    for below in ["bench breakpoint", "bench breakpoint thread", "flight list", "flight dump", "flight status"] {
        has_examples(&pmux(["help"].into_iter().chain(below.split(' '))).run().good().text());
    }
    for words in [&["help", "stat", "ls"][..], &["version", "x"]] {
        pmux(words).run().bad(125, &["takes no further word"]);
    }
    assert!(pmux(["--version"]).run().good().text().starts_with("pmux "));
}
