//! Places programs where the kernel maps them.

fn main() {
    println!("cargo:rustc-link-arg-bins=-T{}/user.ld", env!("CARGO_MANIFEST_DIR"));
    println!("cargo:rerun-if-changed=user.ld");
}
