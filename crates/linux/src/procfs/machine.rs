//! What the kernel counts for the machine as a whole: `/proc/stat` and `/proc/vmstat`.
//!
//! **Invariant:** the numbers run since boot; a caller that wants a span takes two readings.

use super::{Proc, ProcError, keyed};

/// Where the time of a CPU went, in clock ticks ([`Proc::ticks_per_second`]).
///
/// Time in a guest is inside `user` and `nice` already, so it has no field. Source: `proc_stat(5)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTimes {
    /// User mode.
    pub user: u64,
    /// User mode at a lowered priority.
    pub nice: u64,
    /// The kernel.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do, and a task waits for a device.
    pub io_wait: u64,
    /// Interrupts.
    pub irq: u64,
    /// Work put off by interrupts.
    pub soft_irq: u64,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

impl CpuTimes {
    /// All the time, busy or not.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.user_mode() + self.kernel_mode() + self.idle + self.io_wait + self.steal
    }

    /// The time in user mode.
    #[must_use]
    pub fn user_mode(&self) -> u64 {
        self.user + self.nice
    }

    /// The time in the kernel, interrupts included.
    #[must_use]
    pub fn kernel_mode(&self) -> u64 {
        self.system + self.irq + self.soft_irq
    }

    fn parse(words: &mut std::str::SplitAsciiWhitespace<'_>) -> Option<Self> {
        let mut first = || words.next()?.parse::<u64>().ok();
        let (user, nice, system, idle) = (first()?, first()?, first()?, first()?);
        // The later columns came one by one in old kernels.
        let mut later = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (io_wait, irq, soft_irq, steal) = (later(), later(), later(), later());
        Some(Self { user, nice, system, idle, io_wait, irq, soft_irq, steal })
    }
}

/// One reading of `/proc/stat`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MachineStat {
    /// All CPUs together.
    pub all: CpuTimes,
    /// Each CPU that is online, by number.
    pub cpus: Vec<(u32, CpuTimes)>,
    /// Context switches.
    pub context_switches: u64,
}

impl MachineStat {
    /// Parses the file; `None` where the line of all CPUs is missing or broken.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut stat = Self::default();
        let mut all = None;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let key = words.next().unwrap_or_default();
            match key.strip_prefix("cpu") {
                Some("") => all = CpuTimes::parse(&mut words),
                Some(number) => {
                    let cpu = number.parse().ok().zip(CpuTimes::parse(&mut words));
                    stat.cpus.extend(cpu);
                }
                None if key == "ctxt" => stat.context_switches = words.next()?.parse().ok()?,
                None => {}
            }
        }
        stat.all = all?;
        Some(stat)
    }

    /// The times of one CPU, if it is online.
    #[must_use]
    pub fn cpu(&self, cpu: u32) -> Option<&CpuTimes> {
        self.cpus.iter().find(|(number, _)| *number == cpu).map(|(_, times)| times)
    }
}

/// The page faults of the machine since boot, from `/proc/vmstat`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// All of them.
    pub all: u64,
    /// Those that had to read from a device.
    pub major: u64,
}

impl Proc {
    /// Reads the CPU times and counts of the machine.
    ///
    /// # Errors
    /// [`ProcError::NotMounted`], [`ProcError::Denied`], [`ProcError::Malformed`].
    pub fn machine(&self) -> Result<MachineStat, ProcError> {
        let text = self.read_global("stat")?;
        MachineStat::parse(&text)
            .ok_or_else(|| ProcError::Malformed { path: self.root.join("stat"), expected: "cpu line" })
    }

    /// Reads the page faults of the machine.
    ///
    /// # Errors
    /// As [`Proc::machine`].
    pub fn faults(&self) -> Result<Faults, ProcError> {
        let text = self.read_global("vmstat")?;
        match (keyed(&text, "pgfault"), keyed(&text, "pgmajfault")) {
            (Some(all), Some(major)) => Ok(Faults { all, major }),
            _ => Err(ProcError::Malformed { path: self.root.join("vmstat"), expected: "pgfault line" }),
        }
    }
}
