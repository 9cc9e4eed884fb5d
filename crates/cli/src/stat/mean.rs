//! Means over runs (`-r`), row by row.
//!
//! **Invariant:** a run that did not come to its end is no part of a mean.

use super::report::{RowScope, StatReport, Value};
use super::spread::Spread;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Mean {
    rows: HashMap<(usize, RowScope), RowSpread>,
    elapsed: Spread,
    user: Spread,
    system: Spread,
    last: Option<StatReport>,
}

#[derive(Default)]
struct RowSpread {
    value: Spread,
    enabled: Spread,
    running: Spread,
}

impl Mean {
    pub(crate) fn add(&mut self, report: StatReport) {
        for row in &report.rows {
            if let Value::Counted { raw, enabled_ns, running_ns } = row.value {
                let known = self.rows.entry((row.event, row.scope)).or_default();
                known.value.push(raw);
                known.enabled.push(enabled_ns as f64);
                known.running.push(running_ns as f64);
            }
        }
        self.elapsed.push(report.elapsed_ns as f64);
        self.user.push(report.user_ns.unwrap_or_default() as f64);
        self.system.push(report.system_ns.unwrap_or_default() as f64);
        self.last = Some(report);
    }

    pub(crate) fn runs(&self) -> u32 {
        self.elapsed.count()
    }

    /// The last report with the means in it; `None` without a run.
    pub(crate) fn into_report(self) -> Option<StatReport> {
        let mut report = self.last?;
        report.runs = self.elapsed.count();
        if report.runs < 2 {
            return Some(report);
        }
        for row in &mut report.rows {
            let Some(known) = self.rows.get(&(row.event, row.scope)) else { continue };
            row.value = Value::Counted {
                raw: known.value.mean(),
                enabled_ns: known.enabled.mean().round() as u64,
                running_ns: known.running.mean().round() as u64,
            };
            row.deviation_pct = Some(known.value.error_pct());
        }
        report.elapsed_ns = self.elapsed.mean().round() as u64;
        report.elapsed_error_ns = Some(self.elapsed.error());
        report.user_ns = report.user_ns.map(|_| self.user.mean().round() as u64);
        report.system_ns = report.system_ns.map(|_| self.system.mean().round() as u64);
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::format::sample;

    #[test]
    fn a_mean_of_three() {
        let mut mean = Mean::default();
        for (raw, elapsed_ns) in [(48.0, 90), (49.0, 100), (53.0, 110)] {
            let mut report = sample::counted(&[("page-faults", raw), ("cycles", 0.0)]);
            report.rows[1].value = Value::NotSupported;
            report.elapsed_ns = elapsed_ns;
            mean.add(report);
        }
        assert_eq!(mean.runs(), 3);
        let report = mean.into_report().unwrap();
        assert_eq!(report.rows[0].value.raw(), Some(50.0));
        assert!((report.rows[0].deviation_pct.unwrap() - 3.055_050_463_3).abs() < 1e-9);
        assert_eq!((report.rows[1].value, report.rows[1].deviation_pct), (Value::NotSupported, None));
        assert_eq!((report.elapsed_ns, report.runs), (100, 3));
        assert!(report.elapsed_error_ns.is_some());
    }

    #[test]
    fn one_run_has_no_deviation() {
        let mut mean = Mean::default();
        assert!(Mean::default().into_report().is_none());
        mean.add(sample::counted(&[("page-faults", 7.0)]));
        let report = mean.into_report().unwrap();
        assert_eq!((report.runs, report.elapsed_error_ns, report.rows[0].deviation_pct), (1, None, None));
    }
}
