//! Registers of a sample, by the names that `perf script` gives them.
//!
//! **Invariant:** pure. A register of an architecture that is not known here is called by its number.

use pmux::profile::records::Regs;
use std::borrow::Cow;
use std::fmt::Write;

/// `asm/perf_regs.h` of x86.
const X86: [&str; 24] = [
    "AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES", "FS", "GS", "R8", "R9",
    "R10", "R11", "R12", "R13", "R14", "R15",
];

/// The name of a register of an architecture, as `uname -m` calls that.
fn name(architecture: &str, number: u32) -> Cow<'static, str> {
    match (architecture, number) {
        ("x86_64" | "i386" | "i586" | "i686" | "x86", 0..24) => X86[number as usize].into(),
        ("aarch64" | "arm64", 0..30) => format!("x{number}").into(),
        ("aarch64" | "arm64", 30) => "lr".into(),
        ("aarch64" | "arm64", 31) => "sp".into(),
        ("aarch64" | "arm64", 32) => "pc".into(),
        _ => format!("r{number}").into(),
    }
}

/// The registers that were recorded with their values, given the mask of the attribute.
pub(super) fn named<'a>(
    regs: &'a Regs<'_>,
    mask: u64,
    architecture: &'a str,
) -> impl Iterator<Item = (Cow<'static, str>, u64)> + 'a {
    (0..64).filter_map(move |number| Some((name(architecture, number), regs.register(mask, number)?)))
}

pub(super) fn push(regs: &Regs<'_>, mask: u64, architecture: &str, out: &mut String) {
    let _ = write!(out, " ABI:{} ", regs.abi.0);
    for (name, value) in named(regs, mask, architecture) {
        let _ = write!(out, "{name:>5}:{value:#x} ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_names() {
        assert_eq!((name("x86_64", 8), name("x86_64", 23)), ("IP".into(), "R15".into()));
        assert_eq!((name("aarch64", 29), name("aarch64", 32)), ("x29".into(), "pc".into()));
        assert_eq!(name("riscv64", 2), "r2");
    }
}
