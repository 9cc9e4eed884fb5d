//! Where the addresses of a scenario are: the tasks have memory for accesses at one place, and each page that the scenario
//! names is one page of it.
//!
//! **Invariant:** pure. Two addresses of a scenario are as far apart as it says where they are on one page, and never on one
//! page where it says that they are on two.

use pmux::workers::BASE;
use pmux_sim::scenario::ast::{AccessKind, Event, Scenario, Statement};

/// The pages of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Addresses {
    page_bytes: u64,
    /// Their numbers, ascending.
    pages: Vec<u64>,
    executed: bool,
}

impl Addresses {
    pub(super) fn new(scenario: &Scenario, page_bytes: u64) -> Self {
        let page_bytes = page_bytes.max(1);
        let (mut pages, mut executed) = (Vec::new(), false);
        for step in &scenario.steps {
            match &step.statement {
                Statement::Access { address, kind, .. } => {
                    pages.push(address / page_bytes);
                    executed |= *kind == AccessKind::Execute;
                }
                Statement::Modify { to: breakpoint, .. } => {
                    pages.push(breakpoint.address / page_bytes);
                }
                Statement::Open(open) => {
                    for new in &open.events {
                        if let Event::Breakpoint(breakpoint) = &new.event {
                            pages.push(breakpoint.address / page_bytes);
                        }
                    }
                }
                _ => {}
            }
        }
        pages.sort_unstable();
        pages.dedup();
        Self { page_bytes, pages, executed }
    }

    pub(super) fn pages(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn are_executed(&self) -> bool {
        self.executed
    }

    /// Where an address is in the memory for accesses; `None` for one that the scenario does not name.
    pub(super) fn offset(&self, address: u64) -> Option<u64> {
        let page = self.pages.binary_search(&(address / self.page_bytes)).ok()?;
        Some(page as u64 * self.page_bytes + address % self.page_bytes)
    }

    /// The address in the tasks.
    pub(super) fn place(&self, address: u64) -> Option<u64> {
        Some(BASE + self.offset(address)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Addresses {
        Addresses::new(&pmux_sim::scenario::parse(text).unwrap(), 4096)
    }

    #[test]
    fn each_page_has_its_place() {
        let some =
            addresses("task A\nopen b = mem:0x1008/8:w on A\naccess A 0x1010 write\naccess A 0xffff_f000_1234 read\n");
        assert_eq!(some.pages(), 2);
        assert_eq!(some.offset(0x1008), Some(8));
        assert_eq!(some.offset(0x1010), Some(0x10));
        assert_eq!(some.offset(0xffff_f000_1234), Some(0x1234));
        assert_eq!(some.place(0x1008), Some(BASE + 8));
        assert_eq!(some.offset(0x3000), None);
        assert!(!some.are_executed());
    }

    #[test]
    fn code_is_known() {
        assert!(addresses("task A\naccess A 0x1000 execute 2 times\n").are_executed());
        assert_eq!(addresses("task A\n").pages(), 0);
    }
}
