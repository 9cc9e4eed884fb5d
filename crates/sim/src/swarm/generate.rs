//! Statements, one after the other.
//!
//! What it is: a maker of statements that knows what there is by now, so that each makes sense where it stands. A few are
//! meant to fail, and must fail cleanly.
//! Read first: [`Generator::plan`] and [`Generator::settle`]; `open` statements are in `opening`.
//!
//! **Invariant:** a statement costs the same to make however many tasks and events there are. What was planned has happened
//! only when it is settled.

use super::Options;
use super::expected_result::ExpectedResult;
use super::generator_state::{GeneratorState, Key, Opened, transfer};
use super::opening::{address, breakpoint};
use super::rng::Rng;
use super::shape::Shape;
use super::weights::{FaultKind, Op, Weights};
use crate::scenario::ast::{
    AccessKind, Attribute, Comparison, ControlOp, ControlTarget, Exec, Expectation, Expr, Fault, Flag, ForkKind, Name,
    OpenForm, Part, Rate, Relation, Run, Scenario, SourceSpan, Statement, Step, Subject, Target, Window,
};
use crate::scenario::canonical_event;
use pmux_engine::{CpuId, Nanos};

/// A statement, what must come of it, and what there is then.
pub(super) struct Planned {
    pub(super) step: Step,
    pub(super) expected: ExpectedResult,
    effect: Effect,
}

/// What a statement changes, if it succeeds.
pub(super) enum Effect {
    Nothing,
    Task(Name),
    Child { parent: Key, name: Name, kind: ForkKind },
    Exit(Key),
    Opened(Opened),
    Closed(Vec<(Key, Name)>),
    Offline(CpuId),
    Online(CpuId),
}

impl Planned {
    pub(super) fn new(statement: Statement, expected: ExpectedResult, effect: Effect) -> Self {
        let step = Step { fails: expected.foretold(), ..Step::new(statement) };
        Self { step, expected, effect }
    }

    fn plain(statement: Statement) -> Self {
        Self::new(statement, ExpectedResult::Succeeds, Effect::Nothing)
    }
}

pub(super) struct Generator {
    pub(super) rng: Rng,
    pub(super) shape: Shape,
    pub(super) weights: Weights,
    pub(super) state: GeneratorState,
}

/// So often another deed is tried where one can't be done now.
const TRIES: usize = 64;

impl Generator {
    /// A maker for a seed; as far as the options say nothing, by chance.
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::new(seed);
        let shape = Shape::draw(&mut rng, options);
        let weights = Weights::draw(&mut rng, &shape, options.tasks);
        let state = GeneratorState::new(shape.description.cpus);
        Self { rng, shape, weights, state }
    }

    /// The scenario before its first statement that was made up.
    pub(super) const fn start(&self) -> &Scenario {
        &self.shape.start
    }

    /// How much there is: tasks, CPUs, what is open.
    pub(super) fn size(&self) -> u64 {
        (self.state.tasks.len() + self.state.opened.len()) as u64 + u64::from(self.shape.description.cpus)
    }

    pub(super) fn plan(&mut self) -> Planned {
        for _ in 0..TRIES {
            let op = self.weights.op(&mut self.rng);
            if let Some(planned) = self.op(self.instead(op)) {
                return planned;
            }
        }
        self.new_task()
    }

    pub(super) fn settle(&mut self, planned: Planned) {
        let state = &mut self.state;
        match planned.effect {
            Effect::Nothing => {}
            Effect::Task(name) => state.add_task(name),
            Effect::Child { parent, name, kind } => state.add_child(parent, name, kind == ForkKind::Thread),
            Effect::Exit(task) => state.remove_task(task),
            Effect::Opened(opened) => state.add_opened(opened),
            Effect::Closed(closed) => closed.iter().for_each(|(key, name)| state.remove_opened(*key, name)),
            Effect::Offline(cpu) => transfer(&mut state.online, &mut state.offline, cpu),
            Effect::Online(cpu) => transfer(&mut state.offline, &mut state.online, cpu),
        }
    }

    /// Where there is too much of something, it is made less.
    fn instead(&self, op: Op) -> Op {
        use Op::{Close, Exit, Fork, OpenOnCpus, OpenOnTask, OpenOnTaskAndCpu, OpenSet, Task};
        match op {
            Task | Fork if self.state.tasks.len() as u64 >= 2 * self.weights.tasks => Exit,
            Exit if (self.state.tasks.len() as u64) < self.weights.tasks / 2 => Fork,
            OpenOnTask | OpenOnTaskAndCpu | OpenOnCpus | OpenSet
                if self.state.opened.len() as u64 >= 2 * self.weights.opened =>
            {
                Close
            }
            OpenOnCpus | OpenSet if self.state.on_cpus >= 2 * self.weights.on_cpus => OpenOnTask,
            op => op,
        }
    }

    fn op(&mut self, op: Op) -> Option<Planned> {
        Some(match op {
            Op::Task => self.new_task(),
            Op::Fork => return self.fork(),
            Op::Exit => {
                let (key, task) = self.state.tasks.draw(&mut self.rng)?;
                let statement = Statement::Exit { task: task.name.clone() };
                Planned::new(statement, ExpectedResult::Succeeds, Effect::Exit(key))
            }
            Op::Exec => return self.exec(Exec::Plain),
            Op::SetUid => return self.exec(Exec::ChangesRights),
            Op::OpenOnTask | Op::OpenOnTaskAndCpu | Op::OpenOnCpus | Op::OpenSet => return self.open(op),
            Op::Run => return self.run(1),
            Op::RunTogether => {
                let most = self.rng.between(2, 5);
                return self.run(most);
            }
            Op::Migrate => {
                let to = *self.rng.pick_any(&self.state.online)?;
                Planned::plain(Statement::Migrate { task: self.task()?, to })
            }
            Op::Touch => {
                let pages = self.rng.any_size(1, 100) as u32;
                Planned::plain(Statement::Touch { task: self.task()?, pages })
            }
            Op::Access => {
                let kind = *self.rng.pick(&[AccessKind::Read, AccessKind::Write, AccessKind::Execute]);
                let (address, times) = (address(&mut self.rng), self.rng.any_size(1, 20) as u32);
                Planned::plain(Statement::Access { task: self.task()?, address, kind, times })
            }
            Op::Enable => return self.control(ControlOp::Enable),
            Op::Disable => return self.control(ControlOp::Disable),
            Op::Reset => return self.control(ControlOp::Reset),
            Op::Close => return self.control(ControlOp::Close),
            Op::Modify => return self.modify(),
            Op::Take => {
                let (_, opened) = self.state.opened.draw(&mut self.rng).filter(|(_, it)| it.samples.is_some())?;
                let event = self.rng.pick_any(&opened.names)?.clone();
                Planned::plain(Statement::Take { event, samples: None })
            }
            Op::Offline if self.state.online.len() > 1 => {
                let cpu = *self.rng.pick_any(&self.state.online)?;
                Planned::new(Statement::Offline { cpu }, ExpectedResult::Succeeds, Effect::Offline(cpu))
            }
            Op::Offline => return None,
            Op::Online => {
                let cpu = *self.rng.pick_any(&self.state.offline)?;
                Planned::new(Statement::Online { cpu }, ExpectedResult::Succeeds, Effect::Online(cpu))
            }
            Op::Wait => Planned::plain(Statement::Wait { span: self.span(1) }),
            Op::Fault => return self.fault(),
            Op::Heal => Planned::plain(Statement::Fault(Fault::None)),
            Op::Expect => return self.expect(),
            Op::Wrong => return self.wrong(),
        })
    }

    pub(super) fn new_task(&mut self) -> Planned {
        let name = self.state.new_name('t');
        let on = self.rng.pick_any(&self.state.online).copied();
        Planned::new(Statement::Task { name: name.clone(), on }, ExpectedResult::Succeeds, Effect::Task(name))
    }

    /// A task that lives.
    pub(super) fn task(&mut self) -> Option<Name> {
        self.state.tasks.draw(&mut self.rng).map(|(_, task)| task.name.clone())
    }

    fn fork(&mut self) -> Option<Planned> {
        let name = self.state.new_name('t');
        let kind = if self.rng.one_in(4) { ForkKind::Thread } else { ForkKind::Process };
        let (parent, task) = self.state.tasks.draw(&mut self.rng).filter(|(_, task)| self.state.may_fork(task))?;
        let statement = Statement::Fork { parent: task.name.clone(), child: name.clone(), kind };
        Some(Planned::new(statement, ExpectedResult::Succeeds, Effect::Child { parent, name, kind }))
    }

    fn exec(&mut self, kind: Exec) -> Option<Planned> {
        let (_, task) = self.state.tasks.draw(&mut self.rng).filter(|(_, task)| task.can_exec())?;
        Some(Planned::plain(Statement::Exec { task: task.name.clone(), kind }))
    }

    fn run(&mut self, most: u64) -> Option<Planned> {
        let mut tasks: Vec<Name> = Vec::new();
        for _ in 0..most {
            let task = self.task()?;
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
        let on = self.rng.one_in(3).then(|| self.rng.pick_any(&self.state.online).copied()).flatten();
        let span = self.span(tasks.len() as u64);
        let rates = if self.rng.one_in(5) { self.rates() } else { Vec::new() };
        Some(Planned::plain(Statement::Run(Run { tasks, span, on, rates })))
    }

    /// A span of time of any size, which `times` times is not too long.
    fn span(&mut self, times: u64) -> Nanos {
        let longest = (self.shape.longest.0 / times.max(1)).max(1);
        let tick = self.shape.description.tick.0;
        Nanos(match self.rng.below(4) {
            // To the tick.
            0 if tick <= longest => tick * self.rng.between(1, longest / tick),
            0 | 1 => self.rng.between(1, longest),
            _ => self.rng.any_size(1, longest),
        })
    }

    /// What tasks do in a run, other than they do anyway; never so much that counters can't be read in time.
    fn rates(&mut self) -> Vec<Rate> {
        let mut rates: Vec<Rate> = Vec::new();
        for _ in 0..self.rng.between(1, 3) {
            let Some(event) = self.rng.pick_any(&self.weights.events).and_then(|known| canonical_event(known.name))
            else {
                continue;
            };
            let (amount, per) = match self.rng.below(3) {
                0 => (0, 1),
                1 => (self.rng.between(1, 9), 1),
                _ => (self.rng.any_size(1, 9), self.rng.any_size(1, 100_000)),
            };
            // Clocks go by themselves.
            if !event.ends_with("-clock") && rates.iter().all(|rate| rate.event != event) {
                rates.push(Rate { event: event.to_owned(), amount, per: Some(Nanos(per)), place: SourceSpan::NOWHERE });
            }
        }
        rates
    }

    fn control(&mut self, verb: ControlOp) -> Option<Planned> {
        let (mut targets, mut closed): (Vec<ControlTarget>, Vec<(Key, Name)>) = (Vec::new(), Vec::new());
        let mut expected = ExpectedResult::Succeeds;
        for _ in 0..if self.rng.one_in(6) { 2 } else { 1 } {
            let (key, opened) = self.state.opened.draw(&mut self.rng)?;
            if closed.iter().any(|(other, _)| *other == key) {
                continue;
            }
            // Where something else holds the counters, what is always on, or in error, says so at once.
            if verb == ControlOp::Enable && opened.flags.contains(&Flag::Pinned) {
                expected = ExpectedResult::either(&["ENODATA"]);
            }
            let (is_group, is_set) = (opened.form == OpenForm::Group, matches!(opened.target, Target::SystemWide(_)));
            let name = self.rng.pick_any(&opened.names)?.clone();
            // Groups are closed whole.
            let whole = is_group && !is_set && (verb == ControlOp::Close || self.rng.one_in(2));
            let target = if whole { ControlTarget::Group } else { ControlTarget::Event };
            targets.push(target(name.clone()));
            closed.push((key, name));
        }
        let effect = if verb == ControlOp::Close { Effect::Closed(closed) } else { Effect::Nothing };
        Some(Planned::new(Statement::Control { verb, targets }, expected, effect))
    }

    /// A breakpoint becomes another one. Whether a register is left, its task lives, and its children do, the checks know.
    fn modify(&mut self) -> Option<Planned> {
        let (_, opened) = self.state.opened.draw(&mut self.rng)?;
        let event = self.rng.pick_any(opened.changeable())?.clone();
        let mut breakpoint = breakpoint(&mut self.rng);
        let wrong = self.rng.one_in(12);
        if wrong {
            breakpoint.len_bytes = 3;
        }
        let expected = ExpectedResult::either(&["ENOSPC", "EBUSY", "ESRCH", "ENODEV"]);
        let expected = if wrong { ExpectedResult::fails(&["EOPNOTSUPP"]) } else { expected };
        Some(Planned::new(Statement::Modify { event, to: breakpoint }, expected, Effect::Nothing))
    }

    fn fault(&mut self) -> Option<Planned> {
        let fault_kind = *self.rng.pick_any(&self.weights.fault_kinds)?;
        let nth = self.rng.any_size(1, 20) as u32;
        let late = Nanos(self.rng.any_size(100, 200_000));
        Some(Planned::plain(Statement::Fault(match fault_kind {
            FaultKind::Alloc => Fault::Alloc(nth),
            FaultKind::Program => Fault::Program(nth),
            FaultKind::Start => Fault::Start(nth),
            FaultKind::Read => Fault::Read(nth),
            FaultKind::HandOver => Fault::HandOver(nth),
            FaultKind::Held if self.shape.counters == 0 => return None,
            FaultKind::Held => {
                // All counters of one CPU, sooner or later.
                let cpu = if self.rng.one_in(2) { CpuId(0) } else { self.any_cpu() };
                Fault::Held(cpu, self.rng.below(self.shape.counters.into()) as u8)
            }
            FaultKind::InterruptLate => Fault::InterruptLate(late),
            FaultKind::DoorbellLate => Fault::DoorbellLate(late),
            FaultKind::DoorbellTwice => Fault::DoorbellTwice,
            FaultKind::DoorbellSpurious => Fault::DoorbellSpurious(self.any_cpu()),
            FaultKind::Storm => Fault::Storm(self.any_cpu(), self.rng.any_size(1, 200) as u32),
        })))
    }

    /// Where nothing was withheld, every count is the truth.
    fn expect(&mut self) -> Option<Planned> {
        if !self.weights.fault_kinds.is_empty() {
            return None;
        }
        let (_, opened) = self.state.opened.draw(&mut self.rng)?;
        let event = self.rng.pick_any(&opened.names)?.clone();
        let left = Expr::Of(Subject { event, part: Part::Whole }, Attribute::Count);
        let comparison = Comparison { left, relation: Relation::Equal, right: Expr::Truth(Window::Running) };
        Some(Planned::plain(Statement::Expect(Expectation::Compare(comparison))))
    }

    /// Something that must fail, and change nothing.
    fn wrong(&mut self) -> Option<Planned> {
        let (statement, errno) = match self.rng.below(6) {
            0 => (Statement::Online { cpu: *self.rng.pick_any(&self.state.online)? }, "EINVAL"),
            1 => (Statement::Offline { cpu: *self.rng.pick_any(&self.state.offline)? }, "ENODEV"),
            2 => match self.state.online.as_slice() {
                [last] => (Statement::Offline { cpu: *last }, "EBUSY"),
                _ => return None,
            },
            3 => {
                let name = self.rng.pick_any(self.state.closed.make_contiguous())?.clone();
                let verb = *self.rng.pick(&[ControlOp::Enable, ControlOp::Disable, ControlOp::Reset, ControlOp::Close]);
                (Statement::Control { verb, targets: vec![ControlTarget::Event(name)] }, "EBADF")
            }
            _ => return self.open_wrongly(),
        };
        Some(Planned::new(statement, ExpectedResult::fails(&[errno]), Effect::Nothing))
    }
}
