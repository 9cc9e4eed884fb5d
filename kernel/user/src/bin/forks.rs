//! Makes a binary tree of so many levels; its status is how many programs there were.
#![no_std]
#![no_main]

use pmux_kernel_user::{exit, fork, wait};

fn tree(levels: u64) -> u64 {
    let mut programs = 1;
    if levels > 0 {
        for _ in 0..2 {
            if fork().is_none() {
                exit(tree(levels - 1));
            }
        }
        while let Some((_, below)) = wait() {
            programs += below;
        }
    }
    programs
}

pmux_kernel_user::program!(tree);
