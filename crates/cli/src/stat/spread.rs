//! Mean and standard error over repeated runs (`-r`).
//!
//! **Invariant:** keeps three numbers whatever the number of runs, and never subtracts two
//! large sums (Welford's method), so that equal runs give exactly 0.

/// Running mean and variance of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    count: u32,
    mean: f64,
    squares: f64,
}

impl Spread {
    pub(crate) fn push(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        let before = value - self.mean;
        self.mean += before / f64::from(self.count);
        self.squares += before * (value - self.mean);
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the mean, 0 for an empty series.
    pub(crate) const fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the standard error of the mean: how far the mean itself may be off. 0 for
    /// fewer than two values.
    pub(crate) fn error(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let runs = f64::from(self.count);
        (self.squares / (runs - 1.0) / runs).sqrt()
    }

    /// Returns the standard error in percent of the mean, 0 when the mean is 0.
    pub(crate) fn error_pct(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_error_of_known_series() {
        let mut spread = Spread::default();
        assert_eq!((spread.count(), spread.error()), (0, 0.0));
        for value in [48.0, 49.0, 53.0] {
            spread.push(value);
        }
        assert!((spread.mean() - 50.0).abs() < 1e-12);
        // Variance (4 + 1 + 9) / 2 = 7, error of the mean sqrt(7 / 3).
        assert!((spread.error() - 1.527_525_231_65).abs() < 1e-9);
        assert!((spread.error_pct() - 3.055_050_463_3).abs() < 1e-9);
    }

    #[test]
    fn equal_large_values_have_no_error() {
        let mut spread = Spread::default();
        for _ in 0..1_000 {
            spread.push(9.007e15);
        }
        assert!(spread.error() == 0.0);
    }
}
