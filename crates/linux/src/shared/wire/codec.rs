//! Messages and their bytes.
//!
//! What it is: the number as four bytes, the least first, then the body in the format of `postcard`
//! (<https://postcard.jamesmunns.com>): numbers of a variable length, lists and texts behind their length, variants by
//! their place.
//!
//! **Invariant:** a list is refused as soon as it turns out to be longer than its limit, and never gets room for more
//! elements than there are bytes left.

use super::{PACKET_BYTES, Reply, Request};
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// What is wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// It has more than [`PACKET_BYTES`] bytes.
    TooLong,
    /// It ends in its middle, or has a list or a text that is longer than allowed, or a variant that doesn't exist.
    Broken,
    /// Something follows after its end.
    Surplus,
    /// A request has the number 0, a reply that is no notice has it, or a notice has another.
    Number,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the message is longer than 64 KiB",
            Self::Broken => "the message is cut off, has too long a list, or is of a kind that doesn't exist",
            Self::Surplus => "something follows after the end of the message",
            Self::Number => "the message has a number that it may not have",
        })
    }
}

impl std::error::Error for WireError {}

/// Writes a request.
///
/// # Errors
/// [`WireError::TooLong`]; [`WireError::Number`] for 0.
pub fn encode_request(number: u32, request: &Request) -> Result<Vec<u8>, WireError> {
    if number == 0 {
        return Err(WireError::Number);
    }
    encode(number, request)
}

/// Reads a request.
///
/// # Errors
/// In this order: [`WireError::TooLong`], [`WireError::Broken`], [`WireError::Surplus`], [`WireError::Number`].
pub fn decode_request(bytes: &[u8]) -> Result<(u32, Request), WireError> {
    let (number, request) = decode(bytes)?;
    if number == 0 { Err(WireError::Number) } else { Ok((number, request)) }
}

/// Writes a reply.
///
/// # Errors
/// [`WireError::TooLong`]; [`WireError::Number`] for a notice with a number, or anything else without one.
pub fn encode_reply(number: u32, reply: &Reply) -> Result<Vec<u8>, WireError> {
    check_reply(number, reply)?;
    encode(number, reply)
}

/// Reads a reply.
///
/// # Errors
/// As [`decode_request`].
pub fn decode_reply(bytes: &[u8]) -> Result<(u32, Reply), WireError> {
    let (number, reply) = decode(bytes)?;
    check_reply(number, &reply)?;
    Ok((number, reply))
}

/// A packet that can't be understood is refused under the number 0: its sender may not have meant any number.
fn check_reply(number: u32, reply: &Reply) -> Result<(), WireError> {
    match reply {
        Reply::Notice(_) if number != 0 => Err(WireError::Number),
        Reply::Notice(_) | Reply::Refused(_) => Ok(()),
        _ if number == 0 => Err(WireError::Number),
        _ => Ok(()),
    }
}

fn encode<T: Serialize>(number: u32, body: &T) -> Result<Vec<u8>, WireError> {
    let bytes = postcard::to_extend(body, number.to_le_bytes().to_vec()).map_err(|_| WireError::Broken)?;
    if bytes.len() > PACKET_BYTES { Err(WireError::TooLong) } else { Ok(bytes) }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(u32, T), WireError> {
    if bytes.len() > PACKET_BYTES {
        return Err(WireError::TooLong);
    }
    let (number, body) = bytes.split_first_chunk::<4>().ok_or(WireError::Broken)?;
    let (value, rest) = postcard::take_from_bytes(body).map_err(|_| WireError::Broken)?;
    if rest.is_empty() { Ok((u32::from_le_bytes(*number), value)) } else { Err(WireError::Surplus) }
}

/// A list of at most so many.
pub(super) fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List::<T, MOST>(PhantomData))
}

pub(super) fn bounded_lists<'de, D: Deserializer<'de>, const MOST: usize, const BYTES: usize>(
    from: D,
) -> Result<Vec<Vec<u8>>, D::Error> {
    let lists: Vec<Bytes<BYTES>> = at_most::<_, _, MOST>(from)?;
    Ok(lists.into_iter().map(|bytes| bytes.0).collect())
}

pub(super) fn bounded_text<'de, D: Deserializer<'de>, const MOST: usize>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Text::<MOST>)
}

#[derive(Deserialize)]
struct Bytes<const MOST: usize>(#[serde(deserialize_with = "at_most::<_, _, MOST>")] Vec<u8>);

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        // The hint is an honest length or none: there are at least as many bytes left.
        let mut list = Vec::with_capacity(seq.size_hint().unwrap_or_default().min(MOST));
        while let Some(element) = seq.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::custom("too long a list"));
            }
            list.push(element);
        }
        Ok(list)
    }
}

struct Text<const MOST: usize>;

impl<const MOST: usize> Visitor<'_> for Text<MOST> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text of at most {MOST} bytes")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        if text.len() > MOST { Err(E::custom("too long a text")) } else { Ok(text.to_owned()) }
    }
}
