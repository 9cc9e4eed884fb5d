//! Makes a binary tree of so many levels, in which each program makes 100 software increments.
#![no_std]
#![no_main]

use pmux_kernel_user::{exit, fork, increment, wait};

fn tree(levels: u64) {
    (0..50).for_each(|_| increment());
    if levels > 0 {
        for _ in 0..2 {
            if fork().is_none() {
                tree(levels - 1);
                exit(0);
            }
        }
        while wait().is_some() {}
    }
    (0..50).for_each(|_| increment());
}

pmux_kernel_user::program!(|levels| {
    tree(levels);
    0
});
