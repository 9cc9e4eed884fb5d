//! What is mapped into a process, or into the kernel, at one time.
//!
//! What it is: ranges of addresses, each with its module. Read first: [`Maps::find`].
//!
//! **Invariant:** ranges don't overlap: what is mapped later takes the place of what was there.

use super::modules::ModuleId;
use super::stacks::{Frame, Site};
use std::collections::BTreeMap;

/// No process has more mappings; what says so is not believed.
const MOST: usize = 1 << 18;

/// How addresses of a mapping become those of its module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressRule {
    /// From the beginning of the mapping, plus this.
    From(u64),
    /// They stay as they are.
    AsTheyAre,
}

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapping {
    pub(super) end: u64,
    pub(super) module: ModuleId,
    pub(super) counting: AddressRule,
}

/// Ranges by their beginning.
#[derive(Clone, Default, Debug)]
pub(super) struct Maps {
    by_start: BTreeMap<u64, Mapping>,
}

impl Maps {
    /// Puts a range where it belongs. Returns false if it is empty, or there are too many.
    pub(super) fn add(&mut self, start: u64, mapping: Mapping) -> bool {
        if mapping.end <= start || self.by_start.len() >= MOST {
            return false;
        }
        // What lay there gives way: its parts before and behind stay.
        let first = self.by_start.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let under: Vec<_> = self.by_start.range(first..mapping.end).map(|(&start, old)| (start, *old)).collect();
        for (old_start, old) in under {
            if old.end <= start {
                continue;
            }
            self.by_start.remove(&old_start);
            if old_start < start {
                self.by_start.insert(old_start, Mapping { end: start, ..old });
            }
            if old.end > mapping.end {
                let counting = match old.counting {
                    AddressRule::From(offset) => AddressRule::From(offset.wrapping_add(mapping.end - old_start)),
                    AddressRule::AsTheyAre => AddressRule::AsTheyAre,
                };
                self.by_start.insert(mapping.end, Mapping { counting, ..old });
            }
        }
        self.by_start.insert(start, mapping);
        true
    }

    /// Takes the range away that begins here.
    pub(super) fn remove(&mut self, start: u64) -> bool {
        self.by_start.remove(&start).is_some()
    }

    /// The place of an address in its module. `site` says which instruction is meant: a call may be the last one of a range.
    pub(super) fn find(&self, address: u64, site: Site) -> Option<Frame> {
        let wanted = address.saturating_sub(u64::from(site == Site::Return));
        let (&start, mapping) = self.by_start.range(..=wanted).next_back().filter(|(_, found)| wanted < found.end)?;
        let address = match mapping.counting {
            AddressRule::From(offset) => (address - start).wrapping_add(offset),
            AddressRule::AsTheyAre => address,
        };
        Some(Frame { module: mapping.module, address, site })
    }
}

/// Where data may be: behind a mapping of code, whose file may hold it. Mappings without code are not recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DataPlace {
    pub(super) module: ModuleId,
    /// Where the mapping begins in the file.
    pub(super) offset: u64,
    /// How many bytes behind that.
    pub(super) distance: u64,
}

impl Maps {
    /// Where an address is that is in no mapping of code.
    pub(super) fn find_data(&self, address: u64) -> Option<DataPlace> {
        let (&start, mapping) =
            self.by_start.range(..=address).next_back().filter(|(_, found)| address >= found.end)?;
        let AddressRule::From(offset) = mapping.counting else { return None };
        Some(DataPlace { module: mapping.module, offset, distance: address - start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mapping(end: u64, offset: u64) -> Mapping {
        Mapping { end, module: ModuleId::UNKNOWN, counting: AddressRule::From(offset) }
    }

    #[test]
    fn later_mappings_take_the_place_of_earlier_ones() {
        let mut maps = Maps::default();
        let at = |maps: &Maps, address| maps.find(address, Site::Exact).map(|frame| frame.address);
        assert!(maps.add(0x1000, mapping(0x5000, 0)));
        assert!(maps.add(0x2000, mapping(0x3000, 0x70_0000)));
        assert_eq!(at(&maps, 0x1fff), Some(0xfff));
        assert_eq!(at(&maps, 0x2001), Some(0x70_0001));
        assert_eq!(at(&maps, 0x3004), Some(0x2004));
        assert_eq!((at(&maps, 0xfff), at(&maps, 0x5000)), (None, None));
        let data = maps.find_data(0x6000).unwrap();
        assert_eq!((data.offset, data.distance), (0x2000, 0x3000), "behind the part that stayed");
        assert_eq!((maps.find_data(0x4fff), maps.find_data(0xfff)), (None, None));
        // A call can be the last instruction.
        assert_eq!(maps.find(0x5000, Site::Return).map(|frame| frame.address), Some(0x4000));
        assert!(!maps.add(7, mapping(7, 0)));
    }

    proptest! {
        #[test]
        fn as_a_slow_list_would_have_it(list in prop::collection::vec((0_u64..60, 1_u64..30), 1..20)) {
            let mut maps = Maps::default();
            let mut slow = [None; 100];
            for (number, &(start, length)) in list.iter().enumerate() {
                maps.add(start, mapping(start + length, 1000 * number as u64));
                for (at, cell) in (start..start + length).zip(&mut slow[start as usize..]) {
                    *cell = Some(1000 * number as u64 + at - start);
                }
            }
            for (address, cell) in slow.iter().enumerate() {
                prop_assert_eq!(maps.find(address as u64, Site::Exact).map(|frame| frame.address), *cell);
            }
        }
    }
}
