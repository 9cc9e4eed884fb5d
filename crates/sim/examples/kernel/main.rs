//! Scenario files in the small kernel of `kernel/`: each is run on the simulator and there, and what both count is compared.
//!
//! What it is: the command behind `kernel/run FILE...`. Statement by statement, a file becomes lines for the kernel ([`Translation`]), and
//! is run on the simulator; then the kernel does all lines in one go, and each `expect` is judged by what it has answered ([`Seen`]).
//!
//! **Invariant:** what an expectation means is decided by [`pmux_sim::scenario::eval`], as everywhere. What a count of page faults or accesses
//! must be, the simulator says.

mod translation;

use pmux_engine::{Count, EventState, Nanos};
use pmux_sim::scenario::ast::{AccessKind, ForkKind, Name, Requirement, Scenario, Statement, Step, Subject, Window};
use pmux_sim::scenario::eval::{Gap, Observe, evaluate};
use pmux_sim::scenario::run::{Execution, RunOptions};
use pmux_sim::scenario::{Bearing, check, files, needs, parse, render};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use translation::{Asked, Looks, Translation};

/// What the machine has: `kernel/src/arch`.
const CPUS: u32 = 4;
const WATCHPOINTS: u32 = 4;
const COUNTERS: u32 = 6;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(at) = words.iter().position(|word| word == "--").filter(|&at| at > 0 && at + 1 < words.len()) else {
        eprintln!("kernel: usage: kernel/run FILE...");
        return ExitCode::from(125);
    };
    let (files, command) = (&words[..at], &words[at + 1..]);
    match all(files, command) {
        Ok(tally) => {
            println!(
                "{} passed, {} failed, {} skipped; {} counts are the simulator's, {} differ",
                tally.passed, tally.failed, tally.skipped, tally.same, tally.different
            );
            ExitCode::from(u8::from(tally.failed > 0))
        }
        Err(why) => {
            eprintln!("kernel: {why}");
            ExitCode::from(125)
        }
    }
}

#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
    same: u32,
    different: u32,
}

/// A file that was understood.
struct Job {
    name: String,
    scenario: Scenario,
}

fn all(files: &[String], command: &[String]) -> Result<Tally, String> {
    let (mut tally, mut jobs) = (Tally::default(), Vec::new());
    let named: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    for file in files::find(&named)? {
        let name = file.display().to_string();
        let text = files::read(&file)?;
        let scenario = parse(&text).map_err(|problems| render(&name, &text, &problems))?;
        let problems = check(&scenario);
        let fatal: Vec<_> = problems.into_iter().filter(|problem| problem.bearing == Bearing::Everywhere).collect();
        if !fatal.is_empty() {
            return Err(render(&name, &text, &fatal));
        }
        match lack(&scenario) {
            Some(why) => {
                println!("skipped {name}: {why}");
                tally.skipped += 1;
            }
            None => jobs.push(Job { name, scenario }),
        }
    }
    for sharing in [false, true] {
        let shares = |job: &&Job| job.scenario.header.machine.sharing.unwrap_or_default() == pmux_engine::Sharing::On;
        let jobs: Vec<&Job> = jobs.iter().filter(|job| shares(job) == sharing).collect();
        if jobs.is_empty() {
            continue;
        }
        let mut kernel = Kernel::boot(command, sharing)?;
        for job in jobs {
            match run(job, &mut kernel) {
                Ok(Report { failures, same, different }) => {
                    (tally.same, tally.different) = (tally.same + same, tally.different + different);
                    let passed = failures.is_empty();
                    *(if passed { &mut tally.passed } else { &mut tally.failed }) += 1;
                    println!("{} {}: {same} counts", if passed { "passed " } else { "FAILED " }, job.name);
                    failures.iter().for_each(|failure| println!("  {}:{failure}", job.name));
                }
                Err(why) => return Err(format!("{}: {why}", job.name)),
            }
        }
        kernel.quit()?;
    }
    Ok(tally)
}

/// What a scenario needs that the kernel has not.
fn lack(scenario: &Scenario) -> Option<String> {
    if let Some(only) = &scenario.header.sim_only {
        return Some(format!("sim only: {}", only.reason));
    }
    let unmet = needs(scenario).iter().find_map(|requirement| match requirement {
        Requirement::Cpus(cpus) if cpus > CPUS => Some(format!("it needs {cpus} CPUs, and here are {CPUS}")),
        Requirement::BreakpointSlots(slots) if slots != WATCHPOINTS => {
            Some(format!("it needs {slots} debug registers, and here are {WATCHPOINTS}"))
        }
        Requirement::Counters(counters) if counters != COUNTERS => {
            Some(format!("it needs {counters} counters, and here are {COUNTERS}"))
        }
        Requirement::Kernel => Some("it shows nothing on the simulator".to_owned()),
        _ => None,
    });
    unmet.or_else(|| scenario.steps.iter().find_map(|step| lack_of(&step.statement)))
}

fn lack_of(statement: &Statement) -> Option<String> {
    let why = match statement {
        Statement::Take { .. } | Statement::Fault(_) => "that is for the simulator",
        Statement::Fork { kind: ForkKind::Thread, .. } => "the kernel has no threads",
        Statement::Access { kind: AccessKind::Execute, .. } => "the kernel has watchpoints for data only",
        _ => return None,
    };
    Some(why.to_owned())
}

/// QEMU, with the kernel in it.
struct Kernel {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Kernel {
    fn boot(command: &[String], sharing: bool) -> Result<Self, String> {
        let mut start = Command::new(&command[0]);
        start.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = start.spawn().map_err(|error| format!("{}: {error}", command[0]))?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("QEMU has no pipes")?;
        let mut kernel = Self { child, input, output: BufReader::new(output) };
        kernel.send(&[format!("sharing {}", if sharing { "on" } else { "off" })])?;
        kernel.answers(1)?;
        Ok(kernel)
    }

    fn send(&mut self, lines: &[String]) -> Result<(), String> {
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        self.input.write_all(text.as_bytes()).map_err(|error| format!("the kernel takes nothing more: {error}"))
    }

    /// So many answers.
    fn answers(&mut self, count: usize) -> Result<Vec<String>, String> {
        let (mut answers, mut others) = (Vec::new(), String::new());
        while answers.len() < count {
            let mut line = String::new();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => {
                    return Err(format!("the kernel has ended after {} of {count} answers:\n{others}", answers.len()));
                }
                Ok(_) => {}
            }
            match line.trim_end().strip_prefix("= ") {
                Some(answer) => answers.push(answer.to_owned()),
                None => others.push_str(&line),
            }
        }
        Ok(answers)
    }

    fn quit(mut self) -> Result<(), String> {
        self.send(&["quit".to_owned()])?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the kernel ends with {status}")) }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Report {
    failures: Vec<String>,
    same: u32,
    different: u32,
}

fn run(job: &Job, kernel: &mut Kernel) -> Result<Report, String> {
    let mut simulated = Execution::new(&job.scenario, &RunOptions::default()).map_err(|unusable| unusable.message)?;
    let mut translation = Translation::default();
    let mut done = Vec::new();
    for step in &job.scenario.steps {
        let first = translation.lines.len();
        let asked = match &step.statement {
            Statement::Expect(expectation) => Some(translation.ask(expectation, &simulated)?),
            statement => {
                translation.statement(statement, &simulated)?;
                // Triggers, and what is due, are looked at behind each statement.
                translation.lines.push("look".to_owned());
                None
            }
        };
        if let Err(failure) = simulated.statement(step)
            && failure.ends_the_run()
        {
            return Err(format!("on the simulator: {failure}"));
        }
        if step.fails.is_some() {
            translation.forget(&step.statement);
        }
        done.push((step, first..translation.lines.len(), asked));
    }
    let mut lines = translation.lines.clone();
    lines.push("end".to_owned());
    kernel.send(&lines)?;
    let answers = kernel.answers(lines.len())?;
    let mut report = Report::default();
    for (step, range, asked) in done {
        let place = step.place;
        let failed = |why: String| format!("{}:{}: {step}\n    {why}", place.line, place.column);
        match asked {
            Some(asked) => judge(step, &asked, &answers, &mut report, failed),
            None => {
                let answer = answers[range].iter().find(|answer| *answer != "ok").map_or("ok", String::as_str);
                let expected = step.fails.map_or("ok".to_owned(), |fails| format!("errno {}", fails.number()));
                if answer != expected {
                    report.failures.push(failed(format!("expected {expected}, but it is {answer}")));
                    // What follows would fail because of it.
                    return Ok(report);
                }
            }
        }
    }
    if let Some(left) = answers.last().filter(|answer| *answer != "ok") {
        report.failures.push(format!(" at the end: {left}"));
    }
    Ok(report)
}

fn judge(step: &Step, asked: &Asked, answers: &[String], report: &mut Report, failed: impl Fn(String) -> String) {
    let Statement::Expect(expectation) = &step.statement else { return };
    let mut seen = Seen { asked, answers };
    if let Err(unmet) = evaluate(expectation, &mut seen) {
        report.failures.push(failed(unmet));
    }
    for (subject, simulated) in &asked.simulated {
        match (simulated, seen.count(subject)) {
            (Ok(simulated), Ok(count)) if simulated.value == count.value => report.same += 1,
            (Err(_), Err(_)) => {}
            (simulated, count) => {
                report.different += 1;
                let value = |count: &Result<Count, String>| match count {
                    Ok(count) => count.value.to_string(),
                    Err(why) => why.clone(),
                };
                let (simulated, count) = (value(simulated), value(&count));
                report.failures.push(failed(format!("{subject}: the simulator says {simulated}, the kernel {count}")));
            }
        }
    }
}

/// What the kernel has answered.
struct Seen<'a> {
    asked: &'a Asked,
    answers: &'a [String],
}

impl Seen<'_> {
    /// The answers that are for a subject.
    fn of(&self, subject: &Subject, which: fn(&Looks) -> &Vec<usize>) -> Result<Vec<&str>, String> {
        let looks = self.asked.seen.get(subject).ok_or_else(|| format!("{subject} was not asked for"))?;
        Ok(which(looks).iter().map(|&at| self.answers[at].as_str()).collect())
    }

    fn numbers(answer: &str) -> Result<Vec<u64>, String> {
        answer.split(' ').map(|word| word.parse().map_err(|_| answer.to_owned())).collect()
    }
}

impl Observe for Seen<'_> {
    fn count(&mut self, subject: &Subject) -> Result<Count, String> {
        let mut sum = Count::default();
        for answer in self.of(subject, |looks| &looks.count)? {
            let [value, enabled, running] = Self::numbers(answer)?[..] else { return Err(answer.to_owned()) };
            sum += Count { value, enabled: Nanos(enabled), running: Nanos(running) };
        }
        Ok(sum)
    }

    fn states(&mut self, subject: &Subject) -> Result<Vec<EventState>, String> {
        use EventState::{Active, Dead, Error, Inactive, Off};
        let answers = self.of(subject, |looks| &looks.states)?.join(" ");
        let all = [Off, Inactive, Active, Error, Dead];
        let state = |word: &str| all.into_iter().find(|state| format!("{state:?}") == word);
        answers.split_whitespace().map(|word| state(word).ok_or_else(|| answers.clone())).collect()
    }

    fn truth(&mut self, subject: &Subject, window: Window) -> Result<u64, String> {
        if self.asked.by_time.contains(subject) {
            // An instruction takes 1 ns: `-icount shift=0`. A program that is to run for a time may run for longer, until the next tick at most:
            // QEMU lets the time of the machine go on while no instruction of it is executed.
            let count = self.count(subject)?;
            return Ok(if window == Window::Running { count.running.0 } else { count.enabled.0 });
        }
        let truth = self.asked.truths.get(&(subject.clone(), window)).cloned();
        truth.unwrap_or_else(|| Err(format!("the truth of {subject} was not asked for")))
    }

    fn gap(&mut self, subject: &Subject) -> Result<Gap, String> {
        let mut sum = Gap::default();
        for answer in self.of(subject, |looks| &looks.gap)? {
            let [missed, times] = Self::numbers(answer)?[..] else { return Err(answer.to_owned()) };
            sum = Gap { missed: sum.missed + Nanos(missed), times: sum.times + times };
        }
        Ok(sum)
    }

    fn lost(&mut self, _: Option<&Subject>) -> Result<u64, String> {
        Err("nothing is sampled".to_owned())
    }

    fn fired(&mut self, trigger: &Name) -> Result<u64, String> {
        let asked = self.asked.fired.get(&trigger.text).ok_or_else(|| format!("{trigger} was not asked for"))?;
        let answer = &self.answers[*asked];
        answer.parse().map_err(|_| answer.clone())
    }
}
