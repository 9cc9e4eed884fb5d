//! CPU 1, for tests that take it away.
//!
//! **Invariant:** it is online again when a test has ended, also by a panic, and one test at a time takes it.

use crate::{HOTPLUG, lock, needs};
use std::fs::File;
use std::time::Duration;

/// "0" written there takes it away.
pub const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// CPU 1, which is online again when this is dropped, also by a panic.
pub struct CpuSwitch {
    _lock: File,
}

impl CpuSwitch {
    /// `None`, and a skip, where it was not asked for or cannot be.
    pub fn take() -> Option<Self> {
        let asked = std::env::var_os("PMUX_TEST_HOTPLUG").is_some_and(|value| value == "1");
        let required =
            std::env::var("PMUX_REQUIRE").unwrap_or_default().split(',').any(|name| name.trim() == "hotplug");
        if !asked && !required {
            println!("skipped: needs PMUX_TEST_HOTPLUG=1");
            return None;
        }
        let writable = std::fs::OpenOptions::new().write(true).open(SWITCH).is_ok();
        if !needs("hotplug", "a CPU 1 that root may switch off", writable) {
            return None;
        }
        let switch = Self { _lock: lock(HOTPLUG) };
        assert_eq!(std::fs::read_to_string(SWITCH).unwrap().trim(), "1", "CPU 1 is online at the start");
        Some(switch)
    }

    /// Off with "0", on with "1".
    pub fn turn(&self, on: &str) {
        std::fs::write(SWITCH, on).unwrap();
    }
}

impl Drop for CpuSwitch {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::write(SWITCH, "1").is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
