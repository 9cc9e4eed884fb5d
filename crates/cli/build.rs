//! Links the part of `libgcc_s` that the standard library uses for backtraces into the command. A shared library more takes
//! one twentieth of the time of `pmux stat true`: it is mapped, relocated, and asks the CPU for its features.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let native = std::env::var("TARGET") == std::env::var("HOST") && is("CARGO_CFG_TARGET_ENV", "gnu");
    // A compiler that does not have the file prints its name only, and another linker does not understand the question.
    let has_it = || {
        let linker = std::env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
        let printed = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
        printed.is_ok_and(|printed| printed.stdout.starts_with(b"/"))
    };
    if native && has_it() {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
        // Wanted before the libraries are looked through, so that the static one, which comes first, has it all.
        println!("cargo::rustc-link-arg-bins=-Wl,--undefined=_Unwind_Resume");
    }
}
