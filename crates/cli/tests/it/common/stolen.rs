//! Time that no thread of the machine had.

/// How long interrupts and hypervisors have kept the CPUs: time that threads neither ran nor waited, as they see it.
pub(crate) struct Stolen([u64; 3]);

/// Of USER_HZ.
const TICK_NS: u64 = 10_000_000;

impl Stolen {
    pub(crate) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        // Behind `cpu` and the times of user, nice, system, idle and iowait: irq, softirq, steal.
        let mut words = stat.lines().next().unwrap().split_whitespace().skip(6);
        Self([(); 3].map(|()| words.next().unwrap().parse().unwrap()))
    }

    /// How long it can have been since then, ns: of each time, the part of a tick is not told.
    pub(crate) fn since_ns(&self) -> u64 {
        let each = self.0.iter().zip(Self::now().0).map(|(before, now)| now - before + u64::from(now > 0));
        each.sum::<u64>() * TICK_NS
    }
}
