//! CPUs that a scenario switches off and on.
//!
//! What it is: who may do it is alone: programs that take CPUs of this machine away wait for each other, by a lock file.
//!
//! **Invariant:** what was switched off here is on again when this is dropped.

use super::{StatementError, Stop, wakes};
use pmux::wait::Waiter;
use pmux_sim::scenario::ast::{Requirement, Scenario};
use pmux_sim::scenario::needs;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::time::{Duration, Instant};

/// How often one looks whether the other is done.
const LOOK: Duration = Duration::from_millis(20);

fn switch(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/online")
}

pub(super) fn can_switch(cpu: u32) -> bool {
    std::fs::OpenOptions::new().write(true).open(switch(cpu)).is_ok()
}

/// The right to switch CPUs, where a scenario needs it.
pub(super) struct Switches {
    off: BTreeSet<u32>,
    _alone: Option<File>,
}

impl Switches {
    /// Waits until no other process switches CPUs, if this scenario does.
    pub(super) fn take(scenario: &Scenario, waiter: &mut Waiter) -> Result<Self, Stop> {
        if !needs(scenario).cover(Requirement::Hotplug) {
            return Ok(Self { off: BTreeSet::new(), _alone: None });
        }
        let path = std::env::temp_dir().join("pmux-test-hotplug.lock");
        let failed = |error: std::io::Error| StatementError::new(format!("{}: {error}", path.display()));
        let file = File::create(&path).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { off: BTreeSet::new(), _alone: Some(file) }),
                Err(TryLockError::WouldBlock) => {
                    wakes(waiter, Some(Instant::now() + LOOK))?;
                }
                Err(TryLockError::Error(error)) => return Err(failed(error).into()),
            }
        }
    }

    pub(super) fn off(&mut self, cpu: u32) -> Result<(), StatementError> {
        // Noted before: a write that fails may have done it.
        self.off.insert(cpu);
        self.write(cpu, "0")
    }

    pub(super) fn on(&mut self, cpu: u32) -> Result<(), StatementError> {
        self.write(cpu, "1")?;
        self.off.remove(&cpu);
        Ok(())
    }

    fn write(&self, cpu: u32, what: &str) -> Result<(), StatementError> {
        let path = switch(cpu);
        std::fs::write(&path, what)
            .map_err(|error| StatementError { errno: error.raw_os_error(), message: format!("{path}: {error}") })
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        for &cpu in &self.off {
            for _ in 0..100 {
                if std::fs::write(switch(cpu), "1").is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}
