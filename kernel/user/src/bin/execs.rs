//! Has a child go on as `hello`, and then goes on as it itself.
#![no_std]
#![no_main]

use pmux_kernel_user::{exec, fork, wait};

pmux_kernel_user::program!(|argument| {
    exec("no such program", 0);
    if fork().is_none() {
        exec("hello", argument + 1);
        return 1;
    }
    if wait().is_none_or(|(_, status)| status != argument + 1) {
        return 2;
    }
    exec("hello", argument);
    3
});
