//! Protocol buffers, as far as they are written here: numbers, bytes and messages.
//!
//! **Invariant:** a field that has its default, 0 or nothing, is left out, as in the third version of the format; what is optional and
//! given, and each item of a list, is written whatever it is.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

/// A message: its fields, by their published numbers, in the order in which they were added.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Message(Vec<u8>);

/// How a field is written: a number, or so many bytes.
const NUMBER: u64 = 0;
const BYTES: u64 = 2;

/// Appends a number: seven bits to a byte, the lowest first, with the eighth bit where more follow.
pub(crate) fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

impl Message {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A number that may be there or not.
    pub(super) fn optional(mut self, field: u32, value: Option<u64>) -> Self {
        if let Some(value) = value {
            push_varint(&mut self.0, u64::from(field) << 3 | NUMBER);
            push_varint(&mut self.0, value);
        }
        self
    }

    /// A number, or whether something is so.
    pub(super) fn number(self, field: u32, value: impl Into<u64>) -> Self {
        let value = value.into();
        self.optional(field, (value != 0).then_some(value))
    }

    pub(super) fn signed(self, field: u32, value: impl Into<i64>) -> Self {
        self.number(field, value.into().cast_unsigned())
    }

    /// Bytes, of a list or optional and given.
    pub(super) fn item(mut self, field: u32, bytes: &[u8]) -> Self {
        push_varint(&mut self.0, u64::from(field) << 3 | BYTES);
        push_varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn bytes(self, field: u32, bytes: &[u8]) -> Self {
        if bytes.is_empty() { self } else { self.item(field, bytes) }
    }

    pub(super) fn message(self, field: u32, message: &Self) -> Self {
        self.item(field, &message.0)
    }

    pub(super) fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut packed = Vec::new();
        values.into_iter().for_each(|value| push_varint(&mut packed, value));
        self.bytes(field, &packed)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    /// The examples of the published description, and what is left out.
    #[test]
    fn fields_are_written_as_published() {
        let new = Message::new;
        for (message, expected) in [
            (new().number(1, 150_u32), &[0x08, 0x96, 0x01][..]),
            (new().bytes(2, b"testing"), b"\x12\x07testing"),
            (new().message(3, &new().number(1, 150_u32)), &[0x1a, 0x03, 0x08, 0x96, 0x01]),
            (new().packed(6, [3, 270, 86942]), &[0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]),
            (new().signed(1, -2), &[0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            (new().number(59, true), &[0xd8, 0x03, 0x01]),
            (new().number(1, false).bytes(2, b"").packed(3, []).optional(4, None), &[]),
            (new().optional(1, Some(0)).item(2, b""), &[0x08, 0x00, 0x12, 0x00]),
        ] {
            assert_eq!(message.as_bytes(), expected, "{message:?}");
        }
    }
}
