//! One recording as shares: how much of each event each function has.
//!
//! **Invariant:** functions are the same in two recordings if their names and those of their programs are.

use super::statistics::Quantity;
use pmux::profile::{Chosen, Input, Profile, ProfileError, Sample, SampleFilter, Sink, StackId, Symbols, read};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

/// What some samples weigh, and the sum of the squares, which their uncertainty depends on.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub(super) struct WeightSum {
    pub(super) samples: u64,
    weight: f64,
    squares: f64,
}

impl WeightSum {
    fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.weight += other.weight;
        self.squares += other.squares;
    }
}

#[derive(Default)]
struct StackSums(HashMap<(usize, StackId), WeightSum>);

impl Sink for StackSums {
    fn sample(&mut self, _profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let weight = sample.period as f64;
        let sum = WeightSum { samples: 1, weight, squares: weight * weight };
        self.0.entry((sample.event, sample.stack)).or_default().add(sum);
        ControlFlow::Continue(())
    }
}

/// Whether a function is asked about alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Own,
    /// With all that it calls.
    WithChildren,
}

/// A function: its name, and that of its program.
pub(super) type Name = (String, String);

#[derive(Default)]
pub(super) struct EventShares {
    pub(super) all: WeightSum,
    pub(super) functions: BTreeMap<Name, WeightSum>,
}

impl EventShares {
    pub(super) fn share(&self, function: &Name) -> Quantity {
        let own = self.functions.get(function).copied().unwrap_or_default();
        let all = self.all;
        if all.weight == 0.0 {
            return Quantity { value: 0.0, variance: None };
        }
        let share = own.weight / all.weight;
        // A function that was not met could have been: by one sample of the usual weight.
        let one = (all.weight / all.samples.max(1) as f64).powi(2);
        let (inside, outside) = (own.squares.max(one), (all.squares - own.squares).max(0.0));
        let variance = ((1.0 - share).powi(2) * inside + share.powi(2) * outside) / (all.weight * all.weight);
        Quantity { value: share, variance: Some(variance) }
    }

    /// How much was counted. One recording doesn't tell how much that varies.
    pub(super) fn count(&self) -> Quantity {
        Quantity { value: self.all.weight, variance: None }
    }
}

pub(super) struct Shares {
    /// By the name of the event.
    pub(super) events: BTreeMap<String, EventShares>,
    pub(super) remarks: Vec<String>,
    pub(super) why_empty: Option<String>,
}

/// Reads a recording.
///
/// # Errors
/// It can't be read.
pub(super) fn of(input: Input, wanted: SampleFilter, scope: Scope) -> Result<Shares, ProfileError> {
    let mut sums = Chosen::new(wanted, StackSums::default());
    let profile = read(input, &mut sums)?;
    let any = !sums.sink.0.is_empty();
    let why_empty = crate::picture::begin(&profile, sums.wanted(), sums.first_ns, any).err();
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    let mut names: HashMap<pmux::profile::FunctionId, Name> = HashMap::new();
    let mut events: BTreeMap<String, EventShares> = BTreeMap::new();
    for ((event, stack), sum) in &sums.sink.0 {
        let shares = events.entry(profile.events[*event].name.clone()).or_default();
        shares.all.add(*sum);
        let mut met = HashSet::new();
        for frame in profile.stacks.walk(*stack) {
            let (id, _) = symbols.id_of(&profile, frame);
            let name = names.entry(id).or_insert_with(|| name_of(&profile, symbols.function(id)));
            // A function that calls itself is there once.
            if met.insert(name.clone()) {
                shares.functions.entry(name.clone()).or_default().add(*sum);
            }
            if scope == Scope::Own {
                break;
            }
        }
    }
    let mut remarks = crate::picture::remarks(&profile);
    remarks.extend_from_slice(symbols.notes());
    Ok(Shares { events, remarks, why_empty })
}

fn name_of(profile: &Profile, function: &pmux::profile::Function) -> Name {
    let module = profile.names.get(profile.modules.get(function.module).short).to_owned();
    let name = if function.name.is_empty() { "(no name known)".to_owned() } else { function.name.to_string() };
    (name, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_have_the_error_of_a_count() {
        let name = |text: &str| (text.to_owned(), String::new());
        let sum = |samples: u64| WeightSum { samples, weight: samples as f64 * 3.0, squares: samples as f64 * 9.0 };
        let shares =
            EventShares { all: sum(100), functions: BTreeMap::from([(name("a"), sum(25)), (name("b"), sum(75))]) };
        let Quantity { value, variance } = shares.share(&name("a"));
        assert!((value - 0.25).abs() < 1e-12);
        // p (1 - p) / n
        assert!((variance.unwrap_or(0.0) - 0.25 * 0.75 / 100.0).abs() < 1e-12);
        let missing = shares.share(&name("c"));
        assert_eq!((missing.value, missing.variance), (0.0, Some(1e-4)));
    }
}
