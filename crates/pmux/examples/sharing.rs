//! Many clients ask the same of one program: what each of them is told by the kernel alone, and where they share.
//!
//! `cargo run --release -p pmux --example sharing -- 16 1000 -- ./program arguments…` prints a table; `lab/demo-sharing` runs it
//! on a machine whose counters count the same each time. With `--service SOCKET` as many processes ask `pmux serve` as well.
//! It fails where what is shared is not the whole truth for every client.
//!
//! **Invariant:** the ways differ in the session only: the same events, the same calls, the same program.

use pmux::exact::{ExactGroup, ExactTarget, GroupMode};
use pmux::server_api::shared::client::{Service, SocketPath};
use pmux::server_api::shared::wire::Detail;
use pmux::{Command, Count, Event, Nanos, Session, Sharing};
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, ExitCode, Stdio};
use std::time::Duration;

const EVENT: &str = "instructions:u";
const USAGE: &str = "usage: sharing [--service SOCKET] CLIENTS... -- COMMAND [ARGUMENT]...";
/// How this program starts itself as one of many clients.
const CLIENT: &str = "--client";

/// What clients were told.
struct Received {
    counts: Vec<Count>,
    kernel_events: usize,
}

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, socket, task] = &words[..]
        && first == CLIENT
    {
        return match be_a_client(socket, task) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("sharing: a client: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let socket = match &words[..] {
        [first, socket, ..] if first == "--service" => Some(socket.clone()),
        _ => None,
    };
    words.drain(..if socket.is_some() { 2 } else { 0 });
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
    match show(&clients, &command, socket.as_deref()) {
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
fn show(clients: &[usize], command: &[String], socket: Option<&str>) -> Result<Vec<String>, Box<dyn Error>> {
    // What one alone is told is the truth, if the machine counts the same each time.
    let alone = [ask(Sharing::Off, 1, command)?, ask(Sharing::Off, 1, command)?];
    let truths = alone.each_ref().map(|received| received.counts[0]);
    let truth = truths[0].value;
    let repeats = truths[1].value == truth;
    let mut wrong = Vec::new();
    if truths.iter().any(|count| count.running != count.enabled) {
        wrong.push("one event alone did not run all the time: another program has the counters".to_owned());
    }
    println!("| clients | who counts | kernel events | each ran | each was told | scaled to |");
    println!("|--:|---|--:|--:|--:|--:|");
    row(1, "no other client", &alone[0]);
    for &clients in clients {
        row(clients, "the kernel alone", &ask(Sharing::Off, clients, command)?);
        let received = ask(Sharing::On, clients, command)?;
        row(clients, "pmux, in one process", &received);
        let mut check = |who: &str, received: &Received| {
            let found = judge(received, truth, repeats);
            wrong.extend(found.map(|found| format!("{clients} clients of {who}: {found}")));
        };
        check("pmux in one process", &received);
        if let Some(socket) = socket {
            let received = ask_a_service(socket, clients, command)?;
            row(clients, "pmux serve, a process each", &received);
            check("pmux serve", &received);
        }
    }
    println!();
    println!(
        "truth: {truth} {EVENT}{}",
        if repeats { ", the same in two runs" } else { "; another run counted otherwise, so 1 % is allowed" }
    );
    Ok(wrong)
}

/// What clients who ask for the same event of a command are told.
fn ask(sharing: Sharing, clients: usize, command: &[String]) -> Result<Received, Box<dyn Error>> {
    let session = Session::with_sharing(sharing)?;
    let event = [Event::parse(EVENT)?];
    let held = Command::hold(command)?;
    // What it does until it waits for its release is not the program's.
    while !sleeps(held.pid())? {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = kernel_events()?;
    let place = ExactTarget::Task(held.pid());
    let groups = (0..clients).map(|_| session.open_exactly(&event, place, GroupMode::default()));
    let groups: Vec<ExactGroup> = groups.collect::<Result<_, _>>()?;
    let kernel_events = kernel_events()? - before;
    groups.iter().try_for_each(ExactGroup::enable_all)?;
    let mut running = held.release(&[])?;
    running.wait(&session)?;
    let counts = groups.iter().map(|group| group.read(0)).collect::<Result<_, _>>()?;
    Ok(Received { counts, kernel_events })
}

/// What processes are told that each ask a service for the same event of a command.
fn ask_a_service(socket: &str, clients: usize, command: &[String]) -> Result<Received, Box<dyn Error>> {
    let held = Command::hold(command)?;
    while !sleeps(held.pid())? {
        std::thread::sleep(Duration::from_millis(5));
    }
    let clients: Vec<Child> = (0..clients).map(|_| start_a_client(socket, held.pid())).collect::<Result<_, _>>()?;
    // Those that say that they are ready have begun to count.
    let mut clients: Vec<_> = clients.into_iter().map(Answers::of).collect();
    for client in &mut clients {
        if client.line()? != "ready" {
            return Err("a client was not ready".into());
        }
    }
    let status = Service::connect(SocketPath::Named(socket.into()), Duration::from_secs(60))?.status(Detail::Summary);
    let kernel_events =
        number_of(&status.map_err(|error| format!("{error:?}"))?, "kernel").ok_or("no number of events")?;
    held.release(&[])?.wait(&Session::new()?)?;
    let counts = clients.into_iter().map(Answers::count).collect::<Result<_, _>>()?;
    Ok(Received { counts, kernel_events })
}

fn start_a_client(socket: &str, task: i32) -> std::io::Result<Child> {
    let mut client = std::process::Command::new(std::env::current_exe()?);
    client.args([CLIENT, socket, &task.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// A client, and what it says.
struct Answers(Child, BufReader<ChildStdout>);

impl Answers {
    fn of(mut client: Child) -> Self {
        let answers = client.stdout.take().map(BufReader::new);
        Self(client, answers.unwrap_or_else(|| unreachable!("its output is a pipe")))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.1.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Lets it read what it has counted, and end.
    fn count(mut self) -> Result<Count, Box<dyn Error>> {
        self.0.stdin = None;
        let line = self.line()?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [value, enabled, running] = numbers[..] else { return Err(format!("a client said `{line}`").into()) };
        self.0.wait()?;
        Ok(Count { value, enabled: Nanos(enabled), running: Nanos(running) })
    }
}

/// One of the processes: counts until its input ends, and says what.
fn be_a_client(socket: &str, task: &str) -> Result<(), Box<dyn Error>> {
    let session = Session::with_service_at(socket)?;
    let group =
        session.open_exactly(&[Event::parse(EVENT)?], ExactTarget::Task(task.parse()?), GroupMode::default())?;
    group.enable_all()?;
    if session.kernel_events().0 > session.kernel_events().1 {
        return Err("it has opened an event of its own".into());
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let Count { value, enabled, running } = group.read(0)?;
    println!("{value} {} {}", enabled.0, running.0);
    Ok(())
}

/// A number in a text of JSON.
fn number_of(json: &str, key: &str) -> Option<usize> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
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
fn judge(received: &Received, truth: u64, repeats: bool) -> Option<String> {
    let least = received.counts.iter().map(|count| count.value).min()?;
    let most = received.counts.iter().map(|count| count.value).max()?;
    if received.kernel_events != 1 {
        return Some(format!("{} events of the kernel are open, not one", received.kernel_events));
    }
    if let Some(count) = received.counts.iter().find(|count| count.running != count.enabled || count.running.0 == 0) {
        return Some(format!("one ran {} of {} ns", count.running.0, count.enabled.0));
    }
    if least != most {
        return Some(format!("they were told between {least} and {most}"));
    }
    let is_truth = if repeats { least == truth } else { least.abs_diff(truth) <= truth / 100 };
    (!is_truth).then(|| format!("they were told {least}, and it was {truth}"))
}

fn row(clients: usize, who: &str, received: &Received) {
    let share = |count: &Count| count.running.0 as f64 / count.enabled.0.max(1) as f64;
    let scaled = |count: &Count| (count.running.0 > 0).then(|| (count.value as f64 / share(count)).round() as u64);
    let percent: Vec<u64> = received.counts.iter().map(|count| (1000.0 * share(count)).round() as u64).collect();
    let values: Vec<u64> = received.counts.iter().map(|count| count.value).collect();
    let estimates: Vec<u64> = received.counts.iter().filter_map(scaled).collect();
    let tenths = |percent: u64| format!("{}.{} %", percent / 10, percent % 10);
    println!(
        "| {clients} | {who} | {} | {} | {} | {} |",
        received.kernel_events,
        span(&percent, tenths),
        span(&values, |value| value.to_string()),
        span(&estimates, |value| value.to_string()),
    );
}

/// A number, or from where to where they go.
fn span(numbers: &[u64], text: impl Fn(u64) -> String) -> String {
    let (Some(&least), Some(&most)) = (numbers.iter().min(), numbers.iter().max()) else { return "nothing".to_owned() };
    if least == most { text(least) } else { format!("{} to {}", text(least), text(most)) }
}
