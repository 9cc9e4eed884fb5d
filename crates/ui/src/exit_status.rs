//! The exit statuses of `pmux`, in one place.
//!
//! As with `env`, `nohup` and `timeout`, everything up to 124 belongs to the measured
//! command, so that a script can tell its failures from ours.
//!
//! **Invariant:** numbers only; who exits, and when, is decided elsewhere.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The command was measured and succeeded, or there was no command and all went well.
pub const SUCCESS: u8 = 0;
/// `pmux sim`: a scenario failed, or was skipped although `PMUX_REQUIRE` says that it can run here.
pub const SCENARIO_FAILED: u8 = 1;
/// `pmux plan`: an event can never be counted like this.
pub const NEVER_FITS: u8 = 1;
/// `pmux serve` and `pmux status`: there is no service.
pub const NO_SERVICE: u8 = 1;
/// `pmux` itself failed: wrong options, no event could be opened, a target is gone, the report could not be written.
///
/// 126 (a command that can't be executed) and 127 (one that is not found) come from `pmux::SpawnError::exit_code`.
pub const FAILED: u8 = 125;

/// Returns the status for a command that has ended.
pub fn of_command(status: ExitStatus) -> u8 {
    status
        .code()
        .map_or_else(|| killed_by(status.signal().unwrap_or_default()), |code| u8::try_from(code).unwrap_or(FAILED))
}

/// Returns the status for a command that a signal killed, as a shell reports it: 128 and
/// the number of the signal.
pub fn killed_by(signal: i32) -> u8 {
    u8::try_from(signal).map_or(FAILED, |number| 128_u8.saturating_add(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_shifted() {
        assert_eq!(killed_by(9), 137);
        assert_eq!(killed_by(15), 143);
        assert_eq!(killed_by(200), 255);
        assert_eq!(killed_by(-1), FAILED);
    }
}
