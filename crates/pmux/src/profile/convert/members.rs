//! Samples that say what a whole group has counted.
//!
//! What it is: of a group whose leader alone takes samples (`{…}:S`), each sample is one of every member, and stands for what that has
//! counted since the sample before. So it is where an event is read at each of its samples.
//!
//! **Invariant:** what all samples of an event stand for adds up to what it had counted at the last one.

use hashbrown::HashMap;
use pmux_abi::read::ReadValues;

/// What each event had counted at its last sample, by its id.
#[derive(Debug, Default)]
pub(super) struct Members {
    counted: HashMap<u64, u64>,
    /// Of the last sample: the event and what it stands for.
    pub(super) parts: Vec<(usize, u64)>,
}

impl Members {
    /// Takes what a sample of this event and id says into `parts`; members whose event is not known are left out.
    pub(super) fn take(
        &mut self,
        read: &ReadValues<'_>,
        (event, id): (usize, u64),
        event_of: impl Fn(u64) -> Option<usize>,
    ) {
        self.parts.clear();
        for member in read.members.iter() {
            // Without ids there is one.
            let Some(event) = member.id.map_or(Some(event), &event_of) else { continue };
            let before = self.counted.insert(member.id.unwrap_or(id), member.value).unwrap_or(0);
            // One that was set back begins anew.
            let since = member.value.checked_sub(before).unwrap_or(member.value);
            if since > 0 {
                self.parts.push((event, since));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux_abi::read::ReadMember;

    #[test]
    fn a_sample_stands_for_what_came_since_the_one_before() {
        let mut members = Members::default();
        let mut take = |values: [u64; 2]| {
            let list =
                [(7, values[0]), (8, values[1])].map(|(id, value)| ReadMember { value, id: Some(id), lost: None });
            members.take(&ReadValues::of(&list), (0, 7), |id| (id == 7 || id == 8).then_some((id - 7) as usize));
            members.parts.clone()
        };
        assert_eq!(take([100, 30]), [(0, 100), (1, 30)]);
        assert_eq!(take([250, 30]), [(0, 150)], "one that counted nothing is not met");
        assert_eq!(take([300, 35]), [(0, 50), (1, 5)]);
        assert_eq!(take([10, 35]), [(0, 10)], "it was set back");
        let alone = [ReadMember { value: 40, id: None, lost: None }];
        members.take(&ReadValues::of(&alone), (3, 9), |_| None);
        assert_eq!(members.parts, [(3, 40)]);
    }
}
