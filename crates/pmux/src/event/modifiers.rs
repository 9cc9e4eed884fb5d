//! The letters after an event: `:u`, `:kpp`, `{a,b}:D`.
//!
//! What it is: reading the letters, and what they do to an attribute.
//! Read first: [`Modifiers`], then `Modifiers::on_event` and `Modifiers::on_member`.
//!
//! **Invariant:** pure. Letters commute: only which letters are there counts, not their order.
//!
//! Source: `perf-list(1)`, EVENT MODIFIERS; the exclusions as `perf stat` 6.1 sets them, compared in the tests.

use std::fmt;

use pmux_abi::attr::{Attr, AttrFlags, Precise};

use super::error::TOO_PRECISE;

/// The levels that an event may leave out.
pub(crate) const LEVELS: AttrFlags =
    AttrFlags::EXCLUDE_USER.union(AttrFlags::EXCLUDE_KERNEL).union(AttrFlags::EXCLUDE_HV);

/// What one letter asks for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Modifier {
    /// `u`: user mode.
    User,
    /// `k`: the kernel.
    Kernel,
    /// `h`: the hypervisor.
    Hypervisor,
    /// `G`: guests.
    Guest,
    /// `H`: the host.
    Host,
    /// `I`: not the idle task.
    NoIdle,
    /// `P`: as precise as the PMU can, when sampling. A count is the same with and without it.
    MaxPrecise,
    /// `S`: samples carry the counts of the whole group.
    SampleRead,
    /// `D`: pinned: always on the PMU, or in error.
    Pinned,
    /// `e`: exclusive: alone on the PMU.
    Exclusive,
    /// `W`: weak: the group may be broken up if it doesn't fit.
    Weak,
}

const LETTERS: [(char, Modifier); 11] = [
    ('u', Modifier::User),
    ('k', Modifier::Kernel),
    ('h', Modifier::Hypervisor),
    ('G', Modifier::Guest),
    ('H', Modifier::Host),
    ('I', Modifier::NoIdle),
    ('P', Modifier::MaxPrecise),
    ('S', Modifier::SampleRead),
    ('D', Modifier::Pinned),
    ('e', Modifier::Exclusive),
    ('W', Modifier::Weak),
];

/// The modifiers that the kernel takes only from the leader of a group, and their flags.
pub(super) const LEADER_FLAGS: [(Modifier, AttrFlags); 2] =
    [(Modifier::Pinned, AttrFlags::PINNED), (Modifier::Exclusive, AttrFlags::EXCLUSIVE)];

/// Every flag that modifiers may set.
pub(super) const ALL_FLAGS: AttrFlags = LEVELS
    .union(AttrFlags::EXCLUDE_GUEST)
    .union(AttrFlags::EXCLUDE_HOST)
    .union(AttrFlags::EXCLUDE_IDLE)
    .union(AttrFlags::PINNED)
    .union(AttrFlags::EXCLUSIVE);

/// The highest `precise_ip`.
const MOST_PRECISE: u8 = 3;

/// Whether counting in guests is left out unless the user asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GuestDefault {
    /// Left out: generic events and those of core PMUs.
    Excluded,
    /// Not touched: a PMU outside the cores can't tell, and refuses any exclusion.
    Untouched,
}

/// A set of modifiers, and how often `p` was given (0 to 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Modifiers {
    set: u16,
    precise: u8,
}

impl Modifiers {
    /// No modifier.
    pub const NONE: Self = Self { set: 0, precise: 0 };

    /// Reads the letters. Each may stand once, `p` up to three times.
    ///
    /// # Errors
    /// The offset of the letter at fault, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut all = Self::NONE;
        for (at, letter) in text.char_indices() {
            if letter == 'p' {
                all.precise += 1;
                if all.precise > MOST_PRECISE {
                    return Err((at, TOO_PRECISE.to_owned()));
                }
                continue;
            }
            if letter == 'b' {
                let reason = "it counts through BPF programs, which pmux does not do";
                return Err((at, format!("the modifier '{letter}' is not supported: {reason}")));
            }
            let Some((_, modifier)) = LETTERS.iter().find(|(known, _)| *known == letter) else {
                return Err((at, format!("{letter:?} is no modifier: expected some of u k h I G H p P S D e W")));
            };
            if all.has(*modifier) {
                return Err((at, format!("the modifier '{letter}' stands twice")));
            }
            all.set |= bit(*modifier);
        }
        Ok(all)
    }

    /// Whether a text has only letters that can be modifiers, so that it is no tracepoint's name.
    pub(super) fn looks_like(text: &str) -> bool {
        text.chars().all(|c| c == 'p' || c == 'b' || LETTERS.iter().any(|(known, _)| *known == c))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Whether that one was given.
    #[must_use]
    pub fn has(self, modifier: Modifier) -> bool {
        self.set & bit(modifier) != 0
    }

    /// How often `p` was given: 0 to 3.
    #[must_use]
    pub fn precise(self) -> u8 {
        self.precise
    }

    fn any(self, modifiers: &[Modifier]) -> bool {
        modifiers.iter().any(|m| self.has(*m))
    }

    /// Whether guest or host was named, so that nothing about them is implied any more.
    fn names_guest(self) -> bool {
        self.any(&[Modifier::Guest, Modifier::Host])
    }

    /// Sets what an event's own modifiers ask for. The attribute's exclusions must be unset before.
    pub(super) fn on_event(self, attr: &mut Attr, default: GuestDefault) {
        if self.is_empty() {
            attr.flags.set(AttrFlags::EXCLUDE_GUEST, default == GuestDefault::Excluded);
            return;
        }
        self.exclude(&mut attr.flags, Self::NONE, default);
        attr.flags.set(AttrFlags::PINNED, self.has(Modifier::Pinned));
        attr.flags.set(AttrFlags::EXCLUSIVE, self.has(Modifier::Exclusive));
        attr.precise = Precise::from_bits_truncate(self.precise.into());
    }

    /// Adds what a group's modifiers ask of a member that has its own already; gives both together.
    ///
    /// `D` and `e` are not for members but for the group: the caller sets them at the leader.
    ///
    /// # Errors
    /// [`TOO_PRECISE`] if both together have more than three `p`.
    pub(super) fn on_member(self, own: Self, attr: &mut Attr, default: GuestDefault) -> Result<Self, &'static str> {
        let both = Self { set: self.set | own.set, precise: self.precise + own.precise };
        if both.precise > MOST_PRECISE {
            return Err(TOO_PRECISE);
        }
        self.exclude(&mut attr.flags, own, default);
        attr.precise = Precise::from_bits_truncate(both.precise.into());
        Ok(both)
    }

    /// `u` alone means *not the kernel, not the hypervisor*: naming one level leaves out those not named.
    fn exclude(self, flags: &mut AttrFlags, before: Self, default: GuestDefault) {
        if self.any(&[Modifier::User, Modifier::Kernel, Modifier::Hypervisor]) && !flags.intersects(LEVELS) {
            flags.insert(LEVELS);
        }
        if self.names_guest() && !before.names_guest() {
            flags.insert(AttrFlags::EXCLUDE_GUEST | AttrFlags::EXCLUDE_HOST);
        }
        for (modifier, exclusion) in [
            (Modifier::User, AttrFlags::EXCLUDE_USER),
            (Modifier::Kernel, AttrFlags::EXCLUDE_KERNEL),
            (Modifier::Hypervisor, AttrFlags::EXCLUDE_HV),
            (Modifier::Guest, AttrFlags::EXCLUDE_GUEST),
            (Modifier::Host, AttrFlags::EXCLUDE_HOST),
        ] {
            if self.has(modifier) {
                flags.remove(exclusion);
            }
        }
        // User mode of a guest is rarely meant, and precise events can't be had there.
        let implies = (self.has(Modifier::User) || self.precise > 0) && default == GuestDefault::Excluded;
        if implies && !self.names_guest() && !before.names_guest() {
            flags.insert(AttrFlags::EXCLUDE_GUEST);
        }
        if self.has(Modifier::NoIdle) {
            flags.insert(AttrFlags::EXCLUDE_IDLE);
        }
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, modifier) in LETTERS {
            if self.has(modifier) {
                write!(f, "{letter}")?;
            }
        }
        f.write_str(&"p".repeat(self.precise.into()))
    }
}

impl fmt::Debug for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Modifiers({self})")
    }
}

fn bit(modifier: Modifier) -> u16 {
    1 << (modifier as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> AttrFlags {
        let mut attr = Attr::default();
        Modifiers::parse(text).unwrap().on_event(&mut attr, GuestDefault::Excluded);
        attr.flags
    }

    #[test]
    fn naming_a_level_leaves_out_the_others() {
        let (u, k, h) = (AttrFlags::EXCLUDE_USER, AttrFlags::EXCLUDE_KERNEL, AttrFlags::EXCLUDE_HV);
        let (g, host) = (AttrFlags::EXCLUDE_GUEST, AttrFlags::EXCLUDE_HOST);
        assert_eq!(flags(""), g);
        assert_eq!(flags("u"), k | h | g);
        assert_eq!(flags("k"), u | h);
        assert_eq!(flags("uk"), h | g);
        assert_eq!(flags("ukh"), g);
        assert_eq!(flags("G"), host);
        assert_eq!(flags("uG"), k | h | host);
        assert_eq!(flags("GH"), AttrFlags::empty());
        assert_eq!(flags("I"), AttrFlags::EXCLUDE_IDLE);
        assert_eq!(flags("De"), AttrFlags::PINNED | AttrFlags::EXCLUSIVE);
    }

    #[test]
    fn order_does_not_matter() {
        for (a, b) in [("uG", "Gu"), ("pG", "Gp"), ("ukpp", "pkpu")] {
            assert_eq!(Modifiers::parse(a), Modifiers::parse(b));
            assert_eq!(flags(a), flags(b));
        }
    }

    #[test]
    fn faults_name_the_letter() {
        for (text, place, says) in [
            ("uu", 1, "the modifier 'u' stands twice"),
            ("upppp", 4, TOO_PRECISE),
            ("uz", 1, "'z' is no modifier"),
            ("b", 0, "the modifier 'b' is not supported"),
        ] {
            let Err((at, problem)) = Modifiers::parse(text) else { panic!("{text}") };
            assert!(at == place && problem.starts_with(says), "{text} at {at}: {problem}");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        let all = Modifiers::parse("WeDSPIHGhkuppp").unwrap();
        assert_eq!(Modifiers::parse(&all.to_string()), Ok(all));
        assert_eq!(all.precise(), 3);
    }

    #[test]
    fn a_pmu_outside_the_cores_gets_no_implied_exclusion() {
        let mut attr = Attr::default();
        Modifiers::NONE.on_event(&mut attr, GuestDefault::Untouched);
        assert_eq!(attr.flags, AttrFlags::empty());
        Modifiers::parse("u").unwrap().on_event(&mut attr, GuestDefault::Untouched);
        assert_eq!(attr.flags, AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV);
    }
}
