//! Names as the linker has them, as a reader of the source knows them, and when two are the same.
//!
//! What it is: [`readable`] undoes what compilers of Rust and C++ do to names; [`NameMatcher`] says how well a symbol fits a
//! name that a user typed. Read first: [`Fit`].
//!
//! **Invariant:** pure.

use crate::event::nearest::is_near;
use cpp_demangle::DemangleOptions;
use std::borrow::Cow;
use std::fmt::{self, Write};

/// A longer name is none that a user types: it isn't taken apart. A short one can stand for a very long one.
const LONGEST: usize = 4096;
/// From this length on the types of generics are left out where a function is shown.
const LONG: usize = 60;

/// The end of the names that the entries of a procedure linkage table are given.
pub(crate) const PLT: &str = "@plt";

/// A name as the source has it, without the marks that only make it unique.
pub(crate) fn readable(raw: &[u8]) -> Cow<'_, str> {
    match raw.strip_suffix(PLT.as_bytes()) {
        Some(function) => Cow::Owned(format!("{}{PLT}", demangled(function))),
        None => demangled(raw),
    }
}

fn demangled(raw: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(without_version(raw));
    if text.len() > LONGEST || !(text.starts_with("_Z") || text.starts_with("_R") || text.starts_with("__Z")) {
        return text;
    }
    let mut name = Bounded(String::new());
    let done = if is_rust(&text) {
        rustc_demangle::try_demangle(&text).is_ok_and(|found| write!(name, "{found:#}").is_ok())
    } else {
        // What a function template returns is no part of its name.
        let options = DemangleOptions::new().no_return_type();
        let found = cpp_demangle::Symbol::new(text.as_bytes());
        found.is_ok_and(|found| found.structured_demangle(&mut name, &options).is_ok())
    };
    if done { Cow::Owned(name.0) } else { text }
}

/// A text that takes no more than [`LONGEST`] bytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Without the version that a library gives a symbol: `name@@VERSION`.
fn without_version(raw: &[u8]) -> &[u8] {
    match raw.iter().position(|&byte| byte == b'@') {
        Some(at @ 1..) => &raw[..at],
        _ => raw,
    }
}

/// Whether a name was made by a Rust compiler: older ones write as C++ does, with a checksum at the end.
fn is_rust(text: &str) -> bool {
    /// `17h`, sixteen digits, `E`.
    const CHECKSUM: usize = 20;
    let checksum = |at: usize| {
        let part = text.as_bytes().get(at..at + CHECKSUM)?;
        Some(part[3..19].iter().all(u8::is_ascii_hexdigit) && part[19] == b'E')
    };
    text.starts_with("_R") || text.rfind("17h").and_then(checksum) == Some(true)
}

/// As [`readable`], without the parameters of a C++ function.
pub(crate) fn short(raw: &[u8]) -> String {
    let (function, end) = raw.strip_suffix(PLT.as_bytes()).map_or((raw, ""), |function| (function, PLT));
    let name = demangled(function);
    let mut name = match &*name {
        long if long.len() > LONGEST => long.chars().take(LONGEST).collect(),
        name if name.contains('(') => without_parameters(name),
        _ => name.into_owned(),
    };
    name.push_str(end);
    name
}

/// As [`short`], short enough for a line: without the types of generics, if it is long.
pub(crate) fn brief(raw: &[u8]) -> String {
    let name = short(raw);
    if name.len() < LONG { name } else { replaced(&name, '<', '>', "<…>", is_generic) }
}

/// How well a symbol fits a name; the first is the best.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fit {
    /// It is the name, as the linker or as the source has it.
    Exact,
    /// It is, but for what the compiler adds to copies and to variables inside functions: `counter.0`, `f.isra.0`.
    Copy,
    /// It is the end of its path: `COUNTER` of `writer::COUNTER`.
    End,
    /// It is, or is the end of its path, for some type: `id` of `writer::id::<u32>`.
    Generic,
}

/// A typed name, prepared to be held against many symbols.
pub(crate) struct NameMatcher {
    typed: String,
    plain: String,
    /// Compilers keep it as it is in all of their names. Empty where there is none.
    word: String,
}

impl NameMatcher {
    pub(crate) fn new(typed: &str) -> Self {
        let plain = without_parameters(typed);
        let bare = without_types(&plain);
        let last = bare.rsplit("::").find(|part| !part.contains(['{', '<', '(']) && !part.contains("operator"));
        let words = last.unwrap_or_default().split(|c: char| !c.is_alphanumeric() && c != '_');
        let word = words.max_by_key(|word| word.len()).unwrap_or_default().to_owned();
        // Letters that are not plain are written otherwise by compilers.
        let word = if word.is_ascii() { word } else { String::new() };
        Self { typed: typed.to_owned(), plain: squeezed(typed), word }
    }

    /// An entry of a procedure linkage table fits only where it is typed as it is shown: who types a function means its code.
    pub(crate) fn fit(&self, raw: &[u8]) -> Option<Fit> {
        // Most symbols end here, so this has to be quick.
        if !std::str::from_utf8(raw).is_ok_and(|raw| raw.contains(&self.word)) {
            return None;
        }
        if raw == self.typed.as_bytes() {
            return Some(Fit::Exact);
        }
        if raw.ends_with(PLT.as_bytes()) {
            return None;
        }
        if without_version(raw) == self.typed.as_bytes() {
            return Some(Fit::Exact);
        }
        let name = readable(raw);
        if name.len() > LONGEST {
            return None;
        }
        let exact = squeezed(&name);
        if exact == self.plain {
            return Some(Fit::Exact);
        }
        let short = squeezed(&without_parameters(&name));
        if short == self.plain {
            return Some(Fit::Exact);
        }
        let original = without_copy(&short);
        if original == self.plain {
            return Some(Fit::Copy);
        }
        let ends = |name: &str| name.strip_suffix(&self.plain).is_some_and(|path| path.ends_with("::"));
        if ends(&exact) || ends(&short) || ends(original) {
            return Some(Fit::End);
        }
        let bare = without_types(original);
        (bare == self.plain || ends(&bare)).then_some(Fit::Generic)
    }
}

/// A misspelled name, prepared to be held against very many symbols without taking all of them apart.
pub(crate) struct Rough<'t> {
    typed: &'t str,
    /// The last part of its path.
    last: &'t str,
}

impl<'t> Rough<'t> {
    pub(crate) fn new(typed: &'t str) -> Self {
        Self { typed, last: typed.rsplit("::").next().unwrap_or(typed) }
    }

    /// Whether the symbol may have been meant: it is near by its name, or one of the words that a compiler has kept in it is.
    pub(crate) fn may_be_near(&self, raw: &[u8]) -> bool {
        let near = |typed: &str, word: &[u8]| std::str::from_utf8(word).is_ok_and(|word| is_near(typed, word));
        let raw = &raw[..raw.len().min(LONGEST)];
        if raw.ends_with(PLT.as_bytes()) {
            return false;
        }
        if !(raw.starts_with(b"_Z") || raw.starts_with(b"_R") || raw.starts_with(b"__Z")) {
            return near(self.typed, without_version(raw));
        }
        words(raw).any(|word| near(self.last, word))
    }
}

/// The words in a name that a compiler of Rust or C++ has made: each stands behind its length.
fn words(raw: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = raw;
    std::iter::from_fn(move || {
        let start = rest.iter().position(u8::is_ascii_digit)?;
        let digits = rest[start..].iter().take_while(|byte| byte.is_ascii_digit());
        let (mut len, mut width) = (0_usize, 0);
        for digit in digits {
            len = len.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            width += 1;
        }
        // Names that begin with a digit or an underscore have one before them.
        let behind = &rest[start + width..];
        let word = &behind[..len.min(behind.len())];
        rest = &behind[word.len()..];
        Some(word.strip_prefix(b"_").filter(|_| raw.starts_with(b"_R")).unwrap_or(word))
    })
}

/// Without blanks, which no user types as the demanglers do.
fn squeezed(name: &str) -> String {
    name.chars().filter(|c| *c != ' ').collect()
}

/// Without what a compiler adds to the name of a copy: `.0`, `.isra.0`, `.constprop.1`, `.llvm.123`.
fn without_copy(name: &str) -> &str {
    let mut name = name.split("[clone").next().unwrap_or(name);
    while let Some((before, end)) = name.rsplit_once('.') {
        let number = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
        if before.is_empty() || !(number || matches!(end, "isra" | "constprop" | "part" | "llvm" | "lto_priv")) {
            break;
        }
        name = before;
    }
    name
}

/// Puts something else in the place of the parts of a name that are in brackets of a kind, where `is_part` says so, given
/// what stands before.
fn replaced(name: &str, open: char, close: char, by: &str, is_part: impl Fn(&str, &str) -> bool) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(open) {
        let (before, group) = rest.split_at(at);
        kept.push_str(before);
        let mut depth = 0_usize;
        let mut end = group.len();
        for (at, c) in group.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close && !group[..at].ends_with('-') {
                depth -= 1;
                if depth == 0 {
                    end = at + c.len_utf8();
                    break;
                }
            }
        }
        if depth > 0 || !is_part(&kept, &group[..end]) {
            // An operator's name, or no pair of brackets: only the sign itself is passed over.
            let sign = if depth > 0 { open.len_utf8() } else { end };
            kept.push_str(&group[..sign]);
            rest = &group[sign..];
        } else {
            kept.push_str(by);
            rest = &group[end..];
        }
    }
    kept.push_str(rest);
    kept
}

/// How many `<` are open at the end of a name. Those of operators and arrows are none.
fn angles(name: &str) -> i32 {
    let mut depth = 0;
    let mut rest = name;
    while let Some(at) = rest.find(['<', '>']) {
        let (before, found) = rest.split_at(at);
        let sign = found.trim_start_matches(['<', '>', '=']);
        let operator = before.ends_with("operator");
        if !operator && !before.ends_with('-') {
            depth += if found.starts_with('<') { 1 } else { -1 };
        }
        rest = if operator { sign } else { &found[1..] };
    }
    depth
}

/// Without the parameters of functions: `ns::f` of `ns::f(int) const`, and `f::counter` of `f(int)::counter`.
fn without_parameters(name: &str) -> String {
    let plain = replaced(name, '(', ')', "", |before, group| {
        // In the arguments of a template they are types: `f<void (*)(int)>`.
        group != "(anonymous namespace)" && !before.ends_with("operator") && !before.is_empty() && angles(before) <= 0
    });
    let end = [" const", "[abi:cxx11]"].iter().fold(plain.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name));
    end.to_owned()
}

/// Whether brackets hold the types of a generic, given what stands before them.
fn is_generic(before: &str, _: &str) -> bool {
    before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') && !before.ends_with("operator")
}

/// Without the types of a generic: `id` of `id::<u32>` and of `id<int>`.
fn without_types(name: &str) -> String {
    let plain = replaced(name, '<', '>', "", is_generic);
    let plain = plain.replace("::::", "::");
    plain.strip_suffix("::").unwrap_or(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_readable() {
        for (raw, name) in [
            ("main", "main"),
            ("_ZN6writer7COUNTER17h2a3b0e8883d7e210E", "writer::COUNTER"),
            ("_RNvNtNtNtCsjrHSEGnQ3l9_3std6thread7current2id2ID", "std::thread::current::id::ID"),
            ("_ZN2ns7counterE", "ns::counter"),
            ("_ZN2ns1fEic", "ns::f(int, char)"),
            ("_ZZN2ns1fEiE5local", "ns::f(int)::local"),
            ("_ZN12_GLOBAL__N_17counterE", "(anonymous namespace)::counter"),
            ("_Znonsense", "_Znonsense"),
            ("strlen@plt", "strlen@plt"),
            ("_ZN2ns1fEic@plt", "ns::f(int, char)@plt"),
        ] {
            assert_eq!(readable(raw.as_bytes()), name, "{raw}");
        }
        assert_eq!(short(b"_ZN2ns1fEic"), "ns::f");
        assert_eq!(short(b"_ZN2ns1fEic@plt"), "ns::f@plt");
        assert_eq!(short(b"_ZN2ns3runIPFviEEEvT_"), "ns::run<void (*)(int)>");
        let invoker = b"_ZNSt6thread8_InvokerISt5tupleIJPFviEiEEEclEv";
        assert_eq!(short(invoker), "std::thread::_Invoker<std::tuple<void (*)(int), int> >::operator()");
        assert_eq!(brief(invoker), "std::thread::_Invoker<…>::operator()");
        let closure = "<AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once";
        assert_eq!(without_parameters(closure), closure);
        assert_eq!(short(b"_ZZN2ns1fEiE5local"), "ns::f::local");
        assert_eq!(short(b"_ZN12_GLOBAL__N_17counterE"), "(anonymous namespace)::counter");
    }

    #[test]
    fn how_well_names_fit() {
        let fit = |typed: &str, raw: &str| NameMatcher::new(typed).fit(raw.as_bytes());
        for (typed, raw, expected) in [
            ("counter", "counter", Some(Fit::Exact)),
            ("counter", "counter.0", Some(Fit::Copy)),
            ("f", "f.isra.0", Some(Fit::Copy)),
            ("f", "f@@LIB_1.2", Some(Fit::Exact)),
            ("f", "f@plt", None),
            ("f@plt", "f@plt", Some(Fit::Exact)),
            ("counter", "counter2", None),
            ("counter", "my_counter", None),
            ("writer::COUNTER", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", Some(Fit::Exact)),
            ("COUNTER", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", Some(Fit::End)),
            ("UNTER", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", None),
            ("_ZN6writer7COUNTER17h2a3b0e8883d7e210E", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", Some(Fit::Exact)),
            ("ns::f", "_ZN2ns1fEic", Some(Fit::Exact)),
            ("ns::f(int,char)", "_ZN2ns1fEic", Some(Fit::Exact)),
            ("ns::f(int)", "_ZN2ns1fEic", None),
            ("f", "_ZN2ns1fEic", Some(Fit::End)),
            ("f::local", "_ZZN2ns1fEiE5local", Some(Fit::End)),
            ("local", "_ZZN2ns1fEiE5local", Some(Fit::End)),
            ("std::vector<int>::push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi", None),
            ("push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi", Some(Fit::End)),
            ("std::vector::push_back", "_ZNSt6vectorIiSaIiEE9push_backERKi", Some(Fit::Generic)),
            ("ns::operator+", "_ZN2nsplERKNS_1AES2_", Some(Fit::Exact)),
            ("ns::operator<", "_ZN2nsltERKNS_1AES2_", Some(Fit::Exact)),
            ("ns::run", "_ZN2ns3runIPFviEEEvT_", Some(Fit::Generic)),
            ("(anonymous namespace)::counter", "_ZN12_GLOBAL__N_17counterE", Some(Fit::Exact)),
            ("counter", "_ZN12_GLOBAL__N_17counterE", Some(Fit::End)),
        ] {
            assert_eq!(fit(typed, raw), expected, "{typed} for {raw}, which is {}", readable(raw.as_bytes()));
        }
    }

    #[test]
    fn a_misspelled_name_is_seen_in_what_a_compiler_made_of_it() {
        for (typed, raw, near) in [
            ("contuer", "counter", true),
            ("contuer", "balance", false),
            ("COUNTR", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", true),
            ("writer::COUNTR", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", true),
            ("writr::COUNTER", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", true),
            ("writer::BALNCE", "_ZN6writer7COUNTER17h2a3b0e8883d7e210E", false),
            ("curent", "_RNvNtNtNtCsjrHSEGnQ3l9_3std6thread7current2id2ID", true),
            ("psh_back", "_ZNSt6vectorIiSaIiEE9push_backERKi", true),
            ("xyz", "_Z99999999999999999999999999abc", false),
        ] {
            assert_eq!(Rough::new(typed).may_be_near(raw.as_bytes()), near, "{typed} {raw}");
        }
    }

    #[test]
    fn names_that_explode_stay_bearable() {
        // Each part stands for the two before it.
        let mut bomb = String::from("_Z1f");
        (0..200).for_each(|_| bomb.push_str("S_IS_S_E"));
        for raw in [bomb.clone(), format!("_ZN1aI{}E", "1bIS_S_E".repeat(300)), "(".repeat(1 << 20), "<".repeat(4000)] {
            assert!(short(raw.as_bytes()).len() <= 2 * LONGEST);
            assert!(brief(raw.as_bytes()).len() <= 2 * LONGEST);
            assert_eq!(NameMatcher::new("counter").fit(raw.as_bytes()), None);
            assert!(NameMatcher::new(&raw[..raw.len().min(LONGEST)]).fit(b"counter").is_none());
        }
    }

    proptest! {
        #[test]
        fn any_names_can_be_held_against_each_other(typed in "[a-z<>():. ~*&{}_é-]{0,20}", raw in "(_ZN|_R|)[A-Za-z0-9_<>(). ]{0,20}") {
            let _ = NameMatcher::new(&typed).fit(raw.as_bytes());
            let _ = short(raw.as_bytes());
            let _ = Rough::new(&typed).may_be_near(raw.as_bytes());
        }

        #[test]
        fn a_plain_name_fits_itself(name in "[a-zA-Z_][a-zA-Z0-9_]{0,12}") {
            prop_assert_eq!(NameMatcher::new(&name).fit(name.as_bytes()), Some(Fit::Exact));
        }
    }
}
