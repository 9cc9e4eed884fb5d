//! Derived metrics: what a count means beside another one (instructions per cycle, miss
//! rates, rates per second of task time).
//!
//! Read first: [`Metrics::new`], which looks at the whole report once, then
//! [`Metrics::of`], which answers for one row in O(1). Names, number formats and
//! thresholds are those of `perf stat` 6.1, so that columns can be compared.
//!
//! **Invariant:** two counts meet only when they belong to the same CPU, thread and
//! control group and count the same execution contexts (`cycles:u` never divides
//! `instructions:k`). Clocks are the exception: they tick for every context.

use super::metric::{Derived, Form, Metric, MetricCell};
use super::numbers;
use super::role::{ANY_CONTEXT, Contexts, Role, contexts};
use crate::stat::report::{Row, RowScope, StatReport};
use std::collections::HashMap;

/// Mean of the counts of one kind in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Basis {
    sum: f64,
    count: f64,
}

impl Basis {
    fn mean(self) -> f64 {
        if self.count == 0.0 { 0.0 } else { self.sum / self.count }
    }
}

/// All that the rows of a report can be compared with.
#[derive(Debug)]
pub(super) struct Metrics {
    bases: HashMap<(RowScope, Contexts, Role), Basis>,
    wall_ns: f64,
}

impl Metrics {
    /// Collects the counts that others are divided by. O(rows).
    pub(super) fn new(report: &StatReport) -> Self {
        let mut bases: HashMap<_, Basis> = HashMap::new();
        for row in &report.rows {
            let (Some(event), Some(raw)) = (report.events.get(row.event), row.value.raw()) else { continue };
            let role = Role::of(&event.canonical);
            if !role.is_basis() {
                continue;
            }
            let (contexts, value) = match role {
                // Clocks count nanoseconds, whatever they are shown in.
                Role::Clock => (ANY_CONTEXT, raw),
                _ => (contexts(&event.name), raw * event.scale),
            };
            let basis = bases.entry((row.scope, contexts, role)).or_default();
            basis.sum += value;
            basis.count += 1.0;
        }
        Self { bases, wall_ns: report.elapsed_ns as f64 }
    }

    pub(super) fn of(&self, report: &StatReport, row: &Row) -> Derived {
        let none = Derived { first: MetricCell::None, second: None };
        let (Some(event), Some(raw)) = (report.events.get(row.event), row.value.raw()) else { return none };
        if event.is_peak() {
            // So many bytes a second is no rate of anything that happened.
            return none;
        }
        let value = raw * event.scale;
        let place = MetricContext { metrics: self, scope: row.scope, contexts: contexts(&event.name) };
        let role = Role::of(&event.canonical);
        let first = match role {
            Role::Clock if self.wall_ns > 0.0 => known(raw / self.wall_ns, "CPUs utilized", Form::Plain),
            Role::Clock => MetricCell::Unavailable("CPUs utilized"),
            Role::Cycles => match place.mean(Role::Clock) {
                clock_ns if clock_ns > 0.0 => known(value / clock_ns, "GHz", Form::Plain),
                // Scripts know this spelling: perf writes it so when there is no number.
                _ => MetricCell::Unavailable("Ghz"),
            },
            Role::Instructions => match place.mean(Role::Cycles) {
                cycles if cycles > 0.0 => known(value / cycles, "insn per cycle", Form::Ratio),
                _ => MetricCell::Unavailable("insn per cycle"),
            },
            Role::BranchMisses => place.miss_rate(value, Role::Branches, "of all branches"),
            Role::LoadMisses(cache) => place.miss_rate(value, Role::Loads(cache), cache.unit()),
            Role::CacheMisses => place.cache_miss_rate(value),
            Role::FrontStalls => match place.share_pct(value, Role::Cycles) {
                0.0 => MetricCell::Unavailable("frontend cycles idle"),
                pct => MetricCell::Known(Metric::share(pct, "frontend cycles idle", [10.0, 30.0, 50.0])),
            },
            Role::BackStalls => {
                let pct = place.share_pct(value, Role::Cycles);
                MetricCell::Known(Metric::share(pct, "backend cycles idle", [20.0, 50.0, 75.0]))
            }
            Role::Branches | Role::CacheRefs | Role::Loads(_) | Role::Other => place.rate(value),
        };
        let second = (role == Role::Instructions).then(|| place.stalls_per_instruction(value)).flatten();
        Derived { first, second }
    }
}

const fn known(value: f64, unit: &'static str, form: Form) -> MetricCell {
    MetricCell::Known(Metric::new(value, unit, form))
}

/// One row's place: what its counts may be compared with.
#[derive(Clone, Copy)]
struct MetricContext<'a> {
    metrics: &'a Metrics,
    scope: RowScope,
    contexts: Contexts,
}

impl MetricContext<'_> {
    fn basis(self, role: Role) -> Basis {
        let contexts = if role == Role::Clock { ANY_CONTEXT } else { self.contexts };
        self.metrics.bases.get(&(self.scope, contexts, role)).copied().unwrap_or_default()
    }

    fn mean(self, role: Role) -> f64 {
        self.basis(role).mean()
    }

    fn share_pct(self, value: f64, of: Role) -> f64 {
        match self.mean(of) {
            total if total > 0.0 => 100.0 * value / total,
            _ => 0.0,
        }
    }

    fn miss_rate(self, value: f64, of: Role, unit: &'static str) -> MetricCell {
        if self.basis(of).count == 0.0 {
            return MetricCell::Unavailable(unit);
        }
        MetricCell::Known(Metric::share(self.share_pct(value, of), unit, [5.0, 10.0, 20.0]))
    }

    fn cache_miss_rate(self, value: f64) -> MetricCell {
        let unit = "of all cache refs";
        if self.basis(Role::CacheRefs).count == 0.0 {
            return MetricCell::Unavailable(unit);
        }
        known(self.share_pct(value, Role::CacheRefs), unit, Form::WidePercent)
    }

    fn stalls_per_instruction(self, instructions: f64) -> Option<Metric> {
        let stalls = self.mean(Role::FrontStalls).max(self.mean(Role::BackStalls));
        (stalls > 0.0 && instructions > 0.0)
            .then(|| Metric::new(stalls / instructions, "stalled cycles per insn", Form::Ratio))
    }

    fn rate(self, value: f64) -> MetricCell {
        let clock = self.basis(Role::Clock);
        if clock.count == 0.0 {
            return MetricCell::None;
        }
        let per_second = match clock.mean() {
            clock_ns if clock_ns > 0.0 => 1e9 * value / clock_ns,
            _ => 0.0,
        };
        let (value, unit) = numbers::rate(per_second);
        known(value, unit, Form::Plain)
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
