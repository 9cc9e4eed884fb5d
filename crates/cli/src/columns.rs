//! Texts in columns of a terminal.
//!
//! **Invariant:** what a text takes is counted in columns, never in characters or bytes.

use unicode_width::UnicodeWidthChar;

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// A text of exactly so many columns: filled with blanks, or cut off, which is seen.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let full = width(text);
    if full <= columns {
        return format!("{text}{}", " ".repeat(columns - full));
    }
    let (mut out, mut used) = (String::new(), 0);
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        out.push(c);
        used += wide;
    }
    if used < columns {
        out.push('…');
        out.push_str(&" ".repeat(columns - used - 1));
    }
    out
}

/// A text without so many columns on its left, which is seen.
pub(crate) fn shifted(text: &str, columns: usize) -> String {
    if columns == 0 {
        return text.to_owned();
    }
    let mut used = 0;
    let rest = text.char_indices().find(|(_, c)| {
        let is_behind = used >= columns;
        used += c.width().unwrap_or(0);
        is_behind
    });
    rest.map_or_else(String::new, |(at, _)| format!("…{}", text[at..].chars().skip(1).collect::<String>()))
}

pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(10);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        // A word that is too long is broken.
        while width(&line) > columns {
            let mut used = 0;
            let fits = |c: char| {
                used += c.width().unwrap_or(0);
                used > columns
            };
            let at = line.find(fits).filter(|&at| at > 0).unwrap_or(line.len());
            let rest = line.split_off(at);
            lines.push(std::mem::replace(&mut line, rest));
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_the_terminal() {
        assert_eq!(fit("abc", 5), "abc  ");
        assert_eq!(fit("abcdef", 5), "abcd…");
        assert_eq!(fit("漢字漢字", 8), "漢字漢字");
        assert_eq!(fit("漢字漢字", 6), "漢字… ");
        assert_eq!((fit("漢", 1), fit("漢", 0), fit("", 0)), ("…".to_owned(), String::new(), String::new()));
        for columns in 0..12 {
            assert_eq!(width(&fit("a漢字b漢", columns)), columns);
        }
    }

    #[test]
    fn texts_move_sideways() {
        assert_eq!((shifted("abcdef", 0), shifted("abcdef", 2)), ("abcdef".to_owned(), "…def".to_owned()));
        assert_eq!(shifted("漢字漢", 2), "…漢");
        assert_eq!((shifted("ab", 2), shifted("", 9)), (String::new(), String::new()));
    }

    #[test]
    fn texts_are_wrapped() {
        assert_eq!(wrap("one two three four", 10), ["one two", "three four"]);
        assert_eq!(wrap("0123456789abc de", 10), ["0123456789", "abc de"]);
        assert_eq!(wrap("", 10), [""]);
    }
}
