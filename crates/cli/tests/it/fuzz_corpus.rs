//! The fuzzers' functions over their corpus, and over mutations of it: what `fuzz/` does, without libFuzzer.
//!
//! The mutations come from a fixed seed, so a failure repeats; the file and the number of the mutation are printed first.

#[path = "../../../../fuzz/inputs.rs"]
mod inputs;

use crate::common;
use std::path::{Path, PathBuf};

/// Mutations of each file.
const MUTATIONS: u32 = 60;
/// Longer files have fewer: so many bytes are read at most for one file.
const BYTES: usize = 4 << 20;

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut corpus: Vec<_> = files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    corpus.sort();
    assert!(!corpus.is_empty(), "{} is empty", folder.display());
    corpus
}

/// Calls the function with each file and its mutations.
fn run(corpus: &[(PathBuf, Vec<u8>)], input: fn(&[u8])) {
    for (path, bytes) in corpus {
        let mut rng = fastrand::Rng::with_seed(bytes.len() as u64);
        let mutations = MUTATIONS.min((BYTES / bytes.len().max(1)) as u32);
        let mut at = Failing { path, mutation: None };
        input(bytes);
        for number in 0..mutations {
            at.mutation = Some(number);
            let mut bytes = bytes.clone();
            mutate(&mut bytes, &mut rng);
            input(&bytes);
        }
    }
}

/// Says what was read when a function panics.
struct Failing<'a> {
    path: &'a Path,
    mutation: Option<u32>,
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed: {}, mutation {:?}", self.path.display(), self.mutation);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut fastrand::Rng) {
    for _ in 0..rng.u32(1..=8) {
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
            continue;
        }
        let at = rng.usize(..bytes.len());
        match rng.u32(..6) {
            0 => bytes[at] ^= 1 << rng.u32(..8),
            1 => bytes[at] = *rng.choice(&[0, 1, 0x7f, 0x80, 0xff]).unwrap(),
            2 => bytes.truncate(at),
            3 => {
                let to = (at + rng.usize(1..64)).min(bytes.len());
                drop(bytes.drain(at..to));
            }
            4 => {
                let to = (at + rng.usize(1..64)).min(bytes.len());
                let copy = bytes[at..to].to_vec();
                let to = rng.usize(..=bytes.len());
                bytes.splice(to..to, copy);
            }
            // A length or a count that is too large.
            _ => {
                let width = (*rng.choice(&[2, 4, 8]).unwrap()).min(bytes.len() - at);
                bytes[at..at + width].fill(0xff);
            }
        }
    }
}

#[test]
fn packets_of_the_protocol() {
    run(&corpus("wire"), inputs::wire);
}

#[test]
fn attributes() {
    run(&corpus("attr"), inputs::attr);
}

#[test]
fn descriptions_of_tracepoints() {
    run(&corpus("tracepoint_format"), inputs::tracepoint_format);
}

#[test]
fn recordings() {
    run(&corpus("perf_data"), inputs::perf_data);
    let golden = common::files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), "gz");
    assert!(!golden.is_empty());
    let unpack = |path: PathBuf| (path.clone(), common::unpacked(std::fs::File::open(path).unwrap()));
    run(&golden.into_iter().map(unpack).collect::<Vec<_>>(), inputs::perf_data);
}
