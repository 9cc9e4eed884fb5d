//! Four threads pay into one account. Now and then the balance is wrong: one of them writes to it what it should not.
//! Which thread is it, and where? One command tells:
//!
//! ```sh
//! rustc -g -C force-frame-pointers=yes -o writer-rs examples/watch/writer.rs
//! pmux watch writer::BALANCE:w -- ./writer-rs
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const TELLERS: u64 = 4;
const PAYMENTS: u64 = 250;

static BALANCE: AtomicU64 = AtomicU64::new(0);

fn pay_in(amount: u64) {
    BALANCE.fetch_add(amount, Ordering::Relaxed);
}

/// Meant for a copy of the account, and called with the account itself.
fn forget(copy: &AtomicU64) {
    copy.store(0, Ordering::Relaxed);
}

fn audit(payment: u64) {
    if payment % 100 == 99 {
        forget(&BALANCE);
    }
}

fn teller(number: u64) {
    for payment in 0..PAYMENTS {
        pay_in(1);
        if number == 2 {
            audit(payment);
        }
    }
}

fn main() {
    let start = |number| {
        let named = thread::Builder::new().name(format!("teller-{number}"));
        named.spawn(move || teller(number)).expect("a thread")
    };
    let threads: Vec<_> = (0..TELLERS).map(start).collect();
    for thread in threads {
        thread.join().expect("a teller");
    }
    println!("the balance is {} of {}", BALANCE.load(Ordering::Relaxed), TELLERS * PAYMENTS);
}
