//! Does what the kernel tells it: a task of a scenario file.
#![no_std]
#![no_main]

use pmux_kernel_user::abi::{ACCESS, CPU_TIME, ENDS, EXECUTE, FORKS, RUN, TOUCH};
use pmux_kernel_user::{call, exec, exec_setuid, exit, fork, next_order, touch};

/// Comes to so many more pages.
fn touch_next(next: &mut u64, pages: u64) {
    (*next..*next + pages).for_each(touch);
    *next += pages;
}

fn access(address: u64, writes: bool, times: u64) {
    let byte = core::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    for _ in 0..times {
        // SAFETY: (1) The kernel has mapped pages there, which nothing else comes to.
        let _byte = unsafe {
            if writes {
                byte.write_volatile(1);
                1
            } else {
                byte.read_volatile()
            }
        };
    }
}

fn cpu_time() -> u64 {
    call(CPU_TIME, [0; 3])
}

/// Runs for so much time of a CPU, and comes to pages meanwhile, evenly.
fn run(next: &mut u64, ns: u64, pages: u64) {
    let begin = cpu_time();
    for page in 1..=pages {
        while cpu_time() - begin < ns * page / (pages + 1) {}
        touch_next(next, 1);
    }
    while cpu_time() - begin < ns {}
}

pmux_kernel_user::program!(|_| {
    let (mut next, mut answer) = (0, 0);
    loop {
        let [order, first, second, third] = next_order(answer);
        answer = 0;
        match order {
            TOUCH => touch_next(&mut next, first),
            ACCESS => access(first, second != 0, third),
            RUN => run(&mut next, first, second),
            FORKS => answer = fork().unwrap_or(0),
            EXECUTE if first != 0 => exec_setuid("obeys", 0),
            EXECUTE => exec("obeys", 0),
            ENDS => exit(0),
            _ => exit(1),
        }
    }
});
