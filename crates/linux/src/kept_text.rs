//! Texts to which an attribute points, and which therefore stay in memory.
//!
//! **Invariant:** what is kept is never freed, and the same text is kept once.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

fn texts() -> MutexGuard<'static, HashMap<&'static CStr, u64>> {
    static TEXTS: OnceLock<Mutex<HashMap<&'static CStr, u64>>> = OnceLock::new();
    TEXTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a text stands in memory; `None` where it holds a zero byte.
pub(crate) fn address_of(text: &[u8]) -> Option<u64> {
    let text = CString::new(text).ok()?;
    let mut texts = texts();
    if let Some(&address) = texts.get(text.as_c_str()) {
        return Some(address);
    }
    // Given away to the kernel: it must never be freed.
    let kept: &'static CStr = Box::leak(text.into_boxed_c_str());
    let address = kept.as_ptr().expose_provenance() as u64;
    texts.insert(kept, address);
    Some(address)
}

/// The text that [`address_of`] has put there.
pub(crate) fn text_at(address: u64) -> Option<&'static CStr> {
    texts().iter().find(|(_, known)| **known == address).map(|(text, _)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_where_it_is() {
        let first = address_of(b"/bin/x");
        assert!(first.is_some() && first != address_of(b"/bin/y"));
        assert_eq!(address_of(b"/bin/x"), first);
        assert_eq!(address_of(b"/bin/\0"), None);
        assert_eq!(first.and_then(text_at), Some(c"/bin/x"));
        assert_eq!(text_at(1), None);
    }
}
