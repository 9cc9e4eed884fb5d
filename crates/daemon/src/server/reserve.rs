//! Files that are kept back for clients that connect.
//!
//! What it is: [`Reserve`]. A service that has used up its files could not even say so to the next client, which would wait. These
//! few files are given up for a moment while a client is taken in, looked at, and, where they can't be had back, turned away.
//!
//! **Invariant:** a client that stays has been looked at with files to look with, and has not cost one of these.

use std::os::fd::{AsFd, OwnedFd};

/// The connection, its process, and a file of `/proc` at a time; one for chance.
const KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Reserve(Vec<OwnedFd>);

impl Reserve {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Lets others have them.
    pub(super) fn give_up(&mut self) {
        self.0.clear();
    }

    /// Takes them back, as copies of a file; whether all could be had.
    pub(super) fn refill(&mut self, of: impl AsFd) -> bool {
        while self.0.len() < KEPT {
            let Ok(copy) = of.as_fd().try_clone_to_owned() else { return false };
            self.0.push(copy);
        }
        true
    }
}
