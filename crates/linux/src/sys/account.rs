//! Groups by name, as the C library finds them.
//!
//! **Invariant:** nothing points into a buffer that is gone.

use super::Errno;
use std::ffi::CStr;

/// An entry that needs more memory than this is none.
const MOST_BYTES: usize = 1 << 24;

/// The number of the group of this name; `None` where there is none. Where the system asks a directory service (`/etc/nsswitch.conf`), so
/// does this, and it waits for the answer; a static binary knows `/etc/group` only.
pub(crate) fn group_number(name: &CStr) -> Result<Option<u32>, Errno> {
    let mut buffer: Vec<libc::c_char> = vec![0; 1024];
    loop {
        let mut found = std::ptr::null_mut();
        let mut entry = std::mem::MaybeUninit::<libc::group>::uninit();
        // SAFETY: (1) `name` ends with a zero. (2) `entry`, `buffer` and `found` are writable, `buffer` for the length that is given.
        let error = unsafe {
            libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found)
        };
        match error {
            // Some name services say so where there is no such group.
            0 | libc::ENOENT | libc::ESRCH if found.is_null() => return Ok(None),
            // SAFETY: (1) where `found` is not null, it points to `entry`, which the call has filled in.
            0 => return Ok(Some(unsafe { entry.assume_init_ref() }.gr_gid)),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < MOST_BYTES => buffer.resize(buffer.len() * 4, 0),
            error => return Err(Errno::from_raw(error)),
        }
    }
}
