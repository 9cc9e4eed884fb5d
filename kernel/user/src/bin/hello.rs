//! Writes a line; its status is its argument.
#![no_std]
#![no_main]

use core::fmt::Write;

pmux_kernel_user::program!(|argument| {
    let _ = writeln!(pmux_kernel_user::Console, "  hello from EL0, argument {argument}");
    argument
});
