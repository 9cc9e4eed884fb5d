//! Which day of the calendar it is.
//!
//! **Invariant:** pure; days are those of UTC.

/// A day of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Date {
    /// The year.
    pub year: i128,
    /// From 1 on.
    pub month: i128,
    /// From 1 on.
    pub day: i128,
}

/// The day so many days after 1 January 1970.
#[must_use]
pub fn date(days: i128) -> Date {
    // Days are counted from 1 March of year 0, so that the leap day is the last of its year,
    // and in eras of 400 years, which all have the same number of days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    Date { year: era * 400 + year_of_era + i128::from(month < 3), month, day }
}
