//! Reads an address of the kernel.
#![no_std]
#![no_main]

pmux_kernel_user::program!(|_| {
    // SAFETY: (1) It is not: the kernel ends the program.
    let word = unsafe { core::ptr::with_exposed_provenance::<u64>(0x4008_0000).read_volatile() };
    word & 1
});
