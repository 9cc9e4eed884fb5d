//! One derived metric: a number, its name, its form and how bad it is.
//!
//! **Invariant:** knows nothing of events or reports.

use super::numbers;
use crate::style::Ink;

/// How the number of a metric is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Three decimals.
    Plain,
    /// Two decimals and a percent sign.
    Percent,
    /// Three decimals, a space and a percent sign.
    WidePercent,
    /// Two decimals.
    Ratio,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) value: f64,
    /// What the number is.
    pub(super) unit: &'static str,
    pub(super) form: Form,
    /// How much it should worry the reader.
    pub(super) ink: Ink,
}

impl Metric {
    pub(super) const fn new(value: f64, unit: &'static str, form: Form) -> Self {
        Self { value, unit, form, ink: Ink::Plain }
    }

    /// A share in percent, which should worry the reader the more of three rising limits it is above.
    pub(super) fn share(pct: f64, unit: &'static str, limits: [f64; 3]) -> Self {
        let ink = match limits.iter().filter(|&&limit| pct > limit).count() {
            0 => Ink::Plain,
            1 => Ink::Notice,
            2 => Ink::Poor,
            _ => Ink::Bad,
        };
        Self { ink, ..Self::new(pct, unit, Form::Percent) }
    }

    /// Returns the number padded as in the table.
    pub(super) fn padded(&self) -> String {
        let value = numbers::finite(self.value);
        match self.form {
            Form::Plain => format!("{value:8.3}"),
            Form::Percent => format!("{value:7.2}%"),
            Form::WidePercent => format!("{value:8.3} %"),
            Form::Ratio => format!("{value:7.2} "),
        }
    }

    /// Returns the bare number with the decimals of the table.
    pub(super) fn bare(&self) -> String {
        let value = numbers::finite(self.value);
        match self.form {
            Form::Plain | Form::WidePercent => format!("{value:.3}"),
            Form::Percent | Form::Ratio => format!("{value:.2}"),
        }
    }
}

/// What is known about the metric of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MetricCell {
    /// This event has no metric here.
    None,
    /// The event has a metric of this name, but its other half was not counted.
    Unavailable(&'static str),
    Known(Metric),
}

impl MetricCell {
    pub(super) const fn known(self) -> Option<Metric> {
        match self {
            Self::Known(metric) => Some(metric),
            Self::None | Self::Unavailable(_) => None,
        }
    }
}

/// The metrics of one row: nearly always one, a second for stalled cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Derived {
    /// The event's metric.
    pub(super) first: MetricCell,
    /// Stalled cycles per instruction, on a line of its own.
    pub(super) second: Option<Metric>,
}
