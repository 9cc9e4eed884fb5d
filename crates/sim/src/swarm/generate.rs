//! Statements, one after the other.
//!
//! What it is: a maker of statements that knows what there is by now, so that each makes sense where it stands. A few are
//! meant to fail, and must fail cleanly.
//! Read first: [`Generator::plan`] and [`Generator::settle`]; `open` statements are in `opening`.
//!
//! **Invariant:** a statement costs the same to make however many tasks and events there are. What was planned has happened
//! only when it is settled.

use super::Options;
use super::dice::Dice;
use super::mix::{Deed, Mishap, Mix};
use super::opening::{address, breakpoint};
use super::outlook::Outlook;
use super::shape::Shape;
use super::stock::{Key, Opened, Stock};
use crate::scenario::ast::{
    AccessKind, Attribute, Comparison, ControlTarget, ExecKind, Expectation, Expr, Fault, ForkKind, Name, OpenForm,
    Part, Place, Rate, Relation, Run, Scenario, Statement, Step, Subject, Target, Verb, Window,
};
use crate::scenario::canonical_event;
use pmux_engine::{CpuId, Nanos};

/// A statement, what must come of it, and what there is then.
pub(super) struct Planned {
    pub(super) step: Step,
    pub(super) outlook: Outlook,
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
    pub(super) fn new(statement: Statement, outlook: Outlook, effect: Effect) -> Self {
        let step = Step { fails: outlook.foretold(), ..Step::new(statement) };
        Self { step, outlook, effect }
    }

    fn plain(statement: Statement) -> Self {
        Self::new(statement, Outlook::Succeeds, Effect::Nothing)
    }
}

pub(super) struct Generator {
    pub(super) dice: Dice,
    pub(super) shape: Shape,
    pub(super) mix: Mix,
    pub(super) stock: Stock,
}

/// So often another deed is tried where one can't be done now.
const TRIES: usize = 64;

impl Generator {
    /// A maker for a seed; as far as the options say nothing, by chance.
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let mut dice = Dice::new(seed);
        let shape = Shape::draw(&mut dice, options);
        let mix = Mix::draw(&mut dice, &shape, options.tasks);
        let stock = Stock::new(shape.description.cpus);
        Self { dice, shape, mix, stock }
    }

    /// The scenario before its first statement that was made up.
    pub(super) const fn start(&self) -> &Scenario {
        &self.shape.start
    }

    /// How much there is: tasks, CPUs, what is open.
    pub(super) fn size(&self) -> u64 {
        (self.stock.tasks.len() + self.stock.opened.len()) as u64 + u64::from(self.shape.description.cpus)
    }

    /// The next statement of a beginning in which there are to be so many tasks.
    pub(super) fn populate(&mut self) -> Planned {
        self.new_task()
    }

    pub(super) fn plan(&mut self) -> Planned {
        for _ in 0..TRIES {
            let deed = self.mix.deed(&mut self.dice);
            if let Some(planned) = self.deed(self.instead(deed)) {
                return planned;
            }
        }
        self.new_task()
    }

    pub(super) fn settle(&mut self, planned: Planned) {
        let stock = &mut self.stock;
        match planned.effect {
            Effect::Nothing => {}
            Effect::Task(name) => stock.add_task(name),
            Effect::Child { parent, name, kind } => stock.add_child(parent, name, kind == ForkKind::Thread),
            Effect::Exit(task) => stock.remove_task(task),
            Effect::Opened(opened) => stock.add_opened(opened),
            Effect::Closed(closed) => closed.iter().for_each(|(key, name)| stock.remove_opened(*key, name)),
            Effect::Offline(cpu) => stock.take_offline(cpu),
            Effect::Online(cpu) => stock.take_online(cpu),
        }
    }

    /// Where there is too much of something, it is made less.
    fn instead(&self, deed: Deed) -> Deed {
        use Deed::{Close, Exit, Fork, OpenOnCpus, OpenOnTask, OpenOnTaskAndCpu, OpenSet, Task};
        match deed {
            Task | Fork if self.stock.tasks.len() as u64 >= 2 * self.mix.tasks => Exit,
            Exit if (self.stock.tasks.len() as u64) < self.mix.tasks / 2 => Fork,
            OpenOnTask | OpenOnTaskAndCpu | OpenOnCpus | OpenSet
                if self.stock.opened.len() as u64 >= 2 * self.mix.opened =>
            {
                Close
            }
            OpenOnCpus | OpenSet if self.stock.on_cpus >= 2 * self.mix.on_cpus => OpenOnTask,
            deed => deed,
        }
    }

    fn deed(&mut self, deed: Deed) -> Option<Planned> {
        Some(match deed {
            Deed::Task => self.new_task(),
            Deed::Fork => return self.fork(),
            Deed::Exit => {
                let (key, task) = self.stock.tasks.draw(&mut self.dice)?;
                let statement = Statement::Exit { task: task.name.clone() };
                Planned::new(statement, Outlook::Succeeds, Effect::Exit(key))
            }
            Deed::Exec => return self.exec(ExecKind::Plain),
            Deed::SetUid => return self.exec(ExecKind::SetUid),
            Deed::OpenOnTask | Deed::OpenOnTaskAndCpu | Deed::OpenOnCpus | Deed::OpenSet => return self.open(deed),
            Deed::Run => return self.run(1),
            Deed::RunTogether => {
                let most = self.dice.between(2, 5);
                return self.run(most);
            }
            Deed::Migrate => {
                let to = *self.dice.pick_any(&self.stock.online)?;
                Planned::plain(Statement::Migrate { task: self.task()?, to })
            }
            Deed::Touch => {
                let pages = self.dice.any_size(1, 100) as u32;
                Planned::plain(Statement::Touch { task: self.task()?, pages })
            }
            Deed::Access => {
                let kind = *self.dice.pick(&[AccessKind::Read, AccessKind::Write, AccessKind::Execute]);
                let (address, times) = (address(&mut self.dice), self.dice.any_size(1, 20) as u32);
                Planned::plain(Statement::Access { task: self.task()?, address, kind, times })
            }
            Deed::Enable => return self.control(Verb::Enable),
            Deed::Disable => return self.control(Verb::Disable),
            Deed::Reset => return self.control(Verb::Reset),
            Deed::Close => return self.control(Verb::Close),
            Deed::Modify => return self.modify(),
            Deed::Take => {
                let (_, opened) = self.stock.opened.draw(&mut self.dice).filter(|(_, it)| it.samples.is_some())?;
                let event = self.dice.pick_any(&opened.names)?.clone();
                Planned::plain(Statement::Take { event, samples: None })
            }
            Deed::Offline if self.stock.online.len() > 1 => {
                let cpu = *self.dice.pick_any(&self.stock.online)?;
                Planned::new(Statement::Offline { cpu }, Outlook::Succeeds, Effect::Offline(cpu))
            }
            Deed::Offline => return None,
            Deed::Online => {
                let cpu = *self.dice.pick_any(&self.stock.offline)?;
                Planned::new(Statement::Online { cpu }, Outlook::Succeeds, Effect::Online(cpu))
            }
            Deed::Wait => Planned::plain(Statement::Wait { span: self.span(1) }),
            Deed::Fault => return self.fault(),
            Deed::Heal => Planned::plain(Statement::Fault(Fault::None)),
            Deed::Expect => return self.expect(),
            Deed::Wrong => return self.wrong(),
        })
    }

    fn new_task(&mut self) -> Planned {
        let name = self.stock.new_name('t');
        let on = self.dice.pick_any(&self.stock.online).copied();
        Planned::new(Statement::Task { name: name.clone(), on }, Outlook::Succeeds, Effect::Task(name))
    }

    /// A task that lives.
    pub(super) fn task(&mut self) -> Option<Name> {
        self.stock.tasks.draw(&mut self.dice).map(|(_, task)| task.name.clone())
    }

    fn fork(&mut self) -> Option<Planned> {
        let name = self.stock.new_name('t');
        let kind = if self.dice.one_in(4) { ForkKind::Thread } else { ForkKind::Process };
        let (parent, task) = self.stock.tasks.draw(&mut self.dice).filter(|(_, task)| self.stock.may_fork(task))?;
        let statement = Statement::Fork { parent: task.name.clone(), child: name.clone(), kind };
        Some(Planned::new(statement, Outlook::Succeeds, Effect::Child { parent, name, kind }))
    }

    fn exec(&mut self, kind: ExecKind) -> Option<Planned> {
        let (_, task) = self.stock.tasks.draw(&mut self.dice).filter(|(_, task)| task.can_exec())?;
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
        let on = self.dice.one_in(3).then(|| self.dice.pick_any(&self.stock.online).copied()).flatten();
        let span = self.span(tasks.len() as u64);
        let rates = if self.dice.one_in(5) { self.rates() } else { Vec::new() };
        Some(Planned::plain(Statement::Run(Run { tasks, span, on, rates })))
    }

    /// A span of time of any size, which `times` times is not too long.
    fn span(&mut self, times: u64) -> Nanos {
        let longest = (self.shape.longest.0 / times.max(1)).max(1);
        let tick = self.shape.description.tick.0;
        Nanos(match self.dice.below(4) {
            // To the tick.
            0 if tick <= longest => tick * self.dice.between(1, longest / tick),
            0 | 1 => self.dice.between(1, longest),
            _ => self.dice.any_size(1, longest),
        })
    }

    /// What tasks do in a run, other than they do anyway; never so much that counters can't be read in time.
    fn rates(&mut self) -> Vec<Rate> {
        let mut rates: Vec<Rate> = Vec::new();
        for _ in 0..self.dice.between(1, 3) {
            let Some(event) = self.dice.pick_any(&self.mix.events).and_then(|known| canonical_event(known.name)) else {
                continue;
            };
            let (amount, per) = match self.dice.below(3) {
                0 => (0, 1),
                1 => (self.dice.between(1, 9), 1),
                _ => (self.dice.any_size(1, 9), self.dice.any_size(1, 100_000)),
            };
            // Clocks go by themselves.
            if !event.ends_with("-clock") && rates.iter().all(|rate| rate.event != event) {
                rates.push(Rate { event: event.to_owned(), amount, per: Some(Nanos(per)), place: Place::NOWHERE });
            }
        }
        rates
    }

    fn control(&mut self, verb: Verb) -> Option<Planned> {
        let (mut targets, mut closed): (Vec<ControlTarget>, Vec<(Key, Name)>) = (Vec::new(), Vec::new());
        let mut outlook = Outlook::Succeeds;
        for _ in 0..if self.dice.one_in(6) { 2 } else { 1 } {
            let (key, opened) = self.stock.opened.draw(&mut self.dice)?;
            if closed.iter().any(|(other, _)| *other == key) {
                continue;
            }
            if verb == Verb::Enable && opened.may_stay_off() {
                outlook = Outlook::either(&["ENODATA"]);
            }
            let (is_group, is_set) = (opened.form == OpenForm::Group, matches!(opened.target, Target::SystemWide(_)));
            let name = self.dice.pick_any(&opened.names)?.clone();
            // Groups are closed whole.
            let whole = is_group && !is_set && (verb == Verb::Close || self.dice.one_in(2));
            let target = if whole { ControlTarget::Group } else { ControlTarget::Event };
            targets.push(target(name.clone()));
            closed.push((key, name));
        }
        let effect = if verb == Verb::Close { Effect::Closed(closed) } else { Effect::Nothing };
        Some(Planned::new(Statement::Control { verb, targets }, outlook, effect))
    }

    /// A breakpoint becomes another one. Whether a register is left, its task lives, and its children do, the checks know.
    fn modify(&mut self) -> Option<Planned> {
        let (_, opened) = self.stock.opened.draw(&mut self.dice)?;
        let event = self.dice.pick_any(opened.changeable())?.clone();
        let mut breakpoint = breakpoint(&mut self.dice);
        let wrong = self.dice.one_in(12);
        if wrong {
            breakpoint.len_bytes = 3;
        }
        let outlook = Outlook::either(&["ENOSPC", "EBUSY", "ESRCH", "ENODEV"]);
        let outlook = if wrong { Outlook::fails(&["EOPNOTSUPP"]) } else { outlook };
        Some(Planned::new(Statement::Modify { event, to: breakpoint }, outlook, Effect::Nothing))
    }

    fn fault(&mut self) -> Option<Planned> {
        let mishap = *self.dice.pick_any(&self.mix.mishaps)?;
        let nth = self.dice.any_size(1, 20) as u32;
        let late = Nanos(self.dice.any_size(100, 200_000));
        Some(Planned::plain(Statement::Fault(match mishap {
            Mishap::Alloc => Fault::Alloc(nth),
            Mishap::Program => Fault::Program(nth),
            Mishap::Start => Fault::Start(nth),
            Mishap::Read => Fault::Read(nth),
            Mishap::HandOver => Fault::HandOver(nth),
            Mishap::Held if self.shape.counters == 0 => return None,
            Mishap::Held => {
                // All counters of one CPU, sooner or later.
                let cpu = if self.dice.one_in(2) { CpuId(0) } else { self.any_cpu() };
                Fault::Held(cpu, self.dice.below(self.shape.counters.into()) as u8)
            }
            Mishap::InterruptLate => Fault::InterruptLate(late),
            Mishap::DoorbellLate => Fault::DoorbellLate(late),
            Mishap::DoorbellTwice => Fault::DoorbellTwice,
            Mishap::DoorbellSpurious => Fault::DoorbellSpurious(self.any_cpu()),
            Mishap::Storm => Fault::Storm(self.any_cpu(), self.dice.any_size(1, 200) as u32),
        })))
    }

    /// Where nothing was withheld, every count is the truth.
    fn expect(&mut self) -> Option<Planned> {
        if !self.mix.mishaps.is_empty() {
            return None;
        }
        let (_, opened) = self.stock.opened.draw(&mut self.dice)?;
        let event = self.dice.pick_any(&opened.names)?.clone();
        let left = Expr::Of(Subject { event, part: Part::Whole }, Attribute::Count);
        let comparison = Comparison { left, relation: Relation::Equal, right: Expr::Truth(Window::Running) };
        Some(Planned::plain(Statement::Expect(Expectation::Compare(comparison))))
    }

    /// Something that must fail, and change nothing.
    fn wrong(&mut self) -> Option<Planned> {
        let (statement, errno) = match self.dice.below(6) {
            0 => (Statement::Online { cpu: *self.dice.pick_any(&self.stock.online)? }, "EINVAL"),
            1 => (Statement::Offline { cpu: *self.dice.pick_any(&self.stock.offline)? }, "ENODEV"),
            2 => match self.stock.online.as_slice() {
                [last] => (Statement::Offline { cpu: *last }, "EBUSY"),
                _ => return None,
            },
            3 => {
                let name = self.dice.pick_any(self.stock.closed.make_contiguous())?.clone();
                let verb = *self.dice.pick(&[Verb::Enable, Verb::Disable, Verb::Reset, Verb::Close]);
                (Statement::Control { verb, targets: vec![ControlTarget::Event(name)] }, "EBADF")
            }
            _ => return self.open_wrongly(),
        };
        Some(Planned::new(statement, Outlook::fails(&[errno]), Effect::Nothing))
    }
}
