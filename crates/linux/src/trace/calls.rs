//! Which system calls can map code.
//!
//! **Invariant:** pure. A call too many costs a look at what is mapped, one too few a library that is not seen: in doubt
//! it counts.

use crate::sys::ptrace::SyscallStop;

/// Of which set the calls of this machine's own programs are, as `AUDIT_ARCH_*` in `include/uapi/linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
/// As above.
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;
/// As above: unknown, so that every call is taken for a foreign one.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NATIVE: u32 = 0;

/// `old_mmap`, `mprotect` and `mmap2` of 32-bit programs, the same on x86 and arm.
const FOREIGN: [u64; 3] = [90, 125, 192];
/// What marks the calls of x86 programs with 32-bit pointers and 64-bit registers.
const X32: u64 = 0x4000_0000;

/// Whether memory that can be executed may be there after the call that wasn't before.
pub(super) fn may_map_code(stop: &SyscallStop) -> bool {
    let SyscallStop::Entry { arch, number, arguments } = stop else { return false };
    if *arch != NATIVE {
        return NATIVE == 0 || FOREIGN.contains(number);
    }
    let [_, _, protection, _, fd, _] = arguments;
    let code = *protection & libc::PROT_EXEC as u64 != 0;
    let number = libc::c_long::try_from(number & !X32).unwrap_or(-1);
    match number {
        // The kernel looks at the low half of a descriptor only.
        libc::SYS_mmap => code && fd.cast_signed() as i32 >= 0,
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => code,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(arch: u32, number: libc::c_long, protection: libc::c_int, fd: i32) -> SyscallStop {
        let arguments = [0, 4096, protection as u64, 2, fd as u32 as u64, 0];
        SyscallStop::Entry { arch, number: number as u64, arguments }
    }

    #[test]
    fn code_from_files_counts() {
        let code = libc::PROT_READ | libc::PROT_EXEC;
        if NATIVE != 0 {
            assert!(may_map_code(&entry(NATIVE, libc::SYS_mmap, code, 3)));
            assert!(!may_map_code(&entry(NATIVE, libc::SYS_mmap, libc::PROT_READ, 3)));
            assert!(!may_map_code(&entry(NATIVE, libc::SYS_mmap, code, -1)), "no file");
            assert!(may_map_code(&entry(NATIVE, libc::SYS_mprotect, code, -1)));
            assert!(!may_map_code(&entry(NATIVE, libc::SYS_read, code, 3)));
        }
        assert!(may_map_code(&entry(0x4000_0003, 192, 0, 3)), "mmap2 of a 32-bit program");
        assert!(!may_map_code(&SyscallStop::Exit { failed: false }));
    }
}
