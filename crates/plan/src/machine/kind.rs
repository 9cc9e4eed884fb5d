//! What can happen on a machine, and how often.
//!
//! What it is: the kinds of occurrence that a task's program causes ([`Kind`]) and the rates at which it does ([`Rates`]).
//!
//! **Invariant:** rates are fractions and time is whole nanoseconds, so that the number of occurrences in any window is a
//! whole number that can be computed at once, and windows that follow one another add up exactly.

use pmux_abi::attr::{EventType, hw, sw};
use std::fmt;
use std::num::NonZeroU64;

/// Something that happens and can be counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kind(u8);

/// How many kinds there are.
pub const KINDS: usize = 32;

const FIRST_SW: u8 = hw::COUNT as u8;
const FIRST_RAW: u8 = FIRST_SW + sw::COUNT as u8;

/// Every name that a kind has, the main one first, in the order of the kinds.
const NAMES: [&[&str]; KINDS] = [
    &["cpu-cycles", "cycles"],
    &["instructions"],
    &["cache-references"],
    &["cache-misses"],
    &["branch-instructions", "branches"],
    &["branch-misses"],
    &["bus-cycles"],
    &["stalled-cycles-frontend", "idle-cycles-frontend"],
    &["stalled-cycles-backend", "idle-cycles-backend"],
    &["ref-cycles"],
    &["cpu-clock"],
    &["task-clock"],
    &["page-faults", "faults"],
    &["context-switches", "cs"],
    &["cpu-migrations", "migrations"],
    &["minor-faults"],
    &["major-faults"],
    &["alignment-faults"],
    &["emulation-faults"],
    &["dummy"],
    &["bpf-output"],
    &["cgroup-switches"],
    &["r0"],
    &["r1"],
    &["r2"],
    &["r3"],
    &["r4"],
    &["r5"],
    &["r6"],
    &["r7"],
    &["r8"],
    &["r9"],
];

impl Kind {
    /// CPU cycles.
    pub const CYCLES: Self = Self(hw::CPU_CYCLES as u8);
    /// Retired instructions.
    pub const INSTRUCTIONS: Self = Self(hw::INSTRUCTIONS as u8);
    /// Cycles at a constant speed.
    pub const REF_CYCLES: Self = Self(hw::REF_CPU_CYCLES as u8);
    /// Time, ns. It goes by itself: no program has a rate for it.
    pub const CPU_CLOCK: Self = Self(FIRST_SW + sw::CPU_CLOCK as u8);
    /// Time, ns, too.
    pub const TASK_CLOCK: Self = Self(FIRST_SW + sw::TASK_CLOCK as u8);
    /// Page faults.
    pub const PAGE_FAULTS: Self = Self(FIRST_SW + sw::PAGE_FAULTS as u8);
    /// Page faults without disk access.
    pub const MINOR_FAULTS: Self = Self(FIRST_SW + sw::PAGE_FAULTS_MIN as u8);
    /// Context switches.
    pub const CONTEXT_SWITCHES: Self = Self(FIRST_SW + sw::CONTEXT_SWITCHES as u8);
    /// Moves to another CPU.
    pub const CPU_MIGRATIONS: Self = Self(FIRST_SW + sw::CPU_MIGRATIONS as u8);

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..KINDS as u8).map(Self)
    }

    /// The kinds that a hardware PMU can count: the generic ones and the raw ones.
    pub fn hardware() -> impl Iterator<Item = Self> {
        Self::all().filter(|kind| kind.0 < FIRST_SW || kind.0 >= FIRST_RAW)
    }

    /// The kinds that the kernel counts itself.
    pub fn software() -> impl Iterator<Item = Self> {
        (FIRST_SW..FIRST_RAW).map(Self)
    }

    /// The kind by one of its names.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        NAMES.iter().position(|names| names.contains(&name)).map(|index| Self(index as u8))
    }

    /// Its main name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        NAMES[self.0 as usize][0]
    }

    /// How an attribute asks for it: `type` and `config`.
    #[must_use]
    pub const fn as_config(self) -> (EventType, u64) {
        match self.0 {
            n if n < FIRST_SW => (EventType::HARDWARE, n as u64),
            n if n < FIRST_RAW => (EventType::SOFTWARE, (n - FIRST_SW) as u64),
            n => (EventType::RAW, (n - FIRST_RAW) as u64),
        }
    }

    /// The kind that an attribute asks for, if it is one.
    #[must_use]
    pub fn from_config(kind: EventType, config: u64) -> Option<Self> {
        let (first, count) = match kind {
            EventType::HARDWARE => (0, FIRST_SW),
            EventType::SOFTWARE => (FIRST_SW, FIRST_RAW - FIRST_SW),
            EventType::RAW => (FIRST_RAW, KINDS as u8 - FIRST_RAW),
            _ => return None,
        };
        u8::try_from(config).ok().filter(|&config| config < count).map(|config| Self(first + config))
    }

    /// Its number, below [`KINDS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Whether it is time, which goes by itself.
    #[must_use]
    pub const fn is_clock(self) -> bool {
        self.0 == Self::CPU_CLOCK.0 || self.0 == Self::TASK_CLOCK.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// So many occurrences in so many nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    amount: u64,
    per_ns: NonZeroU64,
}

impl Rate {
    /// Nothing happens.
    pub const ZERO: Self = Self::per_ns(0);

    /// So many in each nanosecond.
    #[must_use]
    pub const fn per_ns(amount: u64) -> Self {
        Self { amount, per_ns: NonZeroU64::MIN }
    }

    /// `amount` in each `span_ns` nanoseconds, evenly; `None` for an empty span.
    #[must_use]
    pub const fn new(amount: u64, span_ns: u64) -> Option<Self> {
        match NonZeroU64::new(span_ns) {
            Some(per_ns) => Some(Self { amount, per_ns }),
            None => None,
        }
    }

    /// How many occurrences there have been, `elapsed` nanoseconds from the beginning: rounded down, modulo 2^64.
    #[must_use]
    pub const fn after(self, elapsed: u64) -> u64 {
        if self.per_ns.get() == 1 {
            return self.amount.wrapping_mul(elapsed);
        }
        match self.amount.checked_mul(elapsed) {
            Some(product) => product / self.per_ns.get(),
            None => (self.amount as u128 * elapsed as u128 / self.per_ns.get() as u128) as u64,
        }
    }

    /// How many there are in a nanosecond at most.
    #[must_use]
    pub const fn ceiling_per_ns(self) -> u64 {
        self.amount.div_ceil(self.per_ns.get())
    }

    /// After how many nanoseconds so many more may have happened, at the soonest; `u64::MAX` for never.
    #[must_use]
    pub const fn time_for(self, occurrences: u64) -> u64 {
        if self.amount == 0 {
            return u64::MAX;
        }
        // Rounding down at both ends, a window holds at most one more than its share.
        let share = occurrences.saturating_sub(1) as u128 * self.per_ns.get() as u128 / self.amount as u128;
        if share >= u64::MAX as u128 { u64::MAX } else { share as u64 + 1 }
    }
}

/// How often each kind happens while a task runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rates {
    of: [Rate; KINDS],
}

impl Rates {
    /// No CPU at all: not even time goes by.
    pub const GONE: Self = Self { of: [Rate::ZERO; KINDS] };

    /// Only time goes by.
    #[must_use]
    pub const fn idle() -> Self {
        let mut rates = Self::GONE;
        rates.of[Kind::CPU_CLOCK.index()] = Rate::per_ns(1);
        rates.of[Kind::TASK_CLOCK.index()] = Rate::per_ns(1);
        rates
    }

    /// What a task does if nothing else is said: every hardware kind at another rate, some of them fractions. Four
    /// instructions for three cycles. No software kind but the clocks: nothing of the kind happens by itself.
    #[must_use]
    pub fn typical() -> Self {
        const TYPICAL: [(u64, u64); 10] =
            [(3, 1), (4, 1), (1, 50), (1, 700), (4, 5), (1, 90), (1, 10), (3, 7), (2, 3), (5, 2)];
        let hardware = TYPICAL.iter().enumerate().map(|(index, &rate)| (Kind(index as u8), rate));
        let raw = (FIRST_RAW..KINDS as u8).map(|index| (Kind(index), (u64::from(index - FIRST_RAW) + 1, 1)));
        hardware.chain(raw).fold(Self::idle(), |rates, (kind, (amount, per_ns))| {
            rates.with(kind, Rate::new(amount, per_ns).unwrap_or(Rate::ZERO))
        })
    }

    /// With another rate for one kind. Clocks stay what they are.
    #[must_use]
    pub const fn with(mut self, kind: Kind, rate: Rate) -> Self {
        if !kind.is_clock() {
            self.of[kind.index()] = rate;
        }
        self
    }

    /// The rate of one kind.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> Rate {
        self.of[kind.index()]
    }

    /// The kinds that happen at all.
    pub fn active(&self) -> impl Iterator<Item = Kind> + '_ {
        Kind::all().filter(|&kind| self.of(kind) != Rate::ZERO)
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self::typical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_configs_and_kinds_are_one_and_the_same() {
        for kind in Kind::all() {
            assert_eq!(Kind::by_name(kind.name()), Some(kind));
            let (event_type, config) = kind.as_config();
            assert_eq!(Kind::from_config(event_type, config), Some(kind));
        }
        assert_eq!(Kind::by_name("cycles"), Some(Kind::CYCLES));
        assert_eq!(Kind::from_config(EventType::SOFTWARE, sw::COUNT), None);
        assert_eq!(Kind::from_config(EventType::BREAKPOINT, 0), None);
    }

    #[test]
    fn clocks_go_by_themselves() {
        let rates = Rates::idle().with(Kind::CPU_CLOCK, Rate::per_ns(7));
        assert_eq!(rates.of(Kind::CPU_CLOCK).after(5), 5);
    }

    proptest! {
        #[test]
        fn nothing_happens_sooner_than_said(amount in 1_u64..1000, per in 1_u64..5000, start in 0_u64..1_000_000, more in 1_u64..100_000) {
            let Some(rate) = Rate::new(amount, per) else { return Ok(()) };
            let time = rate.time_for(more);
            let before = rate.after(start + time - 1) - rate.after(start);
            prop_assert!(before < more, "{before} in {time} - 1 ns");
        }

        #[test]
        fn large_products_do_not_overflow(amount: u64, per in 2_u64..1000, elapsed in 0_u64..u64::MAX / 2) {
            let Some(rate) = Rate::new(amount, per) else { return Ok(()) };
            let exact = u128::from(amount) * u128::from(elapsed) / u128::from(per);
            prop_assert_eq!(rate.after(elapsed), exact as u64);
        }
    }
}
