//! What is a little simpler than a head or a statement.
//!
//! What it is: for each index one thing less, until there is nothing left to take away.
//!
//! **Invariant:** each is strictly smaller than what it came from, so that trying them comes to an end; only the one that is
//! asked for is made.

use super::super::ast::{
    Change, ControlTarget, CpuList, ExecKind, Expectation, ForkKind, Header, Machine, Open, OpenForm, Run, Statement,
    Step, Target, Whose,
};

/// Counts through what could be taken away, to the one that is asked for.
struct Pick(usize);

impl Pick {
    /// Which of so many it is; `None` if it is behind them.
    fn of(&mut self, many: usize) -> Option<usize> {
        if self.0 < many {
            return Some(self.0);
        }
        self.0 -= many;
        None
    }

    /// Whether it is this one, which is there or not.
    fn is(&mut self, there: bool) -> bool {
        self.of(usize::from(there)).is_some()
    }

    /// The list without one of its elements.
    fn without_one<T: Clone>(&mut self, list: &[T]) -> Option<Vec<T>> {
        let gone = self.of(list.len())?;
        let mut rest = list.to_vec();
        rest.remove(gone);
        Some(rest)
    }

    /// As [`Pick::without_one`], where one must stay.
    fn without_one_of_several<T: Clone>(&mut self, list: &[T]) -> Option<Vec<T>> {
        if list.len() > 1 { self.without_one(list) } else { None }
    }

    fn fewer_cpus(&mut self, cpus: &CpuList) -> Option<CpuList> {
        self.without_one_of_several(cpus.as_slice()).and_then(CpuList::new)
    }
}

/// The head with one thing less; `None` behind the last one.
pub(super) fn header(header: &Header, index: usize) -> Option<Header> {
    let mut pick = Pick(index);
    if let Some(requires) = pick.without_one(&header.requires) {
        return Some(Header { requires, ..header.clone() });
    }
    machine(&header.machine, &mut pick).map(|machine| Header { machine, ..header.clone() })
}

fn machine(machine: &Machine, pick: &mut Pick) -> Option<Machine> {
    let mut less = machine.clone();
    if pick.is(machine.profile.is_some()) {
        less.profile = None;
    } else if pick.is(machine.overflow.is_some()) {
        less.overflow = None;
    } else if pick.is(machine.callers.is_some()) {
        less.callers = None;
    } else if pick.is(machine.sharing.is_some()) {
        less.sharing = None;
    } else if pick.is(machine.breakpoints.is_some()) {
        less.breakpoints = None;
    } else if pick.is(machine.tick.is_some()) {
        less.tick = None;
    } else if pick.is(machine.seed.is_some()) {
        less.seed = None;
    } else if pick.is(machine.width_bits.is_some()) {
        less.width_bits = None;
    } else if pick.is(machine.counters.is_some()) {
        less.counters = None;
    } else if pick.is(machine.cpus.is_some()) {
        less.cpus = None;
    } else if let Some(fixed) = pick.without_one(&machine.fixed) {
        less.fixed = fixed;
    } else {
        less.constrained = pick.without_one(&machine.constrained)?;
    }
    Some(less)
}

/// The statement with one thing less; `None` behind the last one.
pub(super) fn step(step: &Step, index: usize) -> Option<Step> {
    let statement = statement(&step.statement, &mut Pick(index))?;
    Some(Step { statement, ..step.clone() })
}

fn statement(statement: &Statement, pick: &mut Pick) -> Option<Statement> {
    match statement {
        Statement::Task { name, on } => pick.is(on.is_some()).then(|| Statement::Task { name: name.clone(), on: None }),
        Statement::Open(opened) => open(opened, pick).map(Statement::Open),
        Statement::Run(running) => run(running, pick).map(Statement::Run),
        Statement::Fork { parent, child, kind } => pick.is(*kind == ForkKind::Thread).then(|| Statement::Fork {
            parent: parent.clone(),
            child: child.clone(),
            kind: ForkKind::Process,
        }),
        Statement::Exec { task, kind } => {
            pick.is(*kind == ExecKind::SetUid).then(|| Statement::Exec { task: task.clone(), kind: ExecKind::Plain })
        }
        Statement::Control { verb, targets } => {
            let targets = pick.without_one_of_several(targets).or_else(|| one_event(targets, pick))?;
            Some(Statement::Control { verb: *verb, targets })
        }
        Statement::Modify { event, to: Change::Cpus(Some(cpus)) } => {
            let cpus = match pick.fewer_cpus(cpus) {
                None if !pick.is(true) => return None,
                fewer => fewer,
            };
            Some(Statement::Modify { event: event.clone(), to: Change::Cpus(cpus) })
        }
        Statement::Expect(Expectation::State(expected)) => {
            let mut expected = expected.clone();
            expected.states = pick.without_one_of_several(&expected.states)?;
            Some(Statement::Expect(Expectation::State(expected)))
        }
        _ => None,
    }
}

/// One of the groups as its event only.
fn one_event(targets: &[ControlTarget], pick: &mut Pick) -> Option<Vec<ControlTarget>> {
    let is_group = |target: &&mut ControlTarget| matches!(target, ControlTarget::Group(_));
    let groups = targets.iter().filter(|target| matches!(target, ControlTarget::Group(_))).count();
    let which = pick.of(groups)?;
    let mut targets = targets.to_vec();
    let target = targets.iter_mut().filter(is_group).nth(which)?;
    *target = ControlTarget::Event(target.name().clone());
    Some(targets)
}

fn open(open: &Open, pick: &mut Pick) -> Option<Open> {
    let mut less = open.clone();
    if let Some(events) = pick.without_one_of_several(&open.events) {
        less.events = events;
        return Some(less);
    }
    if pick.is(open.form == OpenForm::Group && open.events.len() == 1) {
        less.form = OpenForm::Singles;
        return Some(less);
    }
    if let Some(flag) = pick.of(open.flags.iter().count()).and_then(|index| open.flags.iter().nth(index)) {
        less.flags.unset(flag);
        return Some(less);
    }
    if pick.is(open.samples.is_some()) {
        less.samples = None;
        return Some(less);
    }
    if let Some(samples) = less.samples.as_mut().filter(|samples| samples.whose == Whose::Shared)
        && pick.is(true)
    {
        samples.whose = Whose::Own;
        return Some(less);
    }
    less.target = match &open.target {
        Target::TaskOnCpu(task, _) if pick.is(true) => Target::Task(task.clone()),
        Target::Cpus(cpus) => Target::Cpus(pick.fewer_cpus(cpus)?),
        Target::SystemWide(Some(cpus)) => match pick.fewer_cpus(cpus) {
            Some(cpus) => Target::SystemWide(Some(cpus)),
            // To say nothing of CPUs is shorter.
            None if pick.is(true) => Target::SystemWide(None),
            None => return None,
        },
        _ => return None,
    };
    Some(less)
}

fn run(run: &Run, pick: &mut Pick) -> Option<Run> {
    let mut less = run.clone();
    if let Some(tasks) = pick.without_one_of_several(&run.tasks) {
        less.tasks = tasks;
    } else if pick.is(run.on.is_some()) {
        less.on = None;
    } else {
        less.rates = pick.without_one(&run.rates)?;
    }
    Some(less)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::read;
    use super::*;

    /// Everything that is one thing less.
    fn all(text: &str) -> Vec<String> {
        let scenario = read(text);
        let Some(whole) = scenario.steps.first() else { panic!("no statement") };
        (0..).map_while(|index| step(whole, index)).map(|step| step.to_string()).collect()
    }

    #[test]
    fn each_is_one_thing_less() {
        assert_eq!(
            all("open {a, b} = {cycles, dummy} on A cpu1 inherit pinned"),
            [
                "open {b} = {dummy} on A cpu1 inherit pinned",
                "open {a} = {cycles} on A cpu1 inherit pinned",
                "open {a, b} = {cycles, dummy} on A cpu1 pinned",
                "open {a, b} = {cycles, dummy} on A cpu1 inherit",
                "open {a, b} = {cycles, dummy} on A inherit pinned",
            ]
        );
        assert_eq!(
            all("open {a} = {dummy} system-wide cpus 0-1"),
            [
                "open a = dummy system-wide cpus 0-1",
                "open {a} = {dummy} system-wide cpus 1",
                "open {a} = {dummy} system-wide cpus 0",
                "open {a} = {dummy} system-wide",
            ]
        );
        assert_eq!(
            all("run A, B 1ms on cpu1 rate cycles=1"),
            [
                "run B 1ms on cpu1 rate cycles=1",
                "run A 1ms on cpu1 rate cycles=1",
                "run A, B 1ms rate cycles=1",
                "run A, B 1ms on cpu1",
            ]
        );
        assert_eq!(
            all("modify s to cpus 0-1"),
            ["modify s to cpus 1", "modify s to cpus 0", "modify s to system-wide"]
        );
        assert_eq!(all("enable a, {b}"), ["enable {b}", "enable a", "enable a, b"]);
        assert_eq!(all("expect a.state == off|dead"), ["expect a.state == dead", "expect a.state == off"]);
        assert_eq!(all("exit A"), [""; 0]);
    }
}
