//! Parts of a program with names: `pmux stat --regions -- target/release/examples/regions` says what each costs.
//!
//! Two threads make numbers, write them down as text, read that again and sort them.

/// The numbers of a text.
fn parse(text: &str) -> Vec<u64> {
    let _region = pmux::region("parse");
    text.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// Numbers that look like chance, as text.
fn write(mut seed: u64, count: usize) -> String {
    let _region = pmux::region("write");
    let mut text = String::new();
    for _ in 0..count {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&(seed >> 33).to_string());
        text.push(' ');
    }
    text
}

fn median(seed: u64) -> u64 {
    let _region = pmux::region("median");
    let mut numbers = parse(&write(seed, 100_000));
    let _sorting = pmux::region("sort");
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

fn main() {
    let medians = std::thread::scope(|scope| {
        let threads = [1, 2].map(|first| scope.spawn(move || (0..10).map(|run| median(first + 2 * run)).sum::<u64>()));
        threads.map(|thread| thread.join().unwrap_or_default())
    });
    println!("{medians:?}");
}
