//! What could not be sent to a client at once.
//!
//! What it is: a queue with a limit of bytes in front of a channel that doesn't block.
//!
//! **Invariant:** packets go out in the order in which they came in; nothing here waits.

use super::channel::{Channel, Sent};
use crate::sys::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a packet costs beside its bytes, so that empty ones are not for nothing.
const PACKET_COST: usize = 64;

/// Packets for one client.
#[derive(Debug)]
pub struct Outbox {
    waiting: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    bytes: usize,
    most_bytes: usize,
}

/// Whether everything is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flushed {
    /// It is.
    Empty,
    /// The client has to read first: try again when there is room to write.
    Waiting,
}

/// Why a packet can't go out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutboxError {
    /// The client doesn't read: as much as it may is waiting already.
    Full,
    /// No peer is there any more, or the files can't be passed.
    Channel(Errno),
}

impl Outbox {
    /// An empty queue that takes so many bytes.
    #[must_use]
    pub const fn new(most_bytes: usize) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, most_bytes }
    }

    /// Bytes that are waiting.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends a packet, or keeps it (and copies of its files) until there is room.
    ///
    /// # Errors
    /// [`OutboxError::Full`]: then the packet is dropped, and the client is to be cut off, because it would miss an answer;
    /// [`OutboxError::Channel`].
    pub fn send(
        &mut self,
        channel: &Channel,
        packet: Vec<u8>,
        files: &[BorrowedFd<'_>],
    ) -> Result<Flushed, OutboxError> {
        if self.flush(channel)? == Flushed::Empty
            && channel.send(&packet, files).map_err(OutboxError::Channel)? == Sent::Whole
        {
            return Ok(Flushed::Empty);
        }
        let cost = packet.len() + PACKET_COST;
        if self.bytes + cost > self.most_bytes {
            return Err(OutboxError::Full);
        }
        let copies: Result<Vec<_>, _> = files.iter().map(BorrowedFd::try_clone_to_owned).collect();
        let copies = copies.map_err(|error| OutboxError::Channel(Errno::from(&error)))?;
        self.bytes += cost;
        self.waiting.push_back((packet, copies));
        Ok(Flushed::Waiting)
    }

    /// Sends what is waiting, as far as there is room.
    ///
    /// # Errors
    /// [`OutboxError::Channel`].
    pub fn flush(&mut self, channel: &Channel) -> Result<Flushed, OutboxError> {
        while let Some((packet, files)) = self.waiting.front() {
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            match channel.send(packet, &files).map_err(OutboxError::Channel)? {
                Sent::NoRoom => return Ok(Flushed::Waiting),
                Sent::Whole => self.bytes -= packet.len() + PACKET_COST,
            }
            self.waiting.pop_front();
        }
        Ok(Flushed::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::channel::{PacketBuffer, Received};

    #[test]
    fn everything_arrives_in_order_and_the_limit_holds() {
        let (server, client) = Channel::pair().unwrap();
        let (file, _writer) = crate::sys::pipe().unwrap();
        let mut outbox = Outbox::new(100_000);
        let mut sent = 0_u32;
        let full = loop {
            let mut packet = vec![0; 500];
            packet[..4].copy_from_slice(&sent.to_le_bytes());
            match outbox.send(&server, packet, &[file.as_fd()]) {
                Ok(_) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full, OutboxError::Full);
        assert!(outbox.bytes() > 99_000 && outbox.bytes() <= 100_000, "{} bytes", outbox.bytes());
        let mut buffer = PacketBuffer::new();
        let mut next = 0_u32;
        while next < sent {
            match client.receive(&mut buffer, 1).unwrap() {
                Received::Packet(500, files) => {
                    assert_eq!((buffer.bytes(4), files.len()), (&next.to_le_bytes()[..], 1));
                    next += 1;
                }
                Received::Nothing => drop(outbox.flush(&server).unwrap()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((outbox.flush(&server), outbox.bytes()), (Ok(Flushed::Empty), 0));
    }

    #[test]
    fn a_missing_peer_is_an_error() {
        let (server, client) = Channel::pair().unwrap();
        drop(client);
        // A fork of another thread may still have it for a moment.
        assert!(server.wait(std::time::Instant::now() + std::time::Duration::from_secs(60)).unwrap());
        let sent = Outbox::new(1000).send(&server, vec![1], &[]);
        assert_eq!(sent, Err(OutboxError::Channel(Errno::EPIPE)));
    }
}
