//! Manual pages: clap's own sections, and those that clap does not know.
//!
//! **Invariant:** options are described in one place, their definition. Only exit status,
//! environment and examples are written here.

use super::serve::{BUDGET_WORDS, BUDGETS};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Examples of one command: a sentence and a command line.
type Examples = &'static [(&'static str, &'static str)];

const FLIGHT_MONTHS: &str = "pmux flight -a -g -q --on crash --max-snapshots 20 --max-disk 1G -o /var/lib/flights";
const BENCH_LEDGER: &str =
    "pmux bench breakpoint thread -b 4 -p 64 -t 64 -r 30 --engine ledger --cpus 256 --baseline list";

const STATUS_SERVICE: &[(&str, &str)] = &[
    ("0", "all went well; the service was asked to stop"),
    ("1", "there is no service, or there can be none: a sentence says why"),
    ("125", "wrong options"),
];

const STATUS_MEASURING: &[(&str, &str)] = &[
    ("0-124", "the exit status of the measured command; 0 when there is none"),
    (
        "125",
        "pmux itself failed: wrong options, no event could be opened, a target is gone, the report could not be written",
    ),
    ("126", "the command was found and cannot be executed"),
    ("127", "the command was not found"),
    ("128+N", "the command was killed by signal N"),
];

const STATUS_OTHER: &[(&str, &str)] =
    &[("0", "all went well"), ("125", "wrong options, or what was asked for cannot be done")];

const STATUS_PLAN: &[(&str, &str)] = &[
    ("0", "every event is counted, all the time or in turns"),
    ("1", "an event can never be counted like this: the plan says why"),
    ("125", "wrong options, an event that is not understood, or a machine whose counters are not known"),
];

const STATUS_SIM: &[(&str, &str)] = &[
    ("0", "no scenario failed; some may have been skipped"),
    ("1", "a scenario failed, or was skipped although PMUX_REQUIRE says that this machine has what it needs"),
    ("125", "wrong options, or a file cannot be read or understood"),
    ("128+N", "pmux was stopped by signal N"),
];

const ENVIRONMENT_SIM: &[(&str, &str)] = &[
    (
        "PMUX_REQUIRE",
        "what this machine is known to have, separated by commas (kernel, pmu, root, breakpoints, cpus, hotplug, lab): a \
         scenario that is skipped for want of it is a failure",
    ),
    ("PMUX_TEST_HOTPLUG", "1 lets scenarios take CPUs of this machine offline for a moment"),
];

const ENVIRONMENT: &[(&str, &str)] = &[
    ("NO_COLOR", "when set and not empty, --color auto uses no colour"),
    (
        "PMUX_BACKEND",
        "where counts come from: kernel (performance events, or an error), usage (wait4, /proc and cgroup files), or auto, \
         the default (performance events where they can be opened, usage where not)",
    ),
];

const ENVIRONMENT_SHARING: &[(&str, &str)] = &[
    ("PMUX_SHARED", "whether counters are shared through pmux serve where --shared doesn't say: auto, always or never"),
    (
        "PMUX_SOCKET",
        "where the service is asked; without it at /run/pmux/pmux.sock, and where there is none, at \
         $XDG_RUNTIME_DIR/pmux/pmux.sock",
    ),
];

const SERVE_WORDS: &str = "Identical requests share one kernel counter, and each client gets exact numbers: pmux stat, pmux watch --count-only, \
     pmux record --shared=always and the library. What a client may count is decided by the kernel's rules for its user, and by the \
     groups that the configuration names. Clients of other users are not shown to a user. When the daemon stops or dies, clients keep what \
     was counted; those that have the kernel's own files read on; all connect again, and say for how long nothing was counted. \
     pmux status shows which client counts what.";

const SERVE_FILES: &[(&str, &str)] = &[
    (
        "/etc/pmux/pmux.toml",
        "the configuration; without it the defaults hold, which the file that comes with pmux lists",
    ),
    (
        "/run/pmux/pmux.sock",
        "where clients connect, of a service that root runs; pmux.socket of systemd makes the same",
    ),
    ("$XDG_RUNTIME_DIR/pmux/pmux.sock", "where clients connect, of a service that another user runs"),
    ("PATH.lock", "beside the socket, held by the service that listens there, so that there is one"),
];

const SERVE_SIGNALS: &[(&str, &str)] = &[
    ("SIGTERM, SIGINT", "stop: clients are told, and keep what was counted"),
    (
        "SIGHUP",
        "read the configuration anew; a wrong one changes nothing, and the log says what is wrong. The socket stays where it is",
    ),
];

const SERVE_ENVIRONMENT: &[(&str, &str)] = &[
    ("LISTEN_FDS, LISTEN_PID", "a socket of packets that a service manager hands over; --socket goes before it"),
    (
        "JOURNAL_STREAM",
        "where it names standard error, lines of the log begin with their level, as the journal wants it",
    ),
];

/// Returns every page with its file name: `pmux.1`, one for each command, `timec.1`.
///
/// # Errors
/// None in practice: the pages are written to memory.
pub(super) fn pages(mut root: Command, timec: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    // Subcommands learn their full name and the version here, all of them at once.
    root.build();
    let mut pages = vec![page(root.clone(), "pmux", "pmux")?];
    pages_below(&root, "pmux", None, &mut pages)?;
    pages.push(page(timec, "timec", "timec")?);
    Ok(pages)
}

/// A page for each command below one, those below them included; these are of the same kind.
fn pages_below(
    above: &Command,
    prefix: &str,
    kind: Option<&str>,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    for command in above.get_subcommands() {
        let kind = kind.unwrap_or(command.get_name());
        let full = format!("{prefix}-{}", command.get_name());
        pages.push(page(command.clone(), kind, &full)?);
        pages_below(command, &full, Some(kind), pages)?;
    }
    Ok(())
}

fn page(command: Command, kind: &str, full: &str) -> io::Result<(String, Vec<u8>)> {
    let command = command.display_name(full.to_owned()).version(VERSION);
    let has_commands = command.has_subcommands();
    let man = Man::new(command).source(format!("pmux {VERSION}"));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if kind == "serve" {
        let mut roff = Roff::new();
        roff.control("PP", []).text([roman(SERVE_WORDS)]);
        roff.to_writer(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let asking = full.starts_with("pmux-flight-");
    let status = match kind {
        _ if asking => STATUS_OTHER,
        "pmux" | "stat" | "timec" | "watch" | "record" | "flight" | "run" => STATUS_MEASURING,
        "plan" => STATUS_PLAN,
        "sim" => STATUS_SIM,
        "serve" | "status" => STATUS_SERVICE,
        _ => STATUS_OTHER,
    };
    let mut roff = Roff::new();
    terms(&mut roff, "EXIT STATUS", status);
    if matches!(kind, "pmux" | "stat" | "list" | "explain" | "plan" | "bench") {
        let sharing = if matches!(kind, "pmux" | "stat") { ENVIRONMENT_SHARING } else { &[] };
        terms(&mut roff, "ENVIRONMENT", &[ENVIRONMENT, sharing].concat());
    }
    match kind {
        "sim" => terms(&mut roff, "ENVIRONMENT", ENVIRONMENT_SIM),
        "serve" => {
            roff.control("SH", ["BUDGETS"]).text([roman(BUDGET_WORDS)]);
            definitions(&mut roff, BUDGETS);
            terms(&mut roff, "FILES", SERVE_FILES);
            terms(&mut roff, "SIGNALS", SERVE_SIGNALS);
            terms(&mut roff, "ENVIRONMENT", SERVE_ENVIRONMENT);
        }
        _ if asking || kind == "status" => terms(&mut roff, "ENVIRONMENT", &ENVIRONMENT_SHARING[1..]),
        "watch" | "record" | "run" | "top" | "timec" => terms(&mut roff, "ENVIRONMENT", ENVIRONMENT_SHARING),
        _ => {}
    }
    examples(&mut roff, examples_of(kind));
    roff.to_writer(&mut text)?;
    Ok((format!("{full}.1"), ascii(&text)))
}

/// Writes characters that are not ASCII by their numbers: every formatter understands that, whatever the locale.
fn ascii(text: &[u8]) -> Vec<u8> {
    let mut out = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            out.push_str(&format!("\\[u{:04X}]", u32::from(c)));
        }
    }
    out.into_bytes()
}

/// The same examples below the help of each command, and of those below it.
pub(super) fn with_examples(command: Command, kind: Option<&str>) -> Command {
    let kind = kind.unwrap_or(command.get_name()).to_owned();
    let above = command.get_after_help().map(|text| format!("{}\n\n", text.to_string().trim_end())).unwrap_or_default();
    let examples = examples_of(&kind).iter().map(|(sentence, line)| format!("\n  {sentence}\n    {line}"));
    let text = format!("{above}Examples:{}", examples.collect::<String>());
    command.after_help(text).mut_subcommands(|command| with_examples(command, Some(&kind)))
}

fn examples_of(kind: &str) -> Examples {
    match kind {
        "serve" => &[
            ("Run the daemon until a signal comes:", "pmux serve"),
            ("What is wrong with a configuration?", "pmux serve --check --config ./pmux.toml"),
            (
                "For yourself, at a socket of your own, which clients find by --socket or PMUX_SOCKET:",
                "pmux serve --socket /tmp/pmux.sock",
            ),
        ],
        "status" => &[
            ("Which clients count what, and what does sharing save?", "pmux status"),
            ("The same, brought up to date every two seconds:", "pmux status --watch 2"),
            ("For programs:", "pmux status -j"),
        ],
        "timec" => &[
            ("Instructions, cache misses and branch misses of a listing:", "timec -e 1 -e 3 -e 5 ls -lR /usr/include"),
            ("Page faults, by the name of the event:", "timec -e page-faults make"),
            ("For programs:", "timec -j -e task-clock ls -lR /usr/include"),
        ],
        "list" => &[
            ("All events:", "pmux list"),
            ("Events of the scheduler, for programs:", "pmux list 'sched:*' -j"),
            ("What has to do with faults?", "pmux list fault"),
        ],
        "explain" => &[
            ("Why is there no cycle counter?", "pmux explain cycles"),
            ("May I count this process?", "pmux explain page-faults -p 1234"),
            ("Does it work on every CPU, for programs?", "pmux explain cycles -a -j"),
        ],
        "plan" => &[
            (
                "How would these events share six counters?",
                "pmux plan --counters 6 -e cycles,instructions,branches,r1b,r2c,r3d,r4e",
            ),
            (
                "On every CPU of the machine of the lab, for programs:",
                "pmux plan --machine lab -a -j -e '{cycles,instructions}'",
            ),
            ("Why can this group never be counted?", "pmux plan --counters 2 -e '{cycles,instructions,branches}'"),
        ],
        "sim" => &[
            ("What happens on a simulated machine, counter by counter:", "pmux sim scenarios/multiplex.scn"),
            ("All scenarios on this kernel:", "pmux sim --on kernel scenarios"),
            ("The same story with other random numbers:", "pmux sim --seed 7 scenarios/multiplex.scn"),
        ],
        "run" => &[
            ("What an agent opens, and why it gets nothing:", "pmux run --explain -- ./agent --collect perf"),
            (
                "Two programs that count the same, with one counter:",
                "pmux run -- sh -c './agent & perf stat -a -e cycles sleep 10'",
            ),
            ("What programs open, for a program to read:", "pmux run -j -o opens.jsonl -- perf stat -a sleep 1"),
        ],
        "watch" => &[
            ("Which threads write the variable `counter`, and where?", "pmux watch counter -- ./server"),
            ("What reads or writes a variable of a running process?", "pmux watch config::LIMIT:rw -p 1234"),
            ("Each write of 0 to it, as it happens:", "pmux watch --trace --if 'value == 0' counter -- ./server"),
            (
                "Which thread executes this line first, in a running process?",
                "pmux watch --stop 1 server.c:120 -p 1234",
            ),
            ("More variables than there are debug registers:", "pmux watch --share-time a b c d e f -p 1234"),
            ("What calls a function of the kernel, on any CPU?", "pmux watch kernel:vfs_open -a -- sleep 1"),
        ],
        "record" => &[
            ("Where does a build spend its time?", "pmux record -g -- make"),
            ("The whole machine, for 10 seconds:", "pmux record -F 99 -a -g -- sleep 10"),
            (
                "The same, with one kernel event for all clients that record it (where `pmux serve` runs):",
                "pmux record --shared=always -F 99 -a -g -- sleep 10",
            ),
            (
                "Every scheduler event of a process, into a pipe:",
                "pmux record -e 'sched:*' -p 1234 -o - | perf script -i -",
            ),
            (
                "For hours, in files of 100 MB, of which five are kept:",
                "pmux record -z --switch-output=100M --switch-max-files 5 -a",
            ),
        ],
        "flight" => &[
            (
                "What happened before the page faults came in a burst?",
                "pmux flight -a -g --on 'rate(page-faults) > 100k/s'",
            ),
            (
                "What did threads wait for before a request was slow?",
                "pmux flight -a --off-cpu --on 'line:/slow request/'",
            ),
            ("What did a process do before it crashed?", "pmux flight --keep 1m --on crash -- ./server"),
            (
                "Every event of the scheduler, for 2 s around the moment when tasks wait for a CPU:",
                "pmux flight -a --set 'fine={sched:*}' --on 'psi:cpu some 200ms/1s' 'set fine on for 2s; snapshot' --after 2s",
            ),
            ("For months, at most 20 snapshots in 1 GiB:", FLIGHT_MONTHS),
            ("A snapshot now, of the recorder that runs:", "perf report -i $(pmux flight dump)"),
            ("Which recorders run, and what do they hold?", "pmux flight status"),
        ],
        "report" => &[
            ("What did the recording in perf.data spend its time on?", "pmux report"),
            (
                "Each function by itself, from 1 % on, without trees:",
                "pmux report --no-children -g none --percent-limit 1",
            ),
            ("Which programs, on which CPUs?", "pmux report --sort cpu,comm"),
            (
                "Which threads waited for a CPU, and who ran there?",
                "pmux record --off-cpu -a -- make; pmux report --runqueue",
            ),
            (
                "What made it slow, though several threads ran?",
                "pmux record --latency -- make -j8; pmux report --latency -s comm,parallelism",
            ),
            (
                "What did a request wait for, through all threads?",
                "pmux record --off-cpu -p 1234 -- sleep 10; pmux report --critical-path --tid 1240",
            ),
            (
                "Which locks were waited for, and who ended that?",
                "pmux record --off-cpu -- ./server; pmux report --locks",
            ),
            ("Of a recording that is being made:", "pmux record -o - -a -- sleep 5 | pmux report -i -"),
        ],
        "script" => &[
            ("Every sample of perf.data:", "pmux script"),
            ("Names, times and functions only:", "pmux script -F comm,tid,time,ip,sym"),
            ("For programs, with the fields of tracepoints:", "pmux script --json-lines"),
        ],
        "bench" => &[
            (
                "What do breakpoints add to the start and the end of a thread?",
                "pmux bench breakpoint thread -b 4 -t 64 -r 100",
            ),
            ("The same on a machine with 256 CPUs, in the ledger alone, beside a simple algorithm:", BENCH_LEDGER),
            (
                "A breakpoint that 64 threads have inherited is switched off and on:",
                "pmux bench breakpoint enable -p 64 -r 1000",
            ),
        ],
        "flame" => &[
            ("Where does the time go?", "pmux record -g -- make && pmux flame"),
            (
                "One second of it, by process, hung from the top:",
                "pmux flame --from 1 --to 2 --by process --icicle -o second.svg",
            ),
            ("What has a change made slower?", "pmux flame --diff before.data after.data -o diff.svg"),
        ],
        "timeline" => &[
            (
                "Which task ran where, and when?",
                "pmux record -a -g --switch-events -- sleep 2 && pmux timeline -o timeline.html",
            ),
            (
                "The newest snapshot of a folder, with what has triggered it:",
                "pmux timeline -i snapshots -o timeline.html",
            ),
            ("What threads waited for, and who ended that?", "pmux record --off-cpu -g -- make && pmux timeline"),
        ],
        "top" => &[
            ("Which functions run now, and who calls them (Enter)?", "pmux top"),
            ("Which container or pod takes the CPUs?", "pmux top -s cgroup"),
            ("The threads of a process, every half a second:", "pmux top -p 1234 -s thread -d 0.5"),
            ("One minute of it, for a program:", "pmux top -j -n 30"),
        ],
        "view" => &[
            ("In a browser on this machine:", "pmux view"),
            ("The newest snapshot of a folder:", "pmux view -i snapshots"),
            ("One second of it:", "pmux view --from 1 --to 2"),
        ],
        "diff" => &[
            ("What did a change make slower?", "pmux diff before.data after.data"),
            (
                "The same with five runs of each, so that it is known how much runs differ:",
                "pmux diff before*.data -- after*.data",
            ),
            ("Of one event and one program:", "pmux diff -e page-faults --comm server before.data after.data"),
        ],
        "convert" => &[
            ("For https://profiler.firefox.com:", "pmux convert -f firefox -o profile.json.gz"),
            ("For pprof:", "pmux convert -f pprof -o profile.pb.gz && go tool pprof -top profile.pb.gz"),
            (
                "One second of it for https://ui.perfetto.dev:",
                "pmux convert -f perfetto --from 1 --to 2 -o second.perfetto-trace",
            ),
        ],
        "completions" => &[
            ("For bash:", "pmux completions bash > ~/.local/share/bash-completion/completions/pmux"),
            ("For zsh, in a folder that is in fpath:", "pmux completions zsh > ~/.zfunc/_pmux"),
            ("For fish:", "pmux completions fish > ~/.config/fish/completions/pmux.fish"),
        ],
        "man" => &[
            ("For the current user:", "pmux man ~/.local/share/man/man1"),
            ("For all users:", "pmux man /usr/local/share/man/man1"),
            ("To look at one without installing it:", "pmux man /tmp/pages && man /tmp/pages/pmux-stat.1"),
        ],
        _ => &[
            ("What a command costs:", "pmux stat make"),
            (
                "Page faults and task time of a listing, options of ls included:",
                "pmux stat -e page-faults -e task-clock -- ls -lR /usr/include",
            ),
            ("Each process of a pipeline with its own counts:", "pmux stat --tree -- sh -c 'ls / | wc; sleep 0.1'"),
            ("What the parts of a program cost that it names with pmux::region:", "pmux stat --regions -- ./server"),
            ("Mean and deviation of ten runs:", "pmux stat -r 10 true"),
            ("Every CPU of the machine, every second, for programs:", "pmux stat -a -A -I 1000 -j"),
            ("A running process until Ctrl-C:", "pmux stat -p 1234"),
            (
                "Only what comes between `enable` and `disable`, which are written to the FIFO ctl:",
                "pmux stat -D -1 --control fifo:ctl -- ./server",
            ),
            ("Writes of more than a page:", "pmux stat -e syscalls:sys_enter_write --filter 'count > 4096' -- make"),
        ],
    }
}

/// The command lines of all examples.
#[cfg(test)]
pub(super) fn all_examples() -> Vec<&'static str> {
    let pmux = <super::Pmux as clap::CommandFactory>::command();
    pmux.get_subcommands().flat_map(|command| examples_of(command.get_name())).map(|&(_, line)| line).collect()
}

fn terms(roff: &mut Roff, section: &str, terms: &[(&str, &str)]) {
    roff.control("SH", [section]);
    definitions(roff, terms);
}

fn definitions(roff: &mut Roff, terms: &[(&str, &str)]) {
    for &(term, meaning) in terms {
        roff.control("TP", []).text([bold(term)]).text([roman(meaning)]);
    }
}

fn examples(roff: &mut Roff, examples: Examples) {
    roff.control("SH", ["EXAMPLES"]);
    for &(sentence, line) in examples {
        roff.control("PP", []).text([roman(sentence)]);
        roff.control("PP", []).control("RS", ["4"]);
        roff.control("nf", []).text([roman(line)]).control("fi", []).control("RE", []);
    }
}
