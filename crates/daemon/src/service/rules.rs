//! What the configuration says about requests, for each user.
//!
//! **Invariant:** numbers of the configuration only: what clients hold is in `budget` and `client`.

use crate::config::{Files, LimitsConfig};

/// Why a user is given nothing although files are left.
pub const KEPT_FOR_ROOT: &str = "the open files that the service has left are kept for root (`limits.files_for_root` in the service's configuration)";

/// What the configuration says about requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// How much a client and a user may ask for.
    pub limits: LimitsConfig,
    /// Who is given the kernel's files.
    pub files: Files,
    /// How often pages are written, in milliseconds.
    pub refresh_ms: u32,
    /// Bytes of the kernel's ring of each event of a subscription.
    pub kernel_ring_bytes: u64,
    /// How many files the service may have open.
    pub most_files: u64,
    /// The service's own user: no budget holds for it, as for root.
    pub own_user: u32,
}

impl Rules {
    /// How many files all clients of a user together may cost the service.
    #[must_use]
    pub fn files_per_user(&self) -> u64 {
        match self.limits.files_per_user {
            0 => self.most_files / 4,
            files => files.into(),
        }
    }

    /// Whether a user is bound by budgets, and leaves alone what is kept back for root.
    #[must_use]
    pub const fn binds(&self, user: u32) -> bool {
        user != 0 && user != self.own_user
    }

    /// How much of `most` there is for a user: some of it is kept back for root, at most a quarter.
    pub(super) fn left_for(&self, user: u32, most: u32, for_root: u32) -> u32 {
        if self.binds(user) { most - for_root.min(most / 4) } else { most }
    }

    /// What says how many `clients` or `events` there may be: all of that key, or what root's share leaves of it.
    pub(super) fn key(what: &str, is_all: bool) -> String {
        let share = if is_all { String::new() } else { format!(" less `limits.{what}_for_root`") };
        format!("`limits.{what}`{share}")
    }

    /// How many files are to be left when such a user gets what it asks for.
    #[must_use]
    pub const fn files_kept_back(&self, user: u32) -> u64 {
        if self.binds(user) { self.limits.files_for_root as u64 } else { 0 }
    }
}
