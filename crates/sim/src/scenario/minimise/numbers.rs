//! Smaller numbers.
//!
//! What it is: all numbers of a scenario in one order, each by its index, and a search for a smaller one that still fails.
//! Times are searched in whole seconds, then milliseconds, and so on, so that what comes out reads well.
//!
//! **Invariant:** a number is never made larger, and a search asks at most some hundred times.

use std::collections::BTreeSet;

use pmux_engine::{CpuId, Nanos};

use super::super::ast::{
    Change, Comparison, CpuList, Expectation, Expr, Fault, Open, Part, Requirement, Scenario, Statement, Subject,
    Target,
};

/// A number of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Number {
    pub(super) value: u64,
    pub(super) kind: Kind,
}

/// What kind of number it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A number that can be as small as this.
    From(u64),
    /// A time, above zero.
    Span,
}

/// The number at an index; `None` behind the last one.
pub(super) fn number(scenario: &Scenario, index: usize) -> Option<Number> {
    let mut found = None;
    let mut at = 0;
    map_numbers(&mut scenario.clone(), &mut |number| {
        if at == index {
            found = Some(number);
        }
        at += 1;
        number.value
    });
    found
}

/// The scenario with another number at an index.
pub(super) fn with_number(scenario: &Scenario, index: usize, value: u64) -> Scenario {
    let mut scenario = scenario.clone();
    let mut at = 0;
    map_numbers(&mut scenario, &mut |number| {
        at += 1;
        if at == index + 1 { value } else { number.value }
    });
    scenario
}

/// Calls `map` with every number, in one order, and puts what it gives in its place. It gives nothing larger.
fn map_numbers(scenario: &mut Scenario, map: &mut impl FnMut(Number) -> u64) {
    for required in &mut scenario.header.requires {
        if let Requirement::Cpus(cpus) = &mut required.requirement {
            map_u32(cpus, 1, map);
        }
    }
    let machine = &mut scenario.header.machine;
    if let Some(cpus) = &mut machine.cpus {
        map_u32(cpus, 1, map);
    }
    if let Some(counters) = &mut machine.counters {
        let value = map(Number { value: u64::from(*counters), kind: Kind::From(1) });
        *counters = u8::try_from(value).unwrap_or(*counters);
    }
    for step in &mut scenario.steps {
        match &mut step.statement {
            Statement::Run(run) => {
                map_span(&mut run.span, map);
                for rate in &mut run.rates {
                    rate.amount = map(Number { value: rate.amount, kind: Kind::From(0) });
                }
            }
            Statement::Wait { span } => map_span(span, map),
            Statement::Switch(switching) => switching.span.iter_mut().for_each(|span| map_span(span, map)),
            Statement::Trigger(trigger) => {
                map_u32(&mut trigger.every, 1, map);
                trigger.amount = map(Number { value: trigger.amount, kind: Kind::From(0) });
            }
            Statement::Open(Open { samples: Some(samples), .. }) => {
                samples.period = map(Number { value: samples.period, kind: Kind::From(1) });
            }
            Statement::Touch { pages, .. } => map_u32(pages, 1, map),
            Statement::Access { times, .. } => map_u32(times, 1, map),
            Statement::Fault(
                Fault::Alloc(nth) | Fault::Program(nth) | Fault::Start(nth) | Fault::Read(nth) | Fault::HandOver(nth),
            ) => map_u32(nth, 1, map),
            Statement::Fault(Fault::Storm(_, interrupts)) => map_u32(interrupts, 1, map),
            Statement::Fault(Fault::DoorbellLate(by) | Fault::InterruptLate(by)) => map_span(by, map),
            _ => {}
        }
    }
}

fn map_u32(number: &mut u32, least: u64, map: &mut impl FnMut(Number) -> u64) {
    let value = map(Number { value: u64::from(*number), kind: Kind::From(least) });
    *number = u32::try_from(value).unwrap_or(*number);
}

fn map_span(span: &mut Nanos, map: &mut impl FnMut(Number) -> u64) {
    span.0 = map(Number { value: span.0, kind: Kind::Span });
}

/// Searches for a smaller number, as if whatever is larger than one that fails failed too. `accept` says whether it fails
/// with that number, and if so, keeps it.
pub(super) fn shrink(number: Number, mut accept: impl FnMut(u64) -> bool) {
    match number.kind {
        Kind::From(least) => {
            if number.value > least && !accept(least) {
                search(least, number.value, 1, &mut accept);
            }
        }
        Kind::Span => {
            let (mut below, mut value) = (0, number.value);
            for unit in [1_000_000_000, 1_000_000, 1_000, 1] {
                if unit < value {
                    (below, value) = search(below, value, unit, &mut accept);
                }
                // Finer than this reads worse than it helps.
                if value > unit && value % unit == 0 {
                    return;
                }
            }
        }
    }
}

/// The least multiple of `unit` above `below`, which does not fail, that is accepted, else `value`, which fails; and the
/// greatest number below it that is known not to fail.
fn search(mut below: u64, mut value: u64, unit: u64, accept: &mut impl FnMut(u64) -> bool) -> (u64, u64) {
    loop {
        // Multiples strictly between the two.
        let (first, last) = (below / unit + 1, (value - 1) / unit);
        if first > last {
            return (below, value);
        }
        let middle = (first + (last - first) / 2) * unit;
        if accept(middle) {
            value = middle;
        } else {
            below = middle;
        }
    }
}

/// Which CPUs could have the number of a lower one that is not used: each time the lowest two, because CPU 0 is not like others.
pub(super) fn lower_cpus(scenario: &Scenario) -> Vec<(CpuId, CpuId)> {
    let mut used = BTreeSet::new();
    map_cpus(&mut scenario.clone(), &mut |cpu| {
        used.insert(cpu);
        cpu
    });
    let mut out = Vec::new();
    for from in used.iter().rev() {
        let free = (0..from.0).map(CpuId).filter(|cpu| !used.contains(cpu)).take(2);
        out.extend(free.map(|to| (*from, to)));
    }
    out
}

/// The scenario with the one CPU in the place of the other.
pub(super) fn with_cpu(scenario: &Scenario, from: CpuId, to: CpuId) -> Scenario {
    let mut scenario = scenario.clone();
    map_cpus(&mut scenario, &mut |cpu| if cpu == from { to } else { cpu });
    scenario
}

fn map_cpus(scenario: &mut Scenario, map: &mut impl FnMut(CpuId) -> CpuId) {
    for step in &mut scenario.steps {
        match &mut step.statement {
            Statement::Task { on, .. } => on.iter_mut().for_each(|cpu| *cpu = map(*cpu)),
            Statement::Run(run) => run.on.iter_mut().for_each(|cpu| *cpu = map(*cpu)),
            Statement::Migrate { to: cpu, .. }
            | Statement::Offline { cpu }
            | Statement::Online { cpu }
            | Statement::Fault(Fault::DoorbellSpurious(cpu) | Fault::Storm(cpu, _) | Fault::Held(cpu, _)) => {
                *cpu = map(*cpu);
            }
            Statement::Open(open) => match &mut open.target {
                Target::TaskOnCpu(_, cpu) => *cpu = map(*cpu),
                Target::Cpus(cpus) | Target::SystemWide(Some(cpus)) => map_list(cpus, map),
                Target::Task(_) | Target::SystemWide(None) => {}
            },
            Statement::Modify { to: Change::Cpus(Some(cpus)), .. } => map_list(cpus, map),
            Statement::Expect(Expectation::State(expected)) => map_subject(&mut expected.subject, map),
            Statement::Expect(Expectation::Compare(Comparison { left, right, .. })) => {
                map_expr(left, map);
                map_expr(right, map);
            }
            _ => {}
        }
    }
}

fn map_list(cpus: &mut CpuList, map: &mut impl FnMut(CpuId) -> CpuId) {
    let mapped: Vec<CpuId> = cpus.iter().map(map).collect();
    if let Some(mapped) = CpuList::new(mapped) {
        *cpus = mapped;
    }
}

fn map_expr(expr: &mut Expr, map: &mut impl FnMut(CpuId) -> CpuId) {
    match expr {
        Expr::Of(subject, _) => map_subject(subject, map),
        Expr::Arithmetic(left, _, right) => {
            map_expr(left, map);
            map_expr(right, map);
        }
        Expr::Number(_) | Expr::Time(_) | Expr::Truth(_) | Expr::Lost | Expr::Fired(_) => {}
    }
}

fn map_subject(subject: &mut Subject, map: &mut impl FnMut(CpuId) -> CpuId) {
    if let Part::Cpu(cpu) = &mut subject.part {
        *cpu = map(*cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a search finds where everything from `least_failing` up fails.
    fn found(value: u64, kind: Kind, least_failing: u64) -> (u64, usize) {
        let (mut best, mut calls) = (value, 0);
        shrink(Number { value, kind }, |candidate| {
            calls += 1;
            assert!(candidate < best, "{candidate} is not smaller than {best}");
            let fails = candidate >= least_failing;
            best = if fails { candidate } else { best };
            fails
        });
        (best, calls)
    }

    #[test]
    fn times_come_out_in_the_largest_unit_that_does() {
        const MS: u64 = 1_000_000;
        for (value, least_failing, best) in [
            (10 * MS, 3 * MS, 3 * MS),
            (10 * MS, 3 * MS - 5, 3 * MS),
            (10 * MS, 1, 1),
            (12_345_678, 2 * MS, 2 * MS),
            (1_234_567, 1_200_100, 1_201_000),
            (7, 7, 7),
        ] {
            assert_eq!(found(value, Kind::Span, least_failing).0, best, "{value} {least_failing}");
        }
    }

    proptest! {
        #[test]
        fn the_least_number_that_fails_is_found(value in 1_u64.., least in 0_u64..10, failing: u64) {
            let failing = failing.clamp(0, value);
            prop_assume!(value >= least);
            let (best, calls) = found(value, Kind::From(least), failing);
            prop_assert_eq!(best, failing.max(least));
            prop_assert!(calls <= 70);
        }
    }
}
