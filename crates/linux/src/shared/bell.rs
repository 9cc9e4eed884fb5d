//! A bell: one side rings it, the other one waits for it.
//!
//! What it is: a pipe. What matters is whether there is a byte in it, not how many. When the side that rings has gone, the other
//! one hears that, too. Read first: [`Bell`].
//!
//! **Invariant:** ringing never waits, whatever the other side does with its end: each end has a file of its own, so neither
//! side can make the other one's block.

use crate::sys::{self, Errno};
use std::os::fd::{AsFd, OwnedFd};

/// The side that rings.
#[derive(Debug)]
pub struct Bell {
    end: OwnedFd,
    /// Held, so that ringing without a listener is no signal.
    other: OwnedFd,
}

/// What was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// It was not rung since.
    Nothing,
    /// It was.
    Rung,
    /// No process is there that could ring it.
    Gone,
}

impl Bell {
    /// A bell that was not rung yet.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub fn make() -> Result<Self, Errno> {
        let (other, end) = sys::pipe()?;
        Ok(Self { end, other })
    }

    /// The file for the side that waits.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn file(&self) -> Result<OwnedFd, Errno> {
        self.other.try_clone().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EMFILE)))
    }

    /// Rings it. Where the other side has not listened for long, it is ringing still.
    pub fn ring(&self) {
        let _ = sys::write(self.end.as_fd(), &[1]);
    }
}

/// Listens to a bell's file, without waiting.
pub fn hear(file: impl AsFd) -> Heard {
    let mut heard = Heard::Nothing;
    let mut room = [0; 256];
    // Each process that has the file may have written into it: a full pipe is 64 KiB.
    for _ in 0..256 {
        match sys::read(file.as_fd(), &mut room) {
            Ok(0) => return Heard::Gone,
            Ok(bytes) => {
                heard = Heard::Rung;
                if bytes < room.len() {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write as _;
    use std::os::fd::AsRawFd;

    #[test]
    fn it_is_heard_until_it_is_gone() {
        // A fork of another thread would keep what is closed open for a moment.
        pmux_testkit::skip_unless!(pmux_testkit::own_process());
        let bell = Bell::make().unwrap();
        let file = bell.file().unwrap();
        assert_eq!(hear(&file), Heard::Nothing);
        bell.ring();
        bell.ring();
        assert_eq!((hear(&file), hear(&file)), (Heard::Rung, Heard::Nothing));
        drop(bell);
        assert_eq!(hear(&file), Heard::Gone);
    }

    /// Full, and its other end made to block: the side that rings doesn't notice.
    #[test]
    fn ringing_never_waits() {
        let bell = Bell::make().unwrap();
        let file = bell.file().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Opened anew it blocks, as the client's own end.
        let mut own = OpenOptions::new().write(true).open(path).unwrap();
        own.write_all(&[1; 65_536]).unwrap();
        for _ in 0..1000 {
            bell.ring();
        }
        assert_eq!((hear(&file), hear(&file)), (Heard::Rung, Heard::Nothing));
    }
}
