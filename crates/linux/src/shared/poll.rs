//! Waiting for any of a thousand clients: `epoll(7)`.

pub use crate::sys::{Interest, Poll, Ready, Token};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::shared::channel::Channel;
    use std::time::Duration;

    fn reports(poll: &Poll) -> Vec<Ready> {
        let mut reports = Vec::new();
        poll.wait(Some(Duration::ZERO), |ready| reports.push(ready)).unwrap();
        reports
    }

    #[test]
    fn the_ready_files_are_named() {
        // A fork of another thread would keep what is closed open for a moment.
        pmux_testkit::skip_unless!(pmux_testkit::own_process());
        let poll = Poll::new().unwrap();
        let (one, other) = Channel::pair().unwrap();
        poll.add(&one, Token(7), Interest::Read).unwrap();
        assert_eq!(poll.add(&one, Token(8), Interest::Read), Err(Errno::EEXIST));
        assert_eq!(reports(&poll), []);
        other.send(b"x", &[]).unwrap();
        let readable = Ready { token: Token(7), readable: true, writable: false, hangup: false };
        assert_eq!(reports(&poll), [readable]);
        poll.change(&one, Token(9), Interest::Write).unwrap();
        assert_eq!(reports(&poll), [Ready { token: Token(9), readable: false, writable: true, hangup: false }]);
        poll.change(&one, Token(9), Interest::Read).unwrap();
        drop(other);
        assert!(reports(&poll)[0].hangup);
        poll.remove(&one).unwrap();
        assert_eq!(reports(&poll), []);
        assert_eq!(poll.remove(&one), Err(Errno::ENOENT));
    }
}
