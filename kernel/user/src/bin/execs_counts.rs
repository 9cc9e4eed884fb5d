//! Makes so many software increments, and goes on as a program that makes as many.
#![no_std]
#![no_main]

use pmux_kernel_user::{exec, increment};

pmux_kernel_user::program!(|times| {
    (0..times).for_each(|_| increment());
    exec("counts", times);
    1
});
