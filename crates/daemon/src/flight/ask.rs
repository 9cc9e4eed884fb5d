//! Asking a recorder.
//!
//! What it is: one connection, one question, and the answer: objects in JSON, each in one packet.
//! Read first: [`ask`].
//!
//! **Invariant:** no call waits without a limit.

use pmux::server_api::shared::channel::{Channel, PacketBuffer, Received, Sent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a client that can't get through tries again.
const PAUSE: Duration = Duration::from_millis(20);
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EAGAIN: i32 = 11;
const ECONNREFUSED: i32 = 111;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlCommand {
    /// To take a snapshot. It is answered when the snapshot is there.
    Dump,
    /// How it is.
    Status,
}

#[derive(Serialize, Deserialize)]
struct Packet {
    ask: ControlCommand,
}

impl ControlCommand {
    /// What a packet asks.
    ///
    /// # Errors
    /// A sentence for the client that sent it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map(|Packet { ask }| ask).map_err(|error| error.to_string())
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskError {
    /// There is no socket.
    NoSocket,
    /// No recorder listens there any more.
    NotListening,
    /// The socket belongs to another user.
    NotPermitted,
    /// It did not answer in time.
    TimedOut,
    /// It ended before it answered.
    Ended,
    /// The answer makes no sense.
    BadAnswer,
    /// It says no.
    Refused(String),
    /// The socket failed.
    Socket(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("there is no such recorder"),
            Self::NotListening => f.write_str("the recorder has ended"),
            Self::NotPermitted => f.write_str("the recorder is another user's: only that user and root may ask it"),
            Self::TimedOut => f.write_str("the recorder does not answer in time"),
            Self::Ended => f.write_str("the recorder ended before it answered"),
            Self::BadAnswer => f.write_str("the recorder's answer makes no sense"),
            Self::Refused(text) => f.write_str(text),
            Self::Socket(text) => write!(f, "the recorder can't be asked: {text}"),
        }
    }
}

impl std::error::Error for AskError {}

pub(super) fn connect(socket: &Path) -> Result<Channel, AskError> {
    Channel::connect(socket).map_err(|errno| match errno.raw() {
        ENOENT => AskError::NoSocket,
        ECONNREFUSED => AskError::NotListening,
        EACCES => AskError::NotPermitted,
        EAGAIN => AskError::TimedOut,
        _ => AskError::Socket(errno.to_string()),
    })
}

/// Asks the recorder at a socket, and waits for the answer.
///
/// # Errors
/// [`AskError`].
pub fn ask(socket: &Path, command: ControlCommand, patience: Duration) -> Result<Value, AskError> {
    let until = Instant::now() + patience;
    let channel = loop {
        match connect(socket) {
            // Too many ask at once.
            Err(AskError::TimedOut) if Instant::now() < until => std::thread::sleep(PAUSE),
            other => break other?,
        }
    };
    let failed = |error: &dyn fmt::Display| AskError::Socket(error.to_string());
    match channel.send(json!(Packet { ask: command }).to_string().as_bytes(), &[]) {
        Ok(Sent::Whole) => {}
        // A fresh socket has room for it.
        Ok(Sent::NoRoom) => return Err(AskError::TimedOut),
        // It may have said why before it closed.
        Err(_) => {}
    }
    let mut buffer = PacketBuffer::new();
    loop {
        match channel.receive(&mut buffer, 0).map_err(|errno| failed(&errno))? {
            Received::Packet(bytes, _) => {
                let answer: Value = serde_json::from_slice(buffer.bytes(bytes)).map_err(|_| AskError::BadAnswer)?;
                return match answer["refused"].as_str() {
                    Some(text) => Err(AskError::Refused(text.to_owned())),
                    None => Ok(answer),
                };
            }
            Received::End => return Err(AskError::Ended),
            Received::Cut | Received::Stranger => return Err(AskError::BadAnswer),
            Received::Nothing => {
                if !channel.wait(until).map_err(|errno| failed(&errno))? {
                    return Err(AskError::TimedOut);
                }
            }
        }
    }
}
