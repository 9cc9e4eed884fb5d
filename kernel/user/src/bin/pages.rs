//! Touches so many fresh pages, with an increment for each, and has a copy of it touch as many more.
#![no_std]
#![no_main]

use pmux_kernel_user::abi::FRESH;
use pmux_kernel_user::{exit, fork, increment, wait};

fn touch(first: u64, pages: u64) {
    for page in first..first + pages {
        increment();
        let word = core::ptr::with_exposed_provenance_mut::<u64>((FRESH + page * 4096) as usize);
        // SAFETY: (1) The kernel maps a page there, which nothing else comes to.
        unsafe { word.write_volatile(page) };
    }
}

pmux_kernel_user::program!(|pages| {
    touch(0, pages);
    if fork().is_none() {
        touch(pages, pages);
        exit(0);
    }
    wait().map_or(1, |(_, status)| status)
});
