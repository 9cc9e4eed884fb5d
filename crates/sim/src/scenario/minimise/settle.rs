//! A valid scenario out of any statements.
//!
//! **Invariant:** what comes out has no problem that matters everywhere, unless the head has one; statements are dropped or lose names, never added
//! or moved.

use super::super::ast::{Header, Scenario, Statement, Step};
use super::super::check::CheckState;
use super::super::error::Bearing;

/// Drops every statement that makes no sense any more, and from lists the names that are gone.
pub(super) fn settle(header: &Header, steps: &[Step]) -> Scenario {
    let mut scenario = Scenario { header: header.clone(), steps: Vec::new() };
    let mut world = CheckState::new(&scenario);
    for step in steps {
        let Some(step) = trimmed(step, &world) else { continue };
        if world.problems(&step).iter().all(|problem| problem.bearing != Bearing::Everywhere) {
            world.take(&step);
            scenario.steps.push(step);
        }
    }
    scenario
}

/// The statement without the names that are gone; `None` if none is left.
fn trimmed(step: &Step, world: &CheckState) -> Option<Step> {
    let mut step = step.clone();
    let left = match &mut step.statement {
        Statement::Run(run) => {
            run.tasks.retain(|task| world.has_task(task));
            !run.tasks.is_empty()
        }
        // What is meant to fail may fail because its event is gone.
        Statement::Control { targets, .. } if step.fails.is_none() => {
            targets.retain(|target| world.has_event(target.name()));
            !targets.is_empty()
        }
        Statement::Set(set) => {
            set.members.retain(|member| world.has_event(member.name()));
            !set.members.is_empty()
        }
        Statement::Trigger(trigger) => world.has_event(&trigger.event) && world.has_set(&trigger.switches.set),
        Statement::Switch(switching) => world.has_set(&switching.set),
        _ => true,
    };
    left.then_some(step)
}
