//! Computes for so many ms and never gives its CPU away; its status is 0 where the sum is right.
#![no_std]
#![no_main]

use core::hint::black_box;
use pmux_kernel_user::clock;

pmux_kernel_user::program!(|milliseconds| {
    let end = clock() + milliseconds * 1_000_000;
    let (mut rounds, mut sum) = (0, 0_u64);
    while clock() < end {
        for number in 0..1000 {
            sum += black_box(number);
        }
        rounds += 1;
    }
    u64::from(sum != rounds * 499_500)
});
