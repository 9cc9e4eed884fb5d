//! Sequences, carried out by several parties side by side.
//!
//! What it is: [`random`] draws a sequence from a seed while it is carried out; the same seed makes the same one again.
//!
//! **Invariant:** the parties of a sequence begin with nothing, and give back everything at its end.

use super::draw::Draw;
use super::party::{Answer, Party};
use super::step::{ChildKind, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Those who carry a sequence out, made anew for each. The first one's answers are those that the others are compared with.
pub type Parties = Vec<Box<dyn Party>>;

/// What sequences came to: how many steps were `opened`, `refused`, `closed`, `modified`, `unmodified` (no register was left for the
/// change), `invalid`, `switched`, `replaced` or `forked`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    fn add(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The steps up to this one.
    pub steps: Vec<Step>,
    pub answers: Vec<(&'static str, Answer)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.answers.iter().map(|(who, answer)| format!("{who} says {answer:?}")).collect::<Vec<_>>();
        write!(f, "step {}, {:?}: {}", self.steps.len(), self.steps.last(), said.join(", "))
    }
}

struct Run {
    parties: Parties,
    open: BTreeSet<u32>,
    /// The places where processes are, which have no children.
    childless: BTreeSet<usize>,
    tally: Tally,
}

impl Run {
    fn ask(&mut self, f: impl FnMut(&mut Box<dyn Party>) -> Answer) -> Result<Answer, Vec<Answer>> {
        let answers: Vec<_> = self.parties.iter_mut().map(f).collect();
        let agree = answers.iter().all(|answer| *answer == answers[0]) && answers[0] != Answer::Unexplained;
        if agree { Ok(answers[0]) } else { Err(answers) }
    }

    /// Takes a step; `Ok(None)` where there is nothing to answer.
    fn take(&mut self, step: &Step) -> Result<Option<Answer>, Vec<Answer>> {
        let answer = match *step {
            Step::Replace(thread) => {
                self.parties.iter_mut().for_each(|party| party.replace(thread));
                self.childless.remove(&thread);
                self.tally.add("replaced");
                None
            }
            Step::Fork { parent, child, child_kind } if parent != child && !self.childless.contains(&parent) => {
                let answer = self.ask(|party| party.fork(parent, child, child_kind))?;
                self.childless.remove(&child);
                if (answer, child_kind) == (Answer::Granted, ChildKind::Process) {
                    self.childless.insert(child);
                }
                self.tally.add("forked");
                Some(answer)
            }
            Step::Open { number, ref whose, watch, counting, heirs } if !self.open.contains(&number) => {
                let answer = self.ask(|party| party.open(number, whose, watch, counting, heirs))?;
                match answer {
                    Answer::Granted => {
                        self.open.insert(number);
                        self.tally.add("opened");
                    }
                    Answer::Full => self.tally.add("refused"),
                    Answer::Invalid | Answer::Unexplained => self.tally.add("invalid"),
                }
                Some(answer)
            }
            Step::Modify { number, watch } if self.open.contains(&number) => {
                let answer = self.ask(|party| party.modify(number, watch))?;
                match answer {
                    Answer::Granted => self.tally.add("modified"),
                    Answer::Full => self.tally.add("unmodified"),
                    Answer::Invalid | Answer::Unexplained => self.tally.add("invalid"),
                }
                Some(answer)
            }
            Step::Switch { number, counting } if self.open.contains(&number) => {
                self.parties.iter_mut().for_each(|party| party.switch(number, counting));
                self.tally.add("switched");
                None
            }
            Step::Close(number) if self.open.remove(&number) => {
                self.parties.iter_mut().for_each(|party| party.close(number));
                self.tally.add("closed");
                None
            }
            // It is about what is not there.
            _ => return Ok(None),
        };
        Ok(answer)
    }
}

pub fn random(parties: Parties, mut draw: Draw, steps: usize) -> Result<Tally, Difference> {
    let (open, childless) = (BTreeSet::new(), BTreeSet::new());
    let mut run = Run { parties, open, childless, tally: Tally::default() };
    let mut taken = Vec::with_capacity(steps);
    for _ in 0..steps {
        let step = draw.step();
        taken.push(step);
        let step = &taken[taken.len() - 1];
        match (run.take(step), step) {
            (Ok(Some(Answer::Granted)), Step::Open { number, .. }) => draw.granted(*number),
            (Ok(_), _) => {}
            (Err(answers), _) => {
                let answers = run.parties.iter().map(|party| party.name()).zip(answers).collect();
                return Err(Difference { steps: taken.clone(), answers });
            }
        }
    }
    Ok(run.tally)
}
