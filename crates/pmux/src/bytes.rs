//! Numbers and strings out of bytes that may end at any point.
//!
//! **Invariant:** `None` where the bytes end; nothing is believed beyond them.

/// Takes fields off the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// As many bytes as the eight before them say.
    pub(crate) fn sized(&mut self) -> Option<&'a [u8]> {
        let bytes = usize::try_from(self.u64()?).ok()?;
        self.take(bytes)
    }

    /// A string of a feature: its room, and what stands in it up to a zero.
    pub(crate) fn text(&mut self) -> Option<String> {
        let room = self.u32()? as usize;
        Some(until_zero(self.take(room)?))
    }

    pub(crate) fn zero_ended(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }
}

/// The text before the first zero.
pub(crate) fn until_zero(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}
