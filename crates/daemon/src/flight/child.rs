//! A command that a recorder has let go.
//!
//! **Invariant:** it can be waited for and killed, whether it is followed or not.

use pmux::{Followed, Running};

/// A command that runs.
#[derive(Debug)]
pub enum Child {
    /// It stops when something is mapped, because a trigger looks for an address there.
    Followed(Box<Followed>),
    /// It is not followed.
    Running(Running),
}

impl Child {
    /// The command.
    pub fn running(&mut self) -> &mut Running {
        match self {
            Self::Followed(followed) => followed.running(),
            Self::Running(running) => running,
        }
    }
}
