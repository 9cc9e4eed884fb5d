//! Writes a word so many times, and reads it as often; its status is 0 where it has what was written.
#![no_std]
#![no_main]

use pmux_kernel_user::abi::WATCHED;

pmux_kernel_user::program!(|times| {
    let word = core::ptr::with_exposed_provenance_mut::<u64>(WATCHED as usize);
    let mut wrong = 0;
    for time in 0..times {
        // SAFETY: (1) It is the end of the stack, which nothing else comes to.
        wrong += u64::from(
            unsafe {
                word.write_volatile(time);
                word.read_volatile()
            } != time,
        );
    }
    wrong
});
