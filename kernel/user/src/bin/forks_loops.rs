//! Has four children, one after the other, of which each executes so many rounds of two instructions.
#![no_std]
#![no_main]

use pmux_kernel_user::{exit, fork, rounds, wait};

pmux_kernel_user::program!(|times| {
    for _ in 0..4 {
        if fork().is_none() {
            rounds(times);
            exit(0);
        }
        wait();
    }
    0
});
