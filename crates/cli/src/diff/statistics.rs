//! What is a change, and what is chance.
//!
//! What it is: a share of one recording has the uncertainty of counting samples: each is met or not, independently of the others. Several
//! recordings of one side also show how much runs differ; the larger uncertainty counts. Read first: [`Side`], [`compare`].
//!
//! **Invariant:** pure. Where nothing can be said about chance the result is `None`, never 0.

// Not those of `f64`: they would have every start of the command load the C library's libm.
use libm::{exp, lgamma, log};

/// One quantity in one recording.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Quantity {
    pub(super) value: f64,
    /// The square of its standard error, as far as one recording tells it.
    pub(super) variance: Option<f64>,
}

/// One quantity in all recordings of one side.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Side {
    pub(super) mean: f64,
    /// The square of the standard error of the mean.
    pub(super) variance: Option<f64>,
    /// How well the variance is known; without bound where it is that of counting.
    pub(super) freedom: f64,
}

impl Side {
    /// Of one or more recordings.
    pub(super) fn of(measured: &[Quantity]) -> Self {
        let count = measured.len().max(1) as f64;
        let mean = measured.iter().map(|one| one.value).sum::<f64>() / count;
        let counting: Option<f64> = measured.iter().map(|one| one.variance).sum();
        let counting = counting.map(|sum| sum / (count * count));
        if measured.len() < 2 {
            return Self { mean, variance: counting, freedom: f64::INFINITY };
        }
        let spread = measured.iter().map(|one| (one.value - mean).powi(2)).sum::<f64>() / (count - 1.0) / count;
        match counting {
            Some(counting) if counting >= spread => Self { mean, variance: Some(counting), freedom: f64::INFINITY },
            _ => Self { mean, variance: Some(spread), freedom: count - 1.0 },
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Change {
    pub(super) before: f64,
    pub(super) after: f64,
    /// Its standard error.
    pub(super) error: Option<f64>,
    /// So large are 19 of 20 differences at most, if nothing has changed.
    pub(super) noise: Option<f64>,
    /// How likely one at least so large is, if nothing has changed.
    pub(super) chance: Option<f64>,
}

impl Change {
    pub(super) fn by(&self) -> f64 {
        self.after - self.before
    }

    /// Whether it is more than chance, where so many quantities are compared.
    pub(super) fn is_beyond_noise(&self, compared: usize) -> Option<bool> {
        self.chance.map(|chance| chance * compared.max(1) as f64 <= LEVEL)
    }
}

/// How often chance may mark anything at all, if nothing has changed.
pub(super) const LEVEL: f64 = 0.05;

pub(super) fn compare(before: Side, after: Side) -> Change {
    let (a, b) = (before, after);
    let variance = a.variance.zip(b.variance).map(|(a, b)| a + b);
    let error = variance.map(f64::sqrt);
    // Welch and Satterthwaite: how well the sum of both variances is known.
    let part = |side: Side| side.variance.unwrap_or(0.0).powi(2) / side.freedom;
    let parts = part(a) + part(b);
    let freedom = |error: f64| if parts > 0.0 { error.powi(4) / parts } else { f64::INFINITY };
    let chance = error.map(|error| {
        let by = (b.mean - a.mean).abs();
        if error == 0.0 {
            return if by == 0.0 { 1.0 } else { 0.0 };
        }
        two_sided(by / error, freedom(error))
    });
    let noise = error.map(|error| if error == 0.0 { 0.0 } else { error * distance_of_level(freedom(error)) });
    Change { before: a.mean, after: b.mean, error, noise, chance }
}

/// How many standard errors from the middle [`LEVEL`] of all values are at least: the inverse of [`two_sided`].
fn distance_of_level(freedom: f64) -> f64 {
    if freedom >= 1e6 {
        return 1.959_964;
    }
    // With one degree of freedom it is 12.7, with less it is no use to know.
    let (mut low, mut high) = (1.0, 1000.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > LEVEL { low = middle } else { high = middle }
    }
    high
}

/// How likely a value at least so many standard errors from the middle is, on either side: Student's distribution.
fn two_sided(distance: f64, freedom: f64) -> f64 {
    // From here on the normal distribution is the same to five digits.
    let freedom = freedom.min(1e6);
    incomplete_beta(freedom / (freedom + distance * distance), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x));
    // The fraction converges fast below this point, and its mirror image above.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// Evaluated from the front, after Lentz.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for step in 1..10_000 {
        let m = f64::from(step);
        for term in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            result *= c * d;
        }
        if (c * d - 1.0).abs() < 1e-12 {
            break;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        for (distance, freedom, chance) in [
            (1.959_964, f64::INFINITY, 0.05),
            (2.575_829, f64::INFINITY, 0.01),
            (12.706_2, 1.0, 0.05),
            (4.302_65, 2.0, 0.05),
            (2.228_14, 10.0, 0.05),
            (0.0, 5.0, 1.0),
        ] {
            let found = two_sided(distance, freedom);
            assert!((found - chance).abs() < 2e-5, "{distance} with {freedom}: {found}");
        }
    }

    #[test]
    fn noise_is_wider_where_few_runs_tell_it() {
        for (freedom, distance) in [(f64::INFINITY, 1.959_964), (1.0, 12.7062), (4.0, 2.776_45), (10.0, 2.228_14)] {
            assert!((distance_of_level(freedom) - distance).abs() < 1e-3, "{freedom}");
        }
        let two = |values: [f64; 2]| Side::of(&values.map(|value| Quantity { value, variance: Some(0.0) }));
        let change = compare(two([1.0, 3.0]), two([2.0, 4.0]));
        let (error, noise) = (change.error.unwrap(), change.noise.unwrap());
        assert!(noise > 4.0 * error && noise < 4.4 * error, "two degrees of freedom: {}", noise / error);
    }

    fn one(value: f64, variance: f64) -> Side {
        Side::of(&[Quantity { value, variance: Some(variance) }])
    }

    #[test]
    fn a_change_is_measured_by_its_error() {
        let small = compare(one(0.10, 1e-4), one(0.11, 1e-4));
        assert_eq!(small.is_beyond_noise(1), Some(false));
        let large = compare(one(0.10, 1e-4), one(0.20, 1e-4));
        assert_eq!(large.is_beyond_noise(1), Some(true));
        // The same would happen somewhere among very many by chance.
        let medium = compare(one(0.10, 1e-4), one(0.14, 1e-4));
        assert_eq!((medium.is_beyond_noise(1), medium.is_beyond_noise(1000)), (Some(true), Some(false)));
    }

    #[test]
    fn runs_that_differ_count_more_than_samples() {
        let runs = |values: &[f64]| {
            Side::of(&values.iter().map(|&value| Quantity { value, variance: Some(1e-8) }).collect::<Vec<_>>())
        };
        let wild = compare(runs(&[0.1, 0.3, 0.2]), runs(&[0.2, 0.4, 0.3]));
        assert_eq!(wild.is_beyond_noise(1), Some(false));
        let tame = compare(runs(&[0.199, 0.2, 0.201]), runs(&[0.299, 0.3, 0.301]));
        assert_eq!(tame.is_beyond_noise(1), Some(true));
        // One run of which nothing is known but its value.
        let unknown = Side::of(&[Quantity { value: 5.0, variance: None }]);
        assert_eq!(compare(unknown, unknown).is_beyond_noise(1), None);
        let several = Side::of(&[Quantity { value: 5.0, variance: None }, Quantity { value: 5.5, variance: None }]);
        assert!(compare(several, several).chance.is_some());
    }
}
