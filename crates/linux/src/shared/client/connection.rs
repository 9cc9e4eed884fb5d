//! One life of the connection to a service: from the first words to the end of either side.
//!
//! What it is: requests with a deadline, one at a time, and what the service tells in between.
//!
//! **Invariant:** a service that is silent for too long, or says what makes no sense, is as good as gone: after an error the
//! connection is dropped, and with it everything that the service keeps for it.

use super::error::{Away, ConnectError};
use crate::procfs::own_namespace;
use crate::shared::channel::{Channel, PacketBuffer, Received, Sent};
use crate::shared::page::Page;
use crate::shared::wire::{
    CGROUPS_SINCE, Hello, NAME_BYTES, NEWEST_VERSION, Notice, OLDEST_VERSION, PACKET_FILES, RECORDS_SINCE, Refusal,
    RefusalKind, Reply, Request, Welcome, decode_reply, encode_request,
};
use crate::sys::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long one waits between two looks whether a full socket has room again.
const FULL_PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Connection {
    channel: Channel,
    buffer: PacketBuffer,
    number: u32,
    pub(super) welcome: Welcome,
    pub(super) page: Option<Arc<Page>>,
}

pub(super) type ReplyWithFiles = (Reply, Vec<OwnedFd>);

pub(super) enum Failed {
    Refused(Refusal),
    /// There is no connection any more.
    Away(Away),
}

impl From<Away> for Failed {
    fn from(away: Away) -> Self {
        Self::Away(away)
    }
}

impl Connection {
    /// Connects, and says the first words.
    pub(super) fn open(
        path: &Path,
        name: &str,
        until: Instant,
        trusts: impl FnOnce(u32) -> bool,
    ) -> Result<Self, ConnectError> {
        let socket = |errno| ConnectError::Socket(path.to_owned(), errno);
        // The kernel refuses to connect to what is no socket as to one at which nothing listens.
        let is_socket = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
        let refused = |errno| if errno == Errno::ECONNREFUSED && !is_socket() { Errno::ENOTSOCK } else { errno };
        let channel = Channel::connect_until(path, until).map_err(|errno| socket(refused(errno)))?;
        let owner = channel.peer().map_err(socket)?.uid;
        if !trusts(owner) {
            return Err(ConnectError::Stranger(path.to_owned(), owner));
        }
        let hello = Hello {
            oldest_version: OLDEST_VERSION,
            newest_version: NEWEST_VERSION,
            name: cut(name, NAME_BYTES),
            // 0 where it isn't known.
            pid_namespace: own_namespace("pid").unwrap_or(0),
        };
        let (buffer, welcome) = (PacketBuffer::new(), Welcome::default());
        let mut new = Self { channel, buffer, number: 0, welcome, page: None };
        let (reply, files) = new.ask(&Request::Hello(hello), until).map_err(|failed| match failed {
            Failed::Refused(refusal) => ConnectError::Refused(path.to_owned(), refusal),
            Failed::Away(away) => ConnectError::Away(path.to_owned(), away),
        })?;
        let nonsense = || ConnectError::Away(path.to_owned(), Away::Nonsense);
        let Reply::Welcome(welcome) = reply else { return Err(nonsense()) };
        if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&welcome.version) {
            return Err(nonsense());
        }
        new.page = match (welcome.page, files.first()) {
            (Some(page), Some(file)) => Page::map(file, page.entries).ok().map(Arc::new),
            (None, None) => None,
            _ => return Err(nonsense()),
        };
        new.welcome = welcome;
        Ok(new)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    pub(super) fn ask(&mut self, request: &Request, until: Instant) -> Result<ReplyWithFiles, Failed> {
        let (kind, since, what) = match request {
            Request::Subscribe(_) => (RefusalKind::Version, RECORDS_SINCE, "pass records on"),
            Request::OpenCgroup(_) => (RefusalKind::NotShared, CGROUPS_SINCE, "open a cgroup by its name"),
            _ => (RefusalKind::Other, 0, ""),
        };
        if self.welcome.version < since {
            let text = format!("the service is too old to {what}");
            return Err(Failed::Refused(Refusal::new(kind, 0, libc::EOPNOTSUPP, text)));
        }
        self.number = self.number.checked_add(1).unwrap_or(1);
        let packet = encode_request(self.number, request).map_err(|_| Away::Nonsense)?;
        self.send(&packet, until)?;
        self.answer(until)
    }

    /// Asks, and passes on each part of the answer until `last` says that it is the last one.
    pub(super) fn ask_for_parts(
        &mut self,
        request: &Request,
        until: Instant,
        mut last: impl FnMut(Reply) -> bool,
    ) -> Result<(), Failed> {
        let (mut reply, _) = self.ask(request, until)?;
        while !last(reply) {
            (reply, _) = self.answer(until)?;
        }
        Ok(())
    }

    fn send(&mut self, packet: &[u8], until: Instant) -> Result<(), Away> {
        loop {
            match self.channel.send(packet, &[]) {
                Ok(Sent::Whole) => return Ok(()),
                Ok(Sent::NoRoom) if Instant::now() >= until => return Err(Away::TooLate),
                // The service doesn't take what was sent before; that happens to no client that waits for its answers.
                Ok(Sent::NoRoom) => std::thread::sleep(FULL_PAUSE),
                // Perhaps it has said why before.
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(self.next().err().unwrap_or(Away::Closed)),
                Err(errno) => return Err(Away::Socket(errno)),
            }
        }
    }

    fn answer(&mut self, until: Instant) -> Result<ReplyWithFiles, Failed> {
        loop {
            match self.next()? {
                Some((number, Reply::Refused(refusal), _)) if number == self.number => {
                    return Err(Failed::Refused(refusal));
                }
                Some((number, reply, files)) if number == self.number => return Ok((reply, files)),
                Some(_) => return Err(Away::Nonsense.into()),
                None if self.channel.wait(until).map_err(Away::Socket)? => {}
                None => return Err(Away::TooLate.into()),
            }
        }
    }

    /// Takes what the service said of its own accord; an error where it has gone.
    pub(super) fn listen(&mut self) -> Result<(), Away> {
        match self.next()? {
            None => Ok(()),
            Some(_) => Err(Away::Nonsense),
        }
    }

    /// The next reply that is there already. Notices are taken in passing: that files don't hold any more the page says as well, and
    /// that events are lost their next reading.
    fn next(&mut self) -> Result<Option<(u32, Reply, Vec<OwnedFd>)>, Away> {
        loop {
            let (bytes, files) = match self.channel.receive(&mut self.buffer, PACKET_FILES) {
                Ok(Received::Nothing) => return Ok(None),
                Ok(Received::Packet(bytes, files)) => (bytes, files),
                Ok(Received::End) => return Err(Away::Closed),
                Ok(Received::Cut | Received::Stranger) => return Err(Away::Cut),
                Err(errno) => return Err(Away::Socket(errno)),
            };
            match decode_reply(self.buffer.bytes(bytes)) {
                Ok((_, Reply::Notice(Notice::Bye { text } | Notice::Slow { text }))) => return Err(Away::Said(text)),
                // Of no request: there is no room for this client.
                Ok((0, Reply::Refused(refusal))) => return Err(Away::Said(refusal.text)),
                Ok((_, Reply::Notice(Notice::Moved { .. } | Notice::Lost { .. }))) => {}
                Ok((number, reply)) => return Ok(Some((number, reply, files))),
                Err(_) => return Err(Away::Nonsense),
            }
        }
    }
}

fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or_default()).unwrap_or_default().to_owned()
}
