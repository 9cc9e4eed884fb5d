//! Counts and times against the truth.
//!
//! **Invariant:** the engine is read as by an observer who reaches every CPU, so that no time passes between a reading and
//! the truth.

use super::{Checker, Violation};
use crate::machine::{Book, BookKind, Event, Reach, Truth, World};
use pmux_engine::pmu::BankError;
use pmux_engine::target::ContextKey;
use pmux_engine::{Count, Nanos, OpenError, ReadError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    /// As far as costs the same however many tasks and CPUs there are.
    Step,
    /// All the way.
    All,
}

/// How many places of a group a step looks at.
const PLACES: usize = 8;

/// One group: what is reported of it, in each place and in all together.
pub(super) fn group(world: &World, number: u32, depth: Depth) -> Result<(), Violation> {
    let Some(book) = world.books().get(number) else { return Ok(()) };
    match &book.kind {
        BookKind::Group { id, target, family, .. } => {
            let places = world.state(|state| state.ledger.tag(book.tags[0]).map_or(0, |tag| tag.sites.len()));
            if depth == Depth::All || places <= PLACES {
                let counts = world.observe(|engine| engine.read_group(*id));
                let counts = counts.unwrap_or_else(|error| vec![Err(error); book.tags.len()]);
                for (&tag, &count) in book.tags.iter().zip(&counts) {
                    let alone = family.is_none().then_some(book.opened);
                    let seen = CheckedCount { event: tag, place: None, book, opened: alone };
                    compare(world, &seen, count, &world.truth(tag).unwrap_or_default())?;
                }
            }
            if family.is_some() && !world.state(|state| state.is_view_event(book.tags[0])) {
                children(world, number, target.context, depth)?;
            }
            Ok(())
        }
        BookKind::OfSet { set, .. } => on_cpus(world, number, *set, depth),
        // What it counts is seen in those who look at it; but its children count for themselves.
        BookKind::Master { root: Some(root), family: Some(_), .. } => children(world, number, root.context, depth),
        BookKind::Master { .. } => Ok(()),
    }
}

/// Whether events of a group may be in error, or a reading of one was refused and took the others along.
fn excused(world: &World, book: &Book) -> bool {
    book.pinned || book.tags.iter().any(|&tag| world.truth(tag).is_some_and(|truth| truth.withheld))
}

/// Whether events of a group, or of one whose counters it uses, may have been in error.
pub(crate) fn is_doubtful(world: &World, book: &Book) -> bool {
    let doubtful = |tags: &[Event]| tags.iter().any(|&tag| world.truth(tag).is_some_and(|truth| truth.doubtful));
    let masters = world.state(|state| state.masters_of(&book.tags));
    let of_masters = masters.iter().filter_map(|&master| world.books().get(world.number_of(master)?));
    doubtful(&book.tags) || of_masters.into_iter().any(|book| doubtful(&book.tags))
}

/// What live children have counted, each for itself.
fn children(world: &World, number: u32, root: ContextKey, depth: Depth) -> Result<(), Violation> {
    let Some(book) = world.books().get(number) else { return Ok(()) };
    let most = if depth == Depth::All { usize::MAX } else { PLACES };
    let live: Vec<_> = world.state(|state| {
        let sites = state.ledger.sites_of(book.tags[0]).rev();
        sites.filter(|site| !site.retired && site.place != root).filter_map(|site| site.task()).take(most).collect()
    });
    for task in live {
        let Some(group) = world.group_in(number, task) else {
            let violation = Violation::new(Checker::Families, world.now(), "a child that lives is not counted");
            return Err(violation.task(task).event(book.tags[0]));
        };
        let counts = world.observe(|engine| engine.read_group(group));
        let counts = counts.unwrap_or_else(|error| vec![Err(error); book.tags.len()]);
        for (&tag, &count) in book.tags.iter().zip(&counts) {
            let place = ContextKey::Task(task);
            let seen = CheckedCount { event: tag, place: Some(place), book, opened: None };
            compare(world, &seen, count, &world.truth_at(tag, place).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// What a set has counted on each CPU, and for how long it was covered.
fn on_cpus(world: &World, number: u32, set: u32, depth: Depth) -> Result<(), Violation> {
    let (Some(book), Some(set)) = (world.books().get(number), world.books().set(set)) else { return Ok(()) };
    if depth == Depth::Step && set.mask.len() > PLACES {
        return Ok(());
    }
    let BookKind::OfSet { first, .. } = book.kind else { return Ok(()) };
    let reading = world.observe(|engine| engine.read_set(set.id));
    let Ok(reading) = reading else {
        return Err(Violation::new(Checker::Counts, world.now(), "an open set can't be read").event(book.tags[0]));
    };
    for cpu in &reading.cpus {
        let place = ContextKey::Cpu(cpu.cpu);
        for (index, &tag) in book.tags.iter().enumerate() {
            let site = world.state(|state| state.site_at(tag, place, None));
            let truth = site.map(|site| world.state(|state| state.truth_of_site(site)));
            let count = cpu.counts.get(first + index).copied().unwrap_or(Err(ReadError::Closed));
            let seen = CheckedCount { event: tag, place: Some(place), book, opened: None };
            compare(world, &seen, count, &truth.unwrap_or_default())?;
        }
    }
    if first > 0 {
        return Ok(());
    }
    // Where nothing was ever refused, a set that is armed counts on every CPU that is there.
    if set.armed && world.refusals() == 0 {
        let counted = |cpu| reading.coverage.iter().any(|it| it.cpu == cpu && it.present);
        // A CPU that comes back finds its debug registers taken, or what is pinned finds its counters taken.
        let is_taken = |refused: Option<OpenError>| {
            use OpenError::{Bank, DebugRegisters};
            matches!(refused, Some(DebugRegisters { .. } | Bank { error: BankError::Unscheduled, .. }))
        };
        let excused = |cpu| reading.cpus.iter().any(|it| it.cpu == cpu && is_taken(it.refused));
        if let Some(cpu) = set.mask.iter().find(|&cpu| world.is_online(cpu) && !counted(cpu) && !excused(cpu)) {
            let what = "a CPU of an armed set is there, and is not counted";
            return Err(Violation::new(Checker::Coverage, world.now(), what).event(book.tags[0]).cpu(cpu));
        }
    }
    for cpu in &reading.coverage {
        let truth = world.truth_at(book.tags[0], ContextKey::Cpu(cpu.cpu)).unwrap_or_default();
        let new = |what| Violation::new(Checker::Coverage, world.now(), what).event(book.tags[0]).cpu(cpu.cpu);
        let all = cpu.covered + cpu.missed;
        if all != reading.span {
            return Err(new("covered and missed are not the span").numbers(reading.span.0, all.0));
        }
        let (least, most) = truth.enabled_time;
        if cpu.covered < least || cpu.covered > most {
            return Err(new("a CPU was covered longer or shorter than that").numbers(least.0, cpu.covered.0));
        }
    }
    Ok(())
}

struct CheckedCount<'a> {
    event: Event,
    place: Option<ContextKey>,
    book: &'a Book,
    /// When it was opened, where the whole count is one event's.
    opened: Option<Nanos>,
}

fn compare(
    world: &World,
    seen: &CheckedCount<'_>,
    count: Result<Count, ReadError>,
    truth: &Truth,
) -> Result<(), Violation> {
    let book = seen.book;
    let now = world.now();
    let new = |checker, what| Violation::new(checker, now, what).event(seen.event).place(seen.place);
    let count = match count {
        Ok(count) => count,
        Err(_) if truth.doubtful || excused(world, book) => return Ok(()),
        Err(error) => {
            return Err(new(Checker::Counts, "an event can't be read").numbers(0, error.errno().unsigned_abs().into()));
        }
    };
    let check = |good: bool, checker, what, numbers: (u64, u64)| {
        if good { Ok(()) } else { Err(new(checker, what).numbers(numbers.0, numbers.1)) }
    };
    let (value, enabled, running) = (count.value, count.enabled.0, count.running.0);
    let (least, most) = (truth.enabled_time.0.0, truth.enabled_time.1.0);
    if truth.at_most {
        check(value <= truth.counted, Checker::Counts, "it counted more than happened", (truth.counted, value))?;
        check(running <= truth.running.0, Checker::Times, "it ran longer than that", (truth.running.0, running))?;
        check(running <= enabled, Checker::Times, "it ran longer than it was enabled", (enabled, running))?;
        return check(enabled <= most, Checker::Times, "it was not enabled as long as that", (most, enabled));
    }
    check(
        value == truth.counted,
        Checker::Counts,
        "the count is not what happened while it ran",
        (truth.counted, value),
    )?;
    check(running <= enabled, Checker::Times, "it ran longer than it was enabled", (enabled, running))?;
    if let Some(opened) = seen.opened {
        let age = now.since(opened).0;
        check(enabled <= age, Checker::Times, "it was enabled longer than it was open", (age, enabled))?;
    }
    check(running == truth.running.0, Checker::Times, "it did not run as long as that", (truth.running.0, running))?;
    check(enabled <= most, Checker::Times, "it was not enabled as long as that", (most, enabled))?;
    // What is pinned may have been in error, which is no time enabled; a leader in error takes that of its whole group along. And a
    // master's gates are set when the caller that had to wait has returned.
    let waits = book.is_master() && world.description().reach == Reach::OwnCpu;
    let certain = least == most && running == enabled && !truth.missed;
    let all = (truth.enabled.0, truth.enabled.1);
    let whole = check(enabled >= least, Checker::Times, "it was enabled for longer than that", (least, enabled));
    let whole = whole.and_then(|()| {
        check(
            !certain || all == (truth.ran, truth.ran),
            Checker::Exact,
            "it ran whenever it was enabled, and yet has not counted everything",
            (truth.enabled.0, truth.ran),
        )
    });
    // Who looks for an excuse looks everywhere: only where one is needed.
    whole.or_else(|violation| if book.pinned || waits || is_doubtful(world, book) { Ok(()) } else { Err(violation) })
}
