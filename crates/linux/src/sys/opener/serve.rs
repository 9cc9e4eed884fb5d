//! The life of a nursery and of an opener.
//!
//! Linux: `cred` (kernel/cred.c), `userns_install` (kernel/user_namespace.c), `perf_event_open` (kernel/events/core.c).
//!
//! **Invariant:** as the module above: nothing here allocates, locks or panics. The socket is descriptor 0, and there is no other
//! but for what an order brings.

use std::mem;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::ptr;

use super::{CGROUP_FILE, GROUP_FILE, OpenerOp, OpenerOrder, OpenerReply};
use crate::sys::process::die_with_parent;
use crate::sys::socket::pair;
use crate::sys::{Errno, check, message_of, send_packet};

const SOCKET: RawFd = 0;
/// Words of a control message with two descriptors.
const CONTROL_WORDS: usize = 4;
/// `PERF_FLAG_PID_CGROUP` and `PERF_FLAG_FD_CLOEXEC`.
const PID_CGROUP: libc::c_ulong = 1 << 2;
const FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_MODIFY_ATTRIBUTES`: `_IOW('$', 11, struct perf_event_attr *)`.
const MODIFY_ATTRIBUTES: libc::Ioctl = libc::_IOW::<*const u8>(b'$' as u32, 11);
/// `_LINUX_CAPABILITY_VERSION_3`, in two words of 32 capabilities each.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct CapabilityWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

pub(super) fn nursery(socket: RawFd) -> ! {
    keep_only(socket);
    shut_in(c"pmux-nursery");
    // Openers are reaped by the kernel.
    // SAFETY: (1) `sigaction` is plain data: all zeroes is a value of it. (2) To ignore runs no code of ours.
    unsafe {
        let mut ignore: libc::sigaction = mem::zeroed();
        ignore.sa_sigaction = libc::SIG_IGN;
        libc::sigaction(libc::SIGCHLD, &raw const ignore, ptr::null_mut());
        libc::chdir(c"/".as_ptr());
    }
    let mut order = OpenerOrder::new(OpenerOp::Check);
    while receive(&mut order).is_some() {
        let (reply, fds) = match fork_opener() {
            Ok((pid, fds)) => (OpenerReply { errno: 0, pid }, fds),
            Err(errno) => (OpenerReply { errno: errno.raw(), pid: 0 }, [-1; 2]),
        };
        send(&reply, &fds);
        fds.into_iter().for_each(close);
    }
    end()
}

/// Forks an opener; answers its number, and its socket and pidfd.
fn fork_opener() -> Result<(i32, [RawFd; 2]), Errno> {
    let (ours, theirs) = pair(libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC)?;
    let (ours, theirs) = (ours.into_raw_fd(), theirs.into_raw_fd());
    // The system call itself: the C library would run handlers and take locks, and this may be the child of a threaded process.
    // SAFETY: (1) Without CLONE_VM this is a fork: the child has a copy of the memory and of the stack. (2) It runs `opener` only.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone, libc::c_long::from(libc::SIGCHLD), 0_usize, 0_usize, 0_usize, 0_usize)
    };
    if pid == 0 {
        opener(theirs);
    }
    close(theirs);
    let forked = check(i32::try_from(pid).unwrap_or(-1));
    // The child waits for its credentials, and until it has taken them only root may signal it: the number is still its own.
    let made = forked.and_then(|pid| {
        // SAFETY: (1) The call touches no memory.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        check(i32::try_from(pidfd).unwrap_or(-1)).map(|pidfd| (pid, [ours, pidfd]))
    });
    // Without the other end the child ends.
    made.inspect_err(|_| close(ours))
}

fn opener(socket: RawFd) -> ! {
    keep_only(socket);
    shut_in(c"pmux-opener");
    die_with_parent();
    let mut order = OpenerOrder::new(OpenerOp::Check);
    // Orders come behind each other without waiting: none is carried out with the nursery's credentials.
    let mut has_taken = false;
    while let Some(fds) = receive(&mut order) {
        let answer = match has_taken || order.op == OpenerOp::Become as u32 {
            true => carry_out(&mut order, fds),
            false => Err(Errno::EPERM),
        };
        has_taken |= order.op == OpenerOp::Become as u32 && answer.is_ok();
        let (errno, opened) = match answer {
            Ok(opened) => (0, opened),
            Err(errno) => (errno.raw(), -1),
        };
        let passed = if order.op == OpenerOp::Check as u32 { -1 } else { opened };
        send(&OpenerReply { errno, pid: 0 }, &[passed, -1]);
        // What waits to be closed is closed when the answer is on its way.
        close(opened);
        fds.into_iter().for_each(close);
    }
    end()
}

/// Carries out an order: the event that it has opened, or -1.
fn carry_out(order: &mut OpenerOrder, fds: [RawFd; 2]) -> Result<RawFd, Errno> {
    let op = order.op;
    if op == OpenerOp::Open as u32 || op == OpenerOp::Check as u32 {
        open(order, fds)
    } else if op == OpenerOp::Become as u32 {
        take_credentials(order).map(|()| -1)
    } else if op == OpenerOp::Modify as u32 {
        // SAFETY: (1) The attribute's buffer is larger than any attribute of the kernel, which only reads what its size says.
        check(unsafe { libc::ioctl(fds[0], MODIFY_ATTRIBUTES, order.attr.as_mut_ptr()) }).map(|_| -1)
    } else {
        Err(Errno::EINVAL)
    }
}

fn open(order: &mut OpenerOrder, [first, second]: [RawFd; 2]) -> Result<RawFd, Errno> {
    let has = |bit: u64| order.words[0] & bit != 0;
    let group = if has(GROUP_FILE) { first } else { -1 };
    let (pid, flags) = match (has(CGROUP_FILE), has(GROUP_FILE)) {
        (true, true) => (second, PID_CGROUP),
        (true, false) => (first, PID_CGROUP),
        (false, _) => (order.pid, 0),
    };
    // SAFETY: (1) The attribute's buffer is larger than any attribute of the kernel, which reads what its size says, and may write a
    // size into it. (2) Addresses inside the attribute are only read by the kernel, which survives bad ones.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, order.attr.as_mut_ptr(), pid, order.cpu, group, flags | FD_CLOEXEC)
    };
    check(RawFd::try_from(fd).unwrap_or(-1))
}

/// Takes the credentials of an order, for ever.
///
/// The user comes before the namespace: with the capabilities kept it may still be entered, and the numbers mean what they mean to
/// the service. Entering it gives all capabilities there; in the end there are those that the order names, and no others.
fn take_credentials(order: &OpenerOrder) -> Result<(), Errno> {
    let [user, group, permitted, effective, namespace] = order.words;
    // They fit: they were 32 bits wide.
    let (user, group) = (user as u32, group as u32);
    let place = if namespace == 0 { -1 } else { user_namespace(order.pid).and_then(|found| is(found, namespace))? };
    let own = capabilities()?;
    // SAFETY: (1) These calls take numbers; an empty list of groups has no memory. The system calls themselves change this thread
    // only, which is the only one; the C library would look for others.
    unsafe {
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        check_long(libc::syscall(libc::SYS_setgroups, 0_usize, 0_usize))?;
        check_long(libc::syscall(libc::SYS_setresgid, group, group, group))?;
        check_long(libc::syscall(libc::SYS_setresuid, user, user, user))?;
    }
    // The change of the user has made it dumpable where `fs.suid_dumpable` is 1. Until it gives up its capabilities, which comes behind
    // this, no debugger of the user may attach.
    shut_in(c"pmux-opener");
    if place >= 0 {
        // A change of the user takes away what is effective.
        set_capabilities(own, own)?;
        // SAFETY: (1) The call takes numbers; the descriptor is open.
        check(unsafe { libc::setns(place, libc::CLONE_NEWUSER) })?;
        close(place);
    }
    let allowed = permitted & capabilities()?;
    set_capabilities(allowed, effective & allowed)?;
    // A change of credentials has undone these.
    shut_in(c"pmux-opener");
    die_with_parent();
    // SAFETY: (1) The numbers are writable and of the type that the calls write.
    let (users, groups) = unsafe {
        let (mut users, mut groups) = ([u32::MAX; 3], [u32::MAX; 3]);
        let [real, effective, saved] = &mut users;
        check_long(libc::syscall(libc::SYS_getresuid, real, effective, saved))?;
        let [real, effective, saved] = &mut groups;
        check_long(libc::syscall(libc::SYS_getresgid, real, effective, saved))?;
        (users, groups)
    };
    // In another namespace the numbers may read differently; there they were set before it was entered.
    let taken = namespace != 0 || (users == [user; 3] && groups == [group; 3]);
    if taken && capabilities()? == allowed { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a namespace is the one that was meant: the process may have gone into another since.
fn is((fd, inode): (RawFd, u64), meant: u64) -> Result<RawFd, Errno> {
    if inode == meant {
        return Ok(fd);
    }
    close(fd);
    Err(Errno::ESRCH)
}

/// The user namespace of a process, open, and its inode.
fn user_namespace(pid: i32) -> Result<(RawFd, u64), Errno> {
    let mut path = [0_u8; 40];
    write_path(&mut path, pid).ok_or(Errno::EINVAL)?;
    // SAFETY: (1) The path ends with a zero byte.
    let fd = check(unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    // SAFETY: (1) `stat` is plain data: all zeroes is a value of it. (2) It is writable, and the descriptor open.
    let (known, found) = unsafe {
        let mut found: libc::stat = mem::zeroed();
        (check(libc::fstat(fd, &raw mut found)), found)
    };
    match known {
        Ok(_) => Ok((fd, found.st_ino)),
        Err(errno) => {
            close(fd);
            Err(errno)
        }
    }
}

/// Writes `/proc/PID/ns/user` and leaves a zero byte behind it.
fn write_path(path: &mut [u8; 40], pid: i32) -> Option<()> {
    let mut digits = [0_u8; 10];
    let mut left = u32::try_from(pid).ok()?;
    let mut from = digits.len();
    loop {
        from = from.checked_sub(1)?;
        *digits.get_mut(from)? = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let bytes = b"/proc/".iter().chain(digits.get(from..)?).chain(b"/ns/user");
    path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    Some(())
}

/// The permitted capabilities of this process.
fn capabilities() -> Result<u64, Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut words = [CapabilityWord::default(); 2];
    // SAFETY: (1) Both are of the layout that this version has, and writable.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    let [low, high] = words;
    Ok(u64::from(low.permitted) | u64::from(high.permitted) << 32)
}

fn set_capabilities(permitted: u64, effective: u64) -> Result<(), Errno> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let word = |shift: u32| CapabilityWord {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: 0,
    };
    let words = [word(0), word(32)];
    // SAFETY: (1) Both are of the layout that this version has; the kernel reads the words.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) })
}

/// Nothing may look into it (it is not dumpable, so no debugger and no core file), and no exec gives it anything.
fn shut_in(name: &std::ffi::CStr) {
    // SAFETY: (1) These take numbers, and a name that ends with a zero byte.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
    }
}

/// Moves the socket to its place and closes everything else.
fn keep_only(socket: RawFd) {
    // SAFETY: (1) Nothing in this process uses any other descriptor.
    unsafe {
        libc::dup2(socket, SOCKET);
        let (first, last, flags): (libc::c_uint, libc::c_uint, libc::c_uint) = (1, libc::c_uint::MAX, 0);
        if libc::syscall(libc::SYS_close_range, first, last, flags) != 0 {
            // Before Linux 5.9.
            (1..1 << 16).for_each(close);
        }
    }
}

/// Receives an order and the descriptors beside it, -1 for none; `None` at the end.
fn receive(order: &mut OpenerOrder) -> Option<[RawFd; 2]> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut part = libc::iovec { iov_base: (&raw mut *order).cast(), iov_len: size_of::<OpenerOrder>() };
    let mut message = message_of(&mut part);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    loop {
        // SAFETY: (1) `message` points to `order`, for which all bytes are values, and to `control`, writable for the lengths that it
        // states.
        match unsafe { libc::recvmsg(SOCKET, &raw mut message, libc::MSG_CMSG_CLOEXEC) } {
            received if received > 0 => break,
            -1 if Errno::last() == Errno::EINTR => {}
            _ => return None,
        }
    }
    let mut fds = [-1; 2];
    // SAFETY: (1) The kernel has filled `control` up to the `msg_controllen` that it has written back. (2) There are at most two
    // descriptors: more have no room.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let bytes = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            let data: *const RawFd = libc::CMSG_DATA(header).cast();
            for (at, fd) in fds.iter_mut().enumerate().take(bytes / size_of::<RawFd>()) {
                *fd = data.add(at).read_unaligned();
            }
        }
    }
    Some(fds)
}

/// Sends a reply with the descriptors before the first -1.
fn send(reply: &OpenerReply, fds: &[RawFd; 2]) {
    let count = fds.iter().take_while(|&&fd| fd >= 0).count();
    // SAFETY: (1) The socket and the descriptors are open until the reply is sent. In the place of a missing one stands the socket, which
    // is not passed on.
    let (socket, files) =
        unsafe { (BorrowedFd::borrow_raw(SOCKET), fds.map(|fd| BorrowedFd::borrow_raw(fd.max(SOCKET)))) };
    let bytes = [reply.errno, reply.pid].map(i32::to_ne_bytes);
    // Where nothing listens any more, the next receive says so.
    let _ = send_packet(socket, bytes.as_flattened(), files.get(..count).unwrap_or_default());
}

fn close(fd: RawFd) {
    if fd >= 0 {
        // SAFETY: (1) Only called with descriptors that this process owns and uses no more.
        unsafe { libc::close(fd) };
    }
}

fn check_long(answer: libc::c_long) -> Result<(), Errno> {
    if answer < 0 { Err(Errno::last()) } else { Ok(()) }
}

fn end() -> ! {
    // SAFETY: (1) Always allowed; runs nothing of the parent's.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_namespace_is_written_without_allocating() {
        for (pid, text) in [(1, "/proc/1/ns/user"), (i32::MAX, "/proc/2147483647/ns/user")] {
            let mut path = [0; 40];
            assert_eq!(write_path(&mut path, pid), Some(()));
            let end = path.iter().position(|&byte| byte == 0);
            assert_eq!(end.map(|end| &path[..end]), Some(text.as_bytes()));
        }
        assert_eq!(write_path(&mut [0; 40], -1), None);
    }

    #[test]
    fn a_process_knows_its_own_user_namespace() {
        use std::os::unix::fs::MetadataExt as _;
        let (fd, inode) = user_namespace(std::process::id().cast_signed()).unwrap_or((-1, 0));
        close(fd);
        assert_eq!(Some(inode), std::fs::metadata("/proc/self/ns/user").ok().map(|file| file.ino()));
    }
}
