//! Places programs where the kernel maps them.

fn main() {
    println!("cargo:rustc-link-arg-bins=-T{}/user.ld", std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-changed=user.ld");
}
