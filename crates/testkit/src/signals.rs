//! The dispositions of signals that tests rely on.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

/// Lets the programs that this process starts have the default disposition of the signals that end a program.
///
/// A shell starts the background jobs of a script with SIGINT and SIGQUIT ignored, and `nohup` ignores SIGHUP; what is ignored stays
/// ignored over fork and exec. What is *handled* becomes the default by exec: each such signal gets a handler here that does nothing, so
/// that it ends the tests as little as before.
pub(crate) fn default_signals() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        for signal in [SIGINT, SIGQUIT, SIGHUP, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 != 0) {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).unwrap();
        }
    });
}
