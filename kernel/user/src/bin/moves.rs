//! Goes to each CPU in turn, so many times; its status is how often it was on another one.
#![no_std]
#![no_main]

use pmux_kernel_user::{abi, call};

pmux_kernel_user::program!(|rounds| {
    let mut wrong = 0;
    for round in 0..rounds {
        let cpu = round % 4;
        call(abi::SET_AFFINITY, [1 << cpu, 0, 0]);
        wrong += u64::from(call(abi::GET_CPU, [0; 3]) != cpu);
    }
    wrong
});
