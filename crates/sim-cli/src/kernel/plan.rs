//! What is known of a scenario before it runs: where its addresses are, how many children there will be, whose numbers are
//! asked for child by child.
//!
//! **Invariant:** pure.

use super::addresses::Addresses;
use pmux::workers::{Code, Stage, page_bytes};
use pmux_sim::scenario::ast::{Attribute, Expectation, Expr, Part, Scenario, Statement, Subject};
use std::collections::BTreeSet;

/// What is known of a scenario before it runs.
pub(super) struct Plan {
    pub(super) stage: Stage,
    pub(super) addresses: Addresses,
    /// Events of which a part is asked for that only reports of children tell.
    attributed: BTreeSet<String>,
}

impl Plan {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let addresses = Addresses::new(scenario, page_bytes());
        let forks = scenario.steps.iter().filter(|step| matches!(step.statement, Statement::Fork { .. })).count();
        let stage = Stage {
            pages: addresses.pages(),
            code: if addresses.are_executed() { Code::Runs } else { Code::No },
            children: u32::try_from(forks).unwrap_or(u32::MAX),
        };
        let mut attributed = BTreeSet::new();
        let mut note = |subject: &Subject, attribute: Option<Attribute>| {
            let family = matches!(subject.part, Part::Own | Part::Retired | Part::Child(_));
            if family || attribute == Some(Attribute::Lost) {
                attributed.insert(subject.event.text.clone());
            }
        };
        for step in &scenario.steps {
            match &step.statement {
                Statement::Expect(Expectation::State(expected)) => note(&expected.subject, None),
                Statement::Expect(Expectation::Compare(comparison)) => {
                    for leaf in comparison.leaves() {
                        if let Expr::Of(subject, attribute) = leaf {
                            note(subject, Some(*attribute));
                        }
                    }
                }
                _ => {}
            }
        }
        Self { stage, addresses, attributed }
    }

    /// Whether children of any event must report.
    pub(super) fn asks_for_reports(&self) -> bool {
        !self.attributed.is_empty()
    }

    /// Whether children of this event report what they have counted.
    pub(super) fn is_attributed(&self, event: &str) -> bool {
        self.attributed.contains(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_report_where_they_are_asked() {
        let text = "task A\nopen e, f, g = page-faults, page-faults, page-faults on A inherit\nfork A as C\nthread A as T\n\
                    expect e.count == 2 * e.children[C].count\nexpect f.lost == 0\nexpect g.count >= 0\n";
        let plan = Plan::new(&pmux_sim::scenario::parse(text).unwrap());
        assert!(plan.is_attributed("e") && plan.is_attributed("f") && !plan.is_attributed("g"));
        assert_eq!((plan.stage.children, plan.stage.pages, plan.stage.code), (2, 0, Code::No));
    }
}
