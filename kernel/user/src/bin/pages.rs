//! Touches so many fresh pages, with an increment for each, and has a copy of it touch as many more.
#![no_std]
#![no_main]

use pmux_kernel_user::{exit, fork, increment, touch, wait};

fn touch_all(first: u64, pages: u64) {
    for page in first..first + pages {
        increment();
        touch(page);
    }
}

pmux_kernel_user::program!(|pages| {
    touch_all(0, pages);
    if fork().is_none() {
        touch_all(pages, pages);
        exit(0);
    }
    wait().map_or(1, |(_, status)| status)
});
