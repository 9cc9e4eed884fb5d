//! Places the kernel where QEMU loads it, and tells it where its programs are: `kernel/run` builds them first.

use std::path::PathBuf;

fn main() {
    println!(
        "cargo:rustc-link-arg-bins=-T{}/src/arch/link.ld",
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")
    );
    println!("cargo:rerun-if-changed=src/arch/link.ld");
    // TARGET_DIR/TRIPLE/PROFILE/build/PACKAGE/out
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).expect("cargo sets it");
    let programs = out.ancestors().nth(4).expect("cargo puts it there").join("release");
    println!("cargo:rustc-env=PROGRAMS={}", programs.display());
}
