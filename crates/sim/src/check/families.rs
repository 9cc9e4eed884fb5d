//! Parents and children.

use super::{Checker, Violation};
use crate::machine::World;
use pmux_engine::{Count, ReadError, TaskId};

/// A parent is its own, its live children and those who retired; and the family is who the books say it is.
pub(super) fn group(world: &World, number: u32) -> Result<(), Violation> {
    let Some(book) = world.books().get(number) else { return Ok(()) };
    let (Some(family), Some(target)) = (book.family(), book.root()) else { return Ok(()) };
    if world.state(|state| state.is_view_event(book.tags[0])) {
        // The family is its master's.
        return Ok(());
    }
    let new = |what, event| Violation::new(Checker::Families, world.now(), what).event(event);
    let expected = world.state(|state| {
        let live = state.ledger.sites_of(book.tags[0]).filter(|site| !site.retired && site.place != target.context);
        live.filter_map(|site| site.task()).collect::<Vec<_>>()
    });
    let known = world.engine().with_family(family, |family| (family.counted().count(), family.uncounted()));
    let (counted, uncounted) = known.unwrap_or_default();
    if counted != expected.len() {
        let what = "the family has more or fewer live children";
        return Err(new(what, book.tags[0]).numbers(expected.len() as u64, counted as u64));
    }
    if uncounted > 0 && world.refusals() == 0 {
        return Err(new("children are not counted though nothing was refused", book.tags[0]).numbers(0, uncounted));
    }
    // Where one of them can't be read, there is no sum.
    let Ok(tallies) = world.observe(|engine| engine.read_family(family)) else { return Ok(()) };
    for ((index, &tag), tally) in book.tags.iter().enumerate().zip(tallies) {
        let mut sum = tally.own;
        sum += tally.retired;
        let mut all_read = true;
        for &task in &expected {
            match world.read_in(number, index, task) {
                Ok(count) => sum += count,
                Err(_) => all_read = false,
            }
        }
        if all_read && sum != tally.total {
            return Err(new("own, live and retired are not the total", tag).numbers(sum.value, tally.total.value));
        }
        let own = world.truth_at(tag, target.context).unwrap_or_default().counted;
        if tally.own.value != own {
            return Err(new("the root's own part is not that", tag)
                .place(Some(target.context))
                .numbers(own, tally.own.value));
        }
    }
    Ok(())
}

impl World {
    fn read_in(&self, number: u32, index: usize, task: TaskId) -> Result<Count, ReadError> {
        let group = self.group_in(number, task).ok_or(ReadError::Closed)?;
        let counts = self.observe(|engine| engine.read_group(group))?;
        counts.get(index).copied().unwrap_or(Err(ReadError::Closed))
    }
}
