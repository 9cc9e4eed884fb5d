//! Shell patterns over names: `*`, `?`, `[a-z]`, `[!x]`.
//!
//! **Invariant:** pure, and never slower than the length of the pattern times the length of the name.

/// Whether a text is a pattern, rather than a plain name.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether a name matches a pattern. A `[` that is never closed stands for itself.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when the text after the last `*` didn't match: that star takes one more byte.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if p < pattern.len() && pattern[p] == b'*' {
            p += 1;
            retry = Some((p, n));
            continue;
        }
        if n == name.len() && p == pattern.len() {
            return true;
        }
        if n < name.len()
            && let Some(next) = one(pattern, p, name[n])
        {
            p = next;
            n += 1;
            continue;
        }
        match retry {
            Some((after_star, taken)) if taken < name.len() => {
                p = after_star;
                n = taken + 1;
                retry = Some((after_star, n));
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the element at `at`; gives the place of the next element.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match set(pattern, at, byte) {
            Some((true, next)) => Some(next),
            Some((false, _)) => None,
            None => (byte == b'[').then_some(at + 1),
        },
        plain => (plain == byte).then_some(at + 1),
    }
}

/// Reads the set that opens at `at`: whether it holds the byte, and where it ends. `None` if it isn't closed.
fn set(pattern: &[u8], at: usize, byte: u8) -> Option<(bool, usize)> {
    let mut i = at + 1;
    let negated = matches!(pattern.get(i), Some(b'!' | b'^'));
    i += usize::from(negated);
    let first = i;
    let mut found = false;
    loop {
        let low = *pattern.get(i)?;
        if low == b']' && i > first {
            return Some((found != negated, i + 1));
        }
        let is_range = pattern.get(i + 1) == Some(&b'-') && !matches!(pattern.get(i + 2), None | Some(b']'));
        let high = if is_range { pattern[i + 2] } else { low };
        found |= (low..=high).contains(&byte);
        i += if is_range { 3 } else { 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::{is_pattern, matches};

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "abc"),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("*fork*", "sched_process_fork"),
            ("a*b*c", "aXbYbZc"),
            ("", ""),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*c", "abbd"), ("?", ""), ("a?", "a"), ("", "a"), ("a", ""), ("*b", "abc")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn sets() {
        assert!(matches("sys_[a-c]x", "sys_bx"));
        assert!(!matches("sys_[!a-c]x", "sys_bx"));
        assert!(matches("[]]", "]"));
        assert!(matches("a[", "a["));
        assert!(matches("[a-]", "-"));
        assert!(is_pattern("a[b") && is_pattern("*") && !is_pattern("a-b"));
    }

    #[test]
    fn many_stars_stay_cheap() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!matches(&pattern, &"a".repeat(2000)));
    }
}
