//! The integration tests of the Linux host, in one executable.
//!
//! What it is: a program without the standard harness, because a worker is its own program started again: `main` must see that
//! before anything else, and the process must have one thread. Arguments are parts of names, `--exact` names, or `--skip NAME`.
#![allow(clippy::unwrap_used, unreachable_pub)]

mod served;
mod worker;

/// A name and what is run.
type Test = (&'static str, fn());

fn main() {
    pmux_linux::worker::serve_if_asked();
    let (mut wanted, mut left_out, mut exact) = (Vec::new(), Vec::new(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--exact" => exact = true,
            "--skip" => left_out.extend(words.next()),
            // As the standard harness lists them.
            "--list" => return tests().for_each(|(name, _)| println!("{name}: test")),
            word if word.starts_with('-') => {}
            _ => wanted.push(word),
        }
    }
    let is = |name: &str, part: &String| if exact { name == part } else { name.contains(part.as_str()) };
    let chosen = |name: &str| {
        (wanted.is_empty() || wanted.iter().any(|part| is(name, part))) && !left_out.iter().any(|part| is(name, part))
    };
    let mut passed = 0;
    for (name, test) in tests().filter(|(name, _)| chosen(name)) {
        if name.starts_with("worker::") || served::needs_kernel() {
            test();
        }
        println!("test {name} ... ok");
        passed += 1;
    }
    let filtered_out = tests().count() - passed;
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; {filtered_out} filtered out");
}

fn tests() -> impl Iterator<Item = Test> {
    worker::TESTS.into_iter().chain(served::TESTS)
}
