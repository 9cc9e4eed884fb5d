//! See `inputs.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../inputs.rs"]
mod inputs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| inputs::perf_data(bytes));
