//! Records that a service writes for this process.
//!
//! What it is: [`Records`], the ring of one subscription in one life of the service; a client that wants to go on in the next
//! life asks again. Read first: [`Service::subscribe`].
//!
//! **Invariant:** no code believes what stands in the ring: the worst is a [`RingError`].

use super::{AskError, ConnectionId, Service};
use crate::ring::{RingError, TakingFile};
use crate::shared::bell::{Heard, hear};
use crate::shared::wire::{EventNumber, EventOp, Handle, Part, Reply, Request, Subscribe};
use pmux_engine::ring_buffer::{Reader, Taking};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The ring of a subscription, as long as a life of the service lasts; what is in it can be read after that.
pub struct Records {
    connection_id: ConnectionId,
    handle: Handle,
    reader: Reader<Taking<TakingFile>>,
    bell: OwnedFd,
}

impl Service {
    /// Asks for records, which come when it is switched on.
    ///
    /// # Errors
    /// [`AskError`]; a service of before [`super::super::wire::RECORDS_SINCE`] refuses it.
    pub fn subscribe(&self, subscription: &Subscribe) -> Result<Records, AskError> {
        let request = Request::Subscribe(subscription.clone());
        let ((reply, files), connection_id) = self.talk(|connection, until| connection.ask(&request, until))?;
        let understood = match (reply, <[OwnedFd; 3]>::try_from(files)) {
            (Reply::Subscribed(subscribed), Ok([records, taken, bell]))
                if subscribed.ring_bytes == subscription.ring_bytes =>
            {
                let bytes = usize::try_from(subscribed.ring_bytes).unwrap_or_default();
                TakingFile::map(records, taken, bytes).ok().map(|end| (subscribed.handle, end, bell))
            }
            _ => None,
        };
        let Some((handle, end, bell)) = understood else {
            self.doubt(connection_id);
            return Err(AskError::Away);
        };
        Ok(Records { connection_id, handle, reader: Reader::new(Taking(end)), bell })
    }

    /// Lets records come, or no more of them: [`EventOp::Enable`], [`EventOp::Disable`].
    ///
    /// # Errors
    /// [`AskError`].
    pub fn switch_records(&self, records: &Records, op: EventOp) -> Result<(), AskError> {
        let answer = self.ask(records.connection_id, &Request::Control { handle: records.handle, op })?;
        if answer.reply == Reply::Done {
            return Ok(());
        }
        self.doubt(records.connection_id);
        Err(AskError::Away)
    }

    /// Which event of the kernel has which number in the records.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn numbers(&self, records: &Records) -> Result<Vec<EventNumber>, AskError> {
        if self.connection_id() != Some(records.connection_id) {
            return Err(AskError::Away);
        }
        let mut all = Vec::new();
        let ((), connection_id) = self.talk(|connection, until| {
            connection.ask_for_parts(&Request::Numbers { handle: records.handle }, until, |reply| match reply {
                Reply::Numbers { part, numbers } => {
                    all.extend(numbers);
                    part == Part::Last
                }
                _ => true,
            })
        })?;
        if connection_id == records.connection_id { Ok(all) } else { Err(AskError::Away) }
    }

    /// Gives a subscription back.
    pub fn unsubscribe(&self, records: &Records) {
        // Where it is away there is nothing left to give back.
        let _ = self.ask(records.connection_id, &Request::Close { handles: vec![records.handle] });
    }

    /// The number of the life that is on, after a look whether the service is there.
    pub fn look_for_life(&self) -> Option<u64> {
        self.look(crate::now_ns());
        self.connection_id().map(|connection_id| connection_id.0)
    }

    /// Looks whether the service is there, and connects again where it can be had: whether the life of these records is on still.
    pub fn keeps(&self, records: &Records) -> bool {
        self.look(crate::now_ns());
        self.connection_id() == Some(records.connection_id)
    }
}

impl Records {
    /// Hands every record that is there to `sink`, the oldest first; answers how many there were.
    ///
    /// # Errors
    /// [`RingError`], where the ring contradicts itself; it goes on with what is written next.
    pub fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<u64, RingError> {
        self.reader.drain(sink)
    }

    /// Listens to the bell, without waiting.
    #[must_use]
    pub fn hear(&self) -> Heard {
        hear(&self.bell)
    }

    /// Readable when there is something to read, or when the service has gone.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
