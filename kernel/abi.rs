//! System calls: the number in `x8`, arguments from `x0` on, the result in `x0`.
#![allow(dead_code)]

/// Ends the program with a status.
pub const EXIT: u64 = 1;
/// Makes a copy of the program; the copy has the result 0.
pub const FORK: u64 = 2;
/// Goes on as another program: the address and length of its name, and its argument.
pub const EXEC: u64 = 3;
/// Waits for a child that has ended; the result is its number and, shifted by 32, its status.
pub const WAIT: u64 = 4;
/// Lets other tasks run.
pub const YIELD: u64 = 5;
/// Writes text: address and length.
pub const WRITE: u64 = 6;
/// Runs on the CPUs of a mask only, from now on.
pub const SET_AFFINITY: u64 = 7;
/// The CPU that it runs on.
pub const GET_CPU: u64 = 8;
/// The time, in ns.
pub const CLOCK: u64 = 9;
/// The number of the task.
pub const GET_PID: u64 = 10;
/// The time that the task has had a CPU, in ns.
pub const CPU_TIME: u64 = 11;
/// As [`EXEC`], of a program that has other rights.
pub const EXEC_SETUID: u64 = 12;
/// The answer to the order before; waits for the next one, in `x0` to `x3`.
pub const NEXT_ORDER: u64 = 13;

/// The result of a call that failed.
pub const FAILED: u64 = u64::MAX;
/// The status of a program that did something that it must not.
pub const FAULTED: u32 = 139;

/// An address that programs have for a test: the lowest of their stack.
pub const WATCHED: u64 = (1 << 39) + (1 << 30) - (16 << 10);

/// Where programs have fresh pages.
pub const FRESH: u64 = (1 << 39) + (1 << 29);

/// Where programs have four pages to access, from the beginning on.
pub const WATCH: u64 = (1 << 39) + (1 << 28);
/// Bytes of them.
pub const WATCH_BYTES: u64 = 4 * 4096;

/// The orders of [`NEXT_ORDER`]: so many fresh pages.
pub const TOUCH: u64 = 1;
/// An address, 1 where it is written, and how often.
pub const ACCESS: u64 = 2;
/// So many ns of CPU time, and fresh pages meanwhile.
pub const RUN: u64 = 3;
/// A copy; the answer is its number.
pub const FORKS: u64 = 4;
/// The same program from its beginning; 1 where it has other rights then.
pub const EXECUTE: u64 = 5;
/// The program ends.
pub const ENDS: u64 = 6;
