//! The words of the scenario language that everything else is made of: places, names, numbers, CPUs, errors.
//!
//! **Invariant:** plain data. A [`SourceSpan`] says where something stood and never takes part in a comparison.

use std::fmt;
use std::hash::{Hash, Hasher};

use pmux_engine::{CpuId, Nanos};

/// The highest number of CPUs that a scenario can have.
pub const MAX_CPUS: u32 = 1024;

/// Where something stands in the text of a scenario.
///
/// All places are equal to each other: scenarios are compared by what they say. What was not read from a text stands at
/// [`SourceSpan::NOWHERE`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceSpan {
    /// The line, from 1; 0 is nowhere.
    pub line: u32,
    /// The column of the first character, from 1, in characters.
    pub column: u32,
    /// The first byte of the text that belongs to it.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

impl SourceSpan {
    /// The place of what was made by a program.
    pub const NOWHERE: Self = Self { line: 0, column: 0, start: 0, end: 0 };

    /// From the beginning of this place to the end of `last`.
    #[must_use]
    pub fn to(self, last: Self) -> Self {
        Self { end: last.end.max(self.start), ..self }
    }
}

impl PartialEq for SourceSpan {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SourceSpan {}

impl Hash for SourceSpan {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Display for SourceSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The name of a task, an event or a set: a letter or `_`, then letters, digits and `_`; never a word of the language.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it was written.
    pub place: SourceSpan,
}

impl Name {
    /// A name that stands nowhere.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: SourceSpan::NOWHERE }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number as it is written: `mantissa` without its point, of which the last `places` digits stand behind the point.
///
/// Made by [`Decimal::new`], which drops zeros at the end, so that equal numbers are equal values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decimal {
    mantissa: u64,
    places: u8,
}

impl Decimal {
    /// The most digits behind the point.
    pub const MAX_PLACES: u8 = 9;

    /// The number `mantissa / 10^places`; `None` with more than [`Decimal::MAX_PLACES`] digits behind the point.
    #[must_use]
    pub fn new(mut mantissa: u64, mut places: u8) -> Option<Self> {
        while places > 0 && mantissa.is_multiple_of(10) {
            mantissa /= 10;
            places -= 1;
        }
        (places <= Self::MAX_PLACES).then_some(Self { mantissa, places })
    }

    /// A whole number.
    #[must_use]
    pub const fn whole(value: u64) -> Self {
        Self { mantissa: value, places: 0 }
    }

    /// The whole number, if it is one.
    #[must_use]
    pub fn as_whole(self) -> Option<u64> {
        (self.places == 0).then_some(self.mantissa)
    }

    /// The number as the fraction `(numerator, denominator)`, exactly.
    #[must_use]
    pub fn as_fraction(self) -> (u64, u64) {
        (self.mantissa, 10_u64.pow(u32::from(self.places.min(Self::MAX_PLACES))))
    }

    /// The nearest floating-point number.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        let (numerator, denominator) = self.as_fraction();
        numerator as f64 / denominator as f64
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.places == 0 {
            return write!(f, "{}", self.mantissa);
        }
        let (numerator, denominator) = self.as_fraction();
        write!(f, "{}.{:0width$}", numerator / denominator, numerator % denominator, width = usize::from(self.places))
    }
}

/// Some CPUs: ascending, each once, at least one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CpuList(Vec<CpuId>);

impl CpuList {
    /// The list of these CPUs; `None` of none.
    #[must_use]
    pub fn new(cpus: impl IntoIterator<Item = CpuId>) -> Option<Self> {
        let mut cpus: Vec<CpuId> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        (!cpus.is_empty()).then_some(Self(cpus))
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// The CPUs, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[CpuId] {
        &self.0
    }

    /// Whether a CPU is one of them.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// The highest of them.
    #[must_use]
    pub fn highest(&self) -> CpuId {
        self.0.last().copied().unwrap_or(CpuId(0))
    }
}

/// Prints `0-1,3`.
impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while let [first, ..] = rest {
            let run = rest.iter().zip(first.0..).take_while(|(cpu, number)| cpu.0 == *number).count();
            let (range, tail) = rest.split_at(run.max(1));
            match range {
                [.., last] if range.len() > 1 => write!(f, "{first}-{last}")?,
                _ => write!(f, "{first}")?,
            }
            if !tail.is_empty() {
                f.write_str(",")?;
            }
            rest = tail;
        }
        Ok(())
    }
}

/// An error number of Linux that a statement is expected to fail with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(i32);

const ERRNOS: [(&str, i32); 18] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EIO", 5),
    ("E2BIG", 7),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("EMFILE", 24),
    ("ENOSPC", 28),
    ("ENODATA", 61),
    ("EOVERFLOW", 75),
    ("EOPNOTSUPP", 95),
];

impl Errno {
    /// All that have a name here.
    pub fn all() -> impl Iterator<Item = Self> {
        ERRNOS.iter().map(|(_, number)| Self(*number))
    }

    /// The error of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ERRNOS.iter().find(|(known, _)| *known == name).map(|(_, number)| Self(*number))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        ERRNOS.iter().find(|(_, number)| *number == self.0).map_or("", |(name, _)| name)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Prints a span of time with the largest unit that leaves a whole number: `10ms`, `1500us`.
#[must_use]
pub fn duration_text(span: Nanos) -> String {
    let (unit, size) = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)]
        .into_iter()
        .find(|(_, size)| span.0 > 0 && span.0.is_multiple_of(*size))
        .unwrap_or(("ns", 1));
    format!("{}{unit}", span.0 / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_drop_zeros_at_their_end() {
        assert_eq!(Decimal::new(40, 2), Decimal::new(4, 1));
        assert_eq!(Decimal::new(4, 1).map(|d| d.to_string()).as_deref(), Some("0.4"));
        assert_eq!(Decimal::new(1005, 3).map(|d| d.to_string()).as_deref(), Some("1.005"));
        assert_eq!(Decimal::new(0, 5), Some(Decimal::whole(0)));
        assert_eq!(Decimal::new(1, 10), None);
    }

    #[test]
    fn cpu_lists_print_as_ranges() {
        let list = |cpus: &[u32]| CpuList::new(cpus.iter().copied().map(CpuId)).map(|list| list.to_string());
        assert_eq!(list(&[3, 0, 1, 1]).as_deref(), Some("0-1,3"));
        assert_eq!(list(&[5]).as_deref(), Some("5"));
        assert_eq!(list(&[]), None);
    }

    #[test]
    fn durations_take_the_largest_whole_unit() {
        for (span, text) in [(0, "0ns"), (1_500, "1500ns"), (2_000_000, "2ms"), (3_000_000_000, "3s")] {
            assert_eq!(duration_text(Nanos(span)), text);
        }
    }

    #[test]
    fn errnos_are_found_by_their_names() {
        for errno in Errno::all() {
            assert_eq!(Errno::from_name(errno.name()), Some(errno));
        }
        assert_eq!(Errno::from_name("ENOSPC").map(Errno::number), Some(28));
    }
}
