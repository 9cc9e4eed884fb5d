//! Makes a software increment on each CPU in turn, so many in all.
#![no_std]
#![no_main]

use pmux_kernel_user::{abi, call, increment};

pmux_kernel_user::program!(|times| {
    for time in 0..times {
        call(abi::SET_AFFINITY, [1 << (time % 4), 0, 0]);
        increment();
    }
    0
});
