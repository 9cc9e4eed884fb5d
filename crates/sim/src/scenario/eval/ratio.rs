//! Fractions.
//!
//! **Invariant:** lowest terms, a denominator above zero; what does not fit is `None`, never another number.

use std::cmp::Ordering;

use super::super::ast::Decimal;

/// A fraction in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ratio {
    numerator: i128,
    /// Above zero.
    denominator: i128,
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Ratio {
    pub(super) fn whole(value: u64) -> Self {
        Self { numerator: i128::from(value), denominator: 1 }
    }

    pub(super) fn decimal(value: Decimal) -> Self {
        let (numerator, denominator) = value.as_fraction();
        Self::new(i128::from(numerator), i128::from(denominator)).unwrap_or(Self::whole(0))
    }

    fn new(numerator: i128, denominator: i128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let common = greatest_common_divisor(numerator.unsigned_abs(), denominator.unsigned_abs());
        let common = i128::try_from(common).ok()?;
        let (numerator, denominator) = (numerator / common, denominator / common);
        if denominator > 0 {
            return Some(Self { numerator, denominator });
        }
        Some(Self { numerator: numerator.checked_neg()?, denominator: denominator.checked_neg()? })
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn subtract(self, other: Self) -> Option<Self> {
        self.add(Self { numerator: other.numerator.checked_neg()?, ..other })
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        // Crosswise first: the product of two large fractions may be small.
        let (a, b) = (Self::new(self.numerator, other.denominator)?, Self::new(other.numerator, self.denominator)?);
        Self::new(a.numerator.checked_mul(b.numerator)?, a.denominator.checked_mul(b.denominator)?)
    }

    pub(super) fn divide(self, other: Self) -> Option<Self> {
        self.multiply(Self::new(other.denominator, other.numerator)?)
    }

    pub(super) fn magnitude(self) -> Self {
        // The smallest number of all has no counterpart; it never comes out of numbers of 64 bits.
        Self { numerator: self.numerator.saturating_abs(), ..self }
    }

    pub(super) fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub(super) fn as_whole(self) -> Option<i128> {
        (self.denominator == 1).then_some(self.numerator)
    }

    pub(super) fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    /// By whole parts first, then by what is left, turned over: no product that could be too large.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut a, mut b) = ((self.numerator, self.denominator), (other.numerator, other.denominator));
        let mut turned = false;
        loop {
            let (whole_a, whole_b) = (a.0.div_euclid(a.1), b.0.div_euclid(b.1));
            let (rest_a, rest_b) = (a.0.rem_euclid(a.1), b.0.rem_euclid(b.1));
            let order = whole_a.cmp(&whole_b);
            let order = match (order, rest_a, rest_b) {
                (Ordering::Equal, 0, 0) => return Ordering::Equal,
                (Ordering::Equal, 0, _) => Ordering::Less,
                (Ordering::Equal, _, 0) => Ordering::Greater,
                (Ordering::Equal, ..) => {
                    (a, b) = ((a.1, rest_a), (b.1, rest_b));
                    turned = !turned;
                    continue;
                }
                (order, ..) => order,
            };
            return if turned { order.reverse() } else { order };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_does_not_fit_is_none() {
        let large = Ratio { numerator: i128::MAX, denominator: 1 };
        assert_eq!(large.add(Ratio::whole(1)), None);
        assert_eq!(large.multiply(Ratio::whole(2)), None);
        assert_eq!(Ratio::whole(1).divide(Ratio::whole(0)), None);
    }

    #[test]
    fn large_fractions_are_compared_exactly() {
        let (a, b) = (i128::MAX - 1, i128::MAX);
        let (Some(below), Some(above)) = (Ratio::new(a, b), Ratio::new(b, a)) else { panic!("they are fractions") };
        assert!(below < above);
        assert_eq!(above.cmp(&below), Ordering::Greater);
        assert_eq!(below.cmp(&below), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn as_numbers_that_fit_are(a in -1000_i128..1000, b in 1_i128..50, c in -1000_i128..1000, d in 1_i128..50) {
            let (Some(x), Some(y)) = (Ratio::new(a, b), Ratio::new(c, d)) else { panic!("they are fractions") };
            prop_assert_eq!(x.cmp(&y), (a * d).cmp(&(c * b)));
            prop_assert_eq!(x.add(y), Ratio::new(a * d + c * b, b * d));
            prop_assert_eq!(x.subtract(y), Ratio::new(a * d - c * b, b * d));
            prop_assert_eq!(x.multiply(y), Ratio::new(a * c, b * d));
            prop_assert_eq!(x.divide(y), Ratio::new(a * d, b * c));
        }
    }
}
