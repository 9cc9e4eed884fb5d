//! Makes so many software increments.
#![no_std]
#![no_main]

pmux_kernel_user::program!(|times| {
    (0..times).for_each(|_| pmux_kernel_user::increment());
    0
});
