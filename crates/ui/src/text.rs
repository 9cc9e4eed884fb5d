//! Lines that fit: in columns, and in the signs that the locale has.
//!
//! **Invariant:** pure but for [`has_utf8`]; a column is a character.

use std::borrow::Cow;
use std::sync::LazyLock;

/// How many columns a text takes, one for each character.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Cuts a text to so many columns; an ellipsis shows that something is missing.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        out.push('…');
    }
    out
}

/// Breaks a text between words into lines of at most so many columns, the second and all others indented. A longer word has a line
/// of its own.
#[must_use]
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let rest = text.trim_start_matches(' ');
    let (mut out, mut line) = (String::new(), text[..text.len() - rest.len()].to_owned());
    for word in rest.split(' ') {
        if !line.trim().is_empty() && columns(&line) + 1 + columns(word) > width {
            out.push_str(&line);
            out.push('\n');
            line = indent.to_owned();
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out + &line
}

/// Whether the characters of the locale are UTF-8, by `LC_ALL`, `LC_CTYPE`, `LANG`, of which the first that is set counts.
#[must_use]
pub fn has_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    set.unwrap_or_default().to_ascii_lowercase().replace('-', "").contains("utf8")
}

static IN_UTF8: LazyLock<bool> = LazyLock::new(|| has_utf8(|name| std::env::var(name).ok()));

/// A text for people in the signs of this locale: where it has no UTF-8, `…`, `±`, arrows and the lines of trees are of ASCII, a
/// character for a character where that can be. Names that others have given stay.
#[must_use]
pub fn in_locale(text: &str) -> Cow<'_, str> {
    if *IN_UTF8 || text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(in_ascii(text)) }
}

fn in_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut next = text.chars().skip(1).chain([' ']);
    for c in text.chars() {
        let is_last_of_word = next.next().is_none_or(char::is_whitespace);
        match c {
            // As a word it stands for words, else for letters that were cut off.
            '…' if is_last_of_word
                && out.chars().next_back().is_none_or(|before| before.is_whitespace() || before == ',') =>
            {
                out.push_str("...");
            }
            '…' => out.push('~'),
            '±' => out.push_str("+-"),
            '→' => out.push_str("->"),
            '←' => out.push_str("<-"),
            '×' => out.push('x'),
            '·' => out.push('.'),
            '─' | '╴' => out.push('-'),
            '│' | '├' | '▏' => out.push('|'),
            '└' | '↳' => out.push('`'),
            '█' => out.push('#'),
            '░' => out.push('.'),
            '▸' | '›' => out.push('>'),
            '▾' | '▼' | '↓' => out.push('v'),
            '↑' => out.push('^'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_counts_characters() {
        assert_eq!(cut("grüße", 5), "grüße");
        assert_eq!(cut("grüße", 4), "grü…");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("one two three", 7, "  "), "one two\n  three");
        assert_eq!(wrap("one two three", 20, "  "), "one two three");
        assert_eq!(wrap("a incomprehensible b", 8, " "), "a\n incomprehensible\n b");
        assert_eq!(wrap("  indented at first", 11, "  "), "  indented\n  at first");
    }

    #[test]
    fn the_locale_says_what_there_is() {
        let of = |set: &[(&str, &str)]| {
            has_utf8(|name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]) && !of(&[]));
    }

    #[test]
    fn signs_have_others_in_ascii() {
        assert_eq!(
            in_ascii(" ├─ a_prog…  ± 1.2 × 3\n └─ b\n … and 3 more"),
            " |- a_prog~  +- 1.2 x 3\n `- b\n ... and 3 more"
        );
        assert_eq!((in_ascii("漢字"), in_ascii("a ….c")), ("漢字".to_owned(), "a ~.c".to_owned()));
    }
}
