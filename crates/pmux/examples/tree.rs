//! Prints what each process of a command has counted: `cargo run --example tree -- sh -c 'ls / | wc; sleep 0.1'`.

use pmux::{Attribution, Command, Error, EventList, Options, Session, Start, Target};

fn main() -> Result<(), Error> {
    let session = Session::new()?;
    let events = EventList::parse(&["task-clock,page-faults"], session.catalog())?;
    let command = Command::hold(std::env::args_os().skip(1))?;
    let options = Options { start: Start::OnExec, attribution: Attribution::EachProcess, ..Options::default() };
    let mut counters = session.open(&events, &Target::Command(&command), options)?;
    command.release(&[&counters])?.wait(&session)?;
    let Some(tree) = counters.tree()? else { return Ok(()) };
    for process in &tree.processes {
        let counts: Vec<_> = process.counts.iter().map(|count| count.map_or(0, |count| count.value)).collect();
        println!(
            "{:8} {:16} parent {:?} {:?} complete {}",
            process.pid, process.command, process.parent, counts, process.complete
        );
    }
    println!("{:?}", tree.totals);
    println!("{:?} lost {}", tree.unattributed, tree.lost_records);
    Ok(())
}
