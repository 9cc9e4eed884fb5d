//! Many clients ask the same of one program: what each of them is told by the kernel alone, and where they share.
//!
//! `cargo run --release -p pmux --example sharing -- 16 1000 -- ./program arguments…` prints a table; `lab/demo-sharing` runs it
//! on a machine whose counters count the same each time. It fails where what is shared is not the whole truth for everybody.
//!
//! **Invariant:** the two ways differ in the session only: the same events, the same calls, the same program.

use pmux::exact::{ExactGroup, Manner, Place};
use pmux::{Command, Count, Event, Session, Sharing};
use std::error::Error;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

const EVENT: &str = "instructions:u";
const USAGE: &str = "usage: sharing CLIENTS... -- COMMAND [ARGUMENT]...";

/// What clients were told.
struct Told {
    counts: Vec<Count>,
    kernel_events: usize,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let Some(at) = words.iter().position(|word| word == "--").filter(|&at| at + 1 < words.len()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let command = words.split_off(at + 1);
    let clients: Result<Vec<usize>, _> = words[..at].iter().map(|word| word.parse()).collect();
    let Ok(clients) = clients else {
        eprintln!("sharing: the numbers of clients must be whole numbers; {USAGE}");
        return ExitCode::from(2);
    };
    match show(&clients, &command) {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            wrong.iter().for_each(|wrong| eprintln!("WRONG: {wrong}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("sharing: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the table; what is wrong with it.
fn show(clients: &[usize], command: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    // What one alone is told is the truth, if the machine counts the same each time.
    let alone = [ask(Sharing::Off, 1, command)?, ask(Sharing::Off, 1, command)?];
    let truths = alone.each_ref().map(|told| told.counts[0]);
    let truth = truths[0].value;
    let repeats = truths[1].value == truth;
    let mut wrong = Vec::new();
    if truths.iter().any(|count| count.running != count.enabled) {
        wrong.push("one event alone did not run all the time: somebody else has the counters".to_owned());
    }
    println!("| clients | who counts | kernel events | each ran | each was told | scaled to |");
    println!("|--:|---|--:|--:|--:|--:|");
    row(1, "nobody else asks", &alone[0]);
    for &clients in clients {
        row(clients, "the kernel alone", &ask(Sharing::Off, clients, command)?);
        let told = ask(Sharing::On, clients, command)?;
        row(clients, "pmux", &told);
        wrong.extend(
            judge(&told, truth, repeats).into_iter().map(|wrong| format!("{clients} clients of pmux: {wrong}")),
        );
    }
    println!();
    println!(
        "truth: {truth} {EVENT}{}",
        if repeats { ", the same in two runs" } else { "; another run counted otherwise, so 1 % is allowed" }
    );
    Ok(wrong)
}

/// What clients who ask for the same event of a command are told.
fn ask(sharing: Sharing, clients: usize, command: &[String]) -> Result<Told, Box<dyn Error>> {
    let session = Session::with_sharing(sharing)?;
    let event = [Event::parse(EVENT)?];
    let held = Command::hold(command)?;
    // What it does until it waits for its release is not the program's.
    while !sleeps(held.pid())? {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = kernel_events()?;
    let place = Place::Task(held.pid());
    let groups = (0..clients).map(|_| session.open_exactly(&event, place, Manner::default()));
    let groups: Vec<ExactGroup> = groups.collect::<Result<_, _>>()?;
    let kernel_events = kernel_events()? - before;
    groups.iter().try_for_each(ExactGroup::enable_all)?;
    let mut running = held.release(&[])?;
    running.wait(&session)?;
    let counts = groups.iter().map(|group| group.read(0)).collect::<Result<_, _>>()?;
    Ok(Told { counts, kernel_events })
}

/// Whether a process waits for something.
fn sleeps(pid: i32) -> std::io::Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The state stands behind the name, which ends with the last bracket.
    Ok(stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S')))
}

/// How many events of the kernel this process holds.
fn kernel_events() -> std::io::Result<usize> {
    let links = std::fs::read_dir("/proc/self/fd")?.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    Ok(links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count())
}

/// What is wrong with what clients were told who share.
fn judge(told: &Told, truth: u64, repeats: bool) -> Option<String> {
    let least = told.counts.iter().map(|count| count.value).min()?;
    let most = told.counts.iter().map(|count| count.value).max()?;
    if told.kernel_events != 1 {
        return Some(format!("{} events of the kernel are open, not one", told.kernel_events));
    }
    if let Some(count) = told.counts.iter().find(|count| count.running != count.enabled || count.running.0 == 0) {
        return Some(format!("one ran {} of {} ns", count.running.0, count.enabled.0));
    }
    if least != most {
        return Some(format!("they were told between {least} and {most}"));
    }
    let is_truth = if repeats { least == truth } else { least.abs_diff(truth) <= truth / 100 };
    (!is_truth).then(|| format!("they were told {least}, and it was {truth}"))
}

fn row(clients: usize, who: &str, told: &Told) {
    let share = |count: &Count| count.running.0 as f64 / count.enabled.0.max(1) as f64;
    let scaled = |count: &Count| (count.running.0 > 0).then(|| (count.value as f64 / share(count)).round() as u64);
    let percent: Vec<u64> = told.counts.iter().map(|count| (1000.0 * share(count)).round() as u64).collect();
    let values: Vec<u64> = told.counts.iter().map(|count| count.value).collect();
    let estimates: Vec<u64> = told.counts.iter().filter_map(scaled).collect();
    let tenths = |percent: u64| format!("{}.{} %", percent / 10, percent % 10);
    println!(
        "| {clients} | {who} | {} | {} | {} | {} |",
        told.kernel_events,
        span(&percent, tenths),
        span(&values, |value| value.to_string()),
        span(&estimates, |value| value.to_string()),
    );
}

/// A number, or from where to where they go.
fn span(numbers: &[u64], text: impl Fn(u64) -> String) -> String {
    let (Some(&least), Some(&most)) = (numbers.iter().min(), numbers.iter().max()) else { return "nothing".to_owned() };
    let range: RangeInclusive<u64> = least..=most;
    if range.start() == range.end() { text(least) } else { format!("{} to {}", text(least), text(most)) }
}
