//! Executes so many rounds of two instructions.
#![no_std]
#![no_main]

pmux_kernel_user::program!(|rounds| {
    pmux_kernel_user::rounds(rounds);
    0
});
