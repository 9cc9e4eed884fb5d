//! Texts and what they mean; what prints, reads back.

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> AddressSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn symbol(module: Option<&str>, name: &str, offset: u64) -> AddressForm {
    AddressForm::Symbol { module: module.map(str::to_owned), name: name.to_owned(), offset }
}

fn line(module: Option<&str>, file: &str, line: u32) -> AddressForm {
    AddressForm::Line { module: module.map(str::to_owned), file: file.to_owned(), line }
}

#[test]
fn texts_mean_what_they_should() {
    let (w, x, rw) = (Some(Access::WRITE), Some(Access::EXECUTE), Some(Access::READ_WRITE));
    let in_module = |module: &str, address| AddressForm::InModule { module: module.into(), address };
    for (text, what, len, access) in [
        ("0x1f", AddressForm::Address(0x1f), None, None),
        ("0xffffffff81000000/8:w", AddressForm::Address(0xffff_ffff_8100_0000), Some(8), w),
        ("counter", symbol(None, "counter", 0), None, None),
        ("counter:w", symbol(None, "counter", 0), None, w),
        ("main:x", symbol(None, "main", 0), None, x),
        (" table+0x10/4:wr ", symbol(None, "table", 16), Some(4), rw),
        ("table+8", symbol(None, "table", 8), None, None),
        ("mylib.so:func", symbol(Some("mylib.so"), "func", 0), None, None),
        ("/usr/lib/a.so:func:x", symbol(Some("/usr/lib/a.so"), "func", 0), None, x),
        ("my_crate::COUNTER:w", symbol(None, "my_crate::COUNTER", 0), None, w),
        ("prog:my_crate::COUNTER", symbol(Some("prog"), "my_crate::COUNTER", 0), None, None),
        ("prog:::x", symbol(Some("prog"), "x", 0), None, None),
        ("prog:x", symbol(None, "prog", 0), None, x),
        ("prog:::counter", symbol(Some("prog"), "counter", 0), None, None),
        ("::counter", symbol(None, "counter", 0), None, None),
        ("ns::f(int, char)::local:rw", symbol(None, "ns::f(int, char)::local", 0), None, rw),
        ("ns::operator/(ns::A)", symbol(None, "ns::operator/(ns::A)", 0), None, None),
        ("ns::operator+", symbol(None, "ns::operator+", 0), None, None),
        ("ns::operator++", symbol(None, "ns::operator++", 0), None, None),
        ("ns::operator++0x4", symbol(None, "ns::operator+", 4), None, None),
        ("<dyn a::B + c::D>::run:x", symbol(None, "<dyn a::B + c::D>::run", 0), None, x),
        ("kernel:jiffies", symbol(Some(KERNEL), "jiffies", 0), None, None),
        ("[kernel]:jiffies", symbol(Some(KERNEL), "jiffies", 0), None, None),
        ("mylib.so:0x1234/2", in_module("mylib.so", 0x1234), Some(2), None),
        ("writer.rs:120", line(None, "writer.rs", 120), None, None),
        ("src/writer.rs:120:x", line(None, "src/writer.rs", 120), None, x),
        ("prog:writer.rs:7", line(Some("prog"), "writer.rs", 7), None, None),
    ] {
        assert_eq!(parse(text), AddressSpec { what, len, access }, "{text}");
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, shown) in [
        ("", "no target given: expected an address, a symbol or FILE:LINE\n  \n  ^"),
        ("counter:", "expected an access (r, w, rw or x), a line or a symbol here\n  counter:\n          ^"),
        ("counter:ww", "a letter stands twice: expected r, w, rw or x\n  counter:ww\n          ^"),
        ("counter:wx", "x goes with no other letter: name the target twice\n  counter:wx\n          ^"),
        ("1200", "a plain number: write 0x1200 for an address, or FILE:1200 for a line\n  1200\n  ^"),
        ("0x", "expected an address as a number (12 or 0xc), found '0x'\n  0x\n  ^"),
        ("0x1g", "expected an address as a number (12 or 0xc), found '0x1g'\n  0x1g\n  ^"),
        ("0x11112222333344445", "an address is out of range\n  0x11112222333344445\n  ^"),
        ("é+", "expected an offset in bytes here\n  é+\n    ^"),
        ("c/0:w", "the length is out of range\n  c/0:w\n    ^"),
        ("c/q", "expected a length in bytes as a number (12 or 0xc), found 'q'\n  c/q\n    ^"),
        ("c+q", "expected an offset in bytes as a number (12 or 0xc), found 'q'\n  c+q\n    ^"),
        ("a.c:0", "the line is out of range\n  a.c:0\n      ^"),
        ("a.c:99999999999", "the line is out of range\n  a.c:99999999999\n      ^"),
        (":x", "expected the name of a symbol here\n  :x\n  ^"),
        (":f", "expected the name of a program or library here\n  :f\n  ^"),
        (
            "a:b:c:d:e",
            "too many parts: expected [MODULE:]SYMBOL[+OFF][/LEN][:rwx], 0xADDR[/LEN][:rwx] or [MODULE:]FILE:LINE\n  a:b:c:d:e\n      ^",
        ),
        ("a.c:3:w", "a line is code, which is executed: leave out the access, or write x\n  a.c:3:w\n      ^"),
        ("main/4:x", "code has no length: leave out /LEN, or the x\n  main/4:x\n  ^"),
        ("a\u{1b}b", "no target has the character '\\u{1b}'\n  a?b\n   ^"),
    ] {
        let error = text.parse::<AddressSpec>().expect_err(text);
        assert_eq!(error.to_string(), shown, "{text:?}");
    }
}

#[test]
fn values_print_as_they_are_written() {
    let texts = "0x1f/4:rw counter:w mylib.so:func+0x8 a::B prog:writer.rs:120:x lib.so:0x10/2:w kernel:jiffies:w";
    for text in texts.split(' ') {
        assert_eq!(parse(text).to_string(), text);
    }
}

proptest! {
    #[test]
    fn no_text_panics_and_all_print_back(text in r"([a-zA-Z0-9_:+/ .<>()\-\[\]]|::|0x|:w|operator|é){0,24}") {
        if let Ok(wanted) = text.parse::<AddressSpec>() {
            let again = wanted.to_string().parse::<AddressSpec>();
            prop_assert_eq!(again.as_ref(), Ok(&wanted), "{} printed as {}", text, wanted);
        }
    }

    #[test]
    fn any_bytes_are_understood_or_refused(text in "\\PC{0,40}") {
        match text.parse::<AddressSpec>() {
            Ok(wanted) => prop_assert!(!wanted.to_string().is_empty()),
            Err(error) => prop_assert!(error.column() <= text.chars().count()),
        }
    }

    #[test]
    fn parts_come_back(
        module in proptest::option::of("[a-z][a-z0-9_.-]{0,8}"),
        name in "[a-zA-Z_][a-zA-Z0-9_]{0,6}(::[a-zA-Z_][a-zA-Z0-9_]{0,4}){0,2}",
        offset in 0_u64..5000,
        len in proptest::option::of(1_u64..1000),
        access in proptest::option::of(prop_oneof![Just(Access::READ), Just(Access::WRITE), Just(Access::READ_WRITE)]),
    ) {
        let what = AddressForm::Symbol { module, name, offset };
        let wanted = AddressSpec { what, len, access };
        // Words for the kernel are all printed as one.
        let Ok(read) = wanted.to_string().parse::<AddressSpec>() else { return Err(TestCaseError::fail(wanted.to_string())) };
        if !wanted.to_string().starts_with("vmlinux:") {
            prop_assert_eq!(read, wanted);
        }
    }
}
