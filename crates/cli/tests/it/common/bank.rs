//! The program that is watched.
//!
//! What it is: a program in C (`bank.c`), compiled here. Where there is no compiler, the test binary itself plays it, if call chains lead
//! through Rust without having been asked for when it was built.
//!
//! **Invariant:** how often the vault is written to is known: [`ALL`] times by `tellers`.

use super::{lock, needs, program, role};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// So many threads pay in, so often each; the second one forgets once.
pub const TELLERS: u64 = 3;
pub const PAYMENTS: u64 = 40;
pub const ALL: u64 = TELLERS * PAYMENTS + 1;

/// Who plays the bank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bank {
    /// The program in C.
    Compiled(PathBuf),
    /// The test binary.
    Played,
}

impl Bank {
    /// Made once; `None`, and a skip, where there is none.
    pub fn open() -> Option<&'static Self> {
        static MADE: OnceLock<Option<Bank>> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            // There frame pointers are part of how functions are called.
            if cfg!(target_arch = "aarch64") && !super::is_installed("cc") {
                return Some(Self::Played);
            }
            program("cc").then(Self::compile)
        });
        needs("cc", "a program to watch", made.is_some()).then_some(made.as_ref()).flatten()
    }

    fn compile() -> Self {
        let (source, mut hash) = (include_str!("bank.c"), DefaultHasher::new());
        source.hash(&mut hash);
        // For all runs, until it is another one.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bank-{:x}", hash.finish()));
        let (bank, made) = (folder.join("bank"), folder.join("made"));
        let _one_makes_it = lock("bank");
        if !made.exists() {
            std::fs::create_dir_all(&folder).unwrap();
            super::cc(&folder, "bank", source, &["-g", "-O0", "-fno-omit-frame-pointer", "-pthread"]);
            std::fs::write(made, "").unwrap();
        }
        Self::Compiled(bank)
    }

    /// The words that let it do something; with a file, where it waits for one or makes one.
    pub fn words(&self, deed: &str, file: &str) -> Vec<OsString> {
        match self {
            Self::Compiled(path) => vec![path.into(), deed.into(), file.into()],
            Self::Played => role::words(&format!("bank:{deed},{file}")),
        }
    }
}

/// What is watched, by names that nothing else has.
#[allow(non_upper_case_globals)]
pub static vault: AtomicI64 = AtomicI64::new(0);
#[allow(non_upper_case_globals)]
pub static drawers: [AtomicI64; 16] = [const { AtomicI64::new(0) }; 16];

#[inline(never)]
fn pay_in(amount: i64) {
    // Two steps, so that one of them is a plain write on every machine.
    let before = vault.load(Ordering::Relaxed);
    vault.store(before + amount, Ordering::Relaxed);
}

#[inline(never)]
fn forget() {
    vault.store(0, Ordering::Relaxed);
}

fn teller(number: u64) {
    (0..PAYMENTS).for_each(|_| pay_in(1));
    if number == 1 {
        forget();
    }
}

/// Does one thing after the other, until `file` is there.
fn until(file: &Path, mut what: impl FnMut()) {
    while !file.exists() {
        what();
    }
}

pub fn play(deed: &str, file: &Path) {
    match deed {
        "tellers" => std::thread::scope(|scope| {
            for number in 0..TELLERS {
                let named = std::thread::Builder::new().name(format!("teller-{number}"));
                named.spawn_scoped(scope, move || teller(number)).unwrap();
            }
        }),
        "fails" => {
            forget();
            std::process::exit(3);
        }
        "touches" => std::fs::write(file, "").unwrap(),
        // One number after the other: what stands there is what is written.
        "counts" => (1..=500).for_each(|_| pay_in(1)),
        "writes" => until(file, || {
            pay_in(1);
            std::thread::sleep(Duration::from_millis(1));
        }),
        "many" => until(file, || {
            // A compiler could make single variables of them.
            for word in std::hint::black_box(&drawers) {
                word.store(1, Ordering::Relaxed);
            }
        }),
        _ => panic!("the bank does not {deed}"),
    }
}
