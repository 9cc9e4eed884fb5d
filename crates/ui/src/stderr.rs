//! What pmux itself has to say: one way to standard error.
//!
//! **Invariant:** nothing here fails or panics: who can't be told is not told. What others have named (events, files,
//! commands) reaches the terminal without control characters.

use std::io::Write;

/// Writes one line, or several, to standard error.
pub fn write_stderr(text: &str) {
    let mut line = crate::text::in_locale(&visible_lines(text)).into_owned();
    line.push('\n');
    // One call, so that lines of several programs don't mix. When it fails, there is no other place to say so.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Says what is wrong, and returns the exit status.
pub fn report_error(text: &str, status: u8) -> u8 {
    write_stderr(&format!("pmux: {text}"));
    status
}

/// Returns the text with control characters made visible (`\n`, `\u{1b}`), and with them those that change the direction
/// of what follows or have no width.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_visible(&mut out, text);
    out
}

/// Appends text as [`visible`] has it.
pub fn push_visible(out: &mut String, text: &str) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.chars().any(is_unseen) {
        return out.push_str(text);
    }
    for c in text.chars() {
        if is_unseen(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

fn visible_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(visible).collect();
    lines.join("\n")
}

fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_visible() {
        assert_eq!(visible("ls -l"), "ls -l");
        assert_eq!(visible("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(visible("\u{9b}31m\u{202e}txt"), "\\u{9b}31m\\u{202e}txt");
        assert_eq!(visible("grüße 漢字"), "grüße 漢字");
    }

    #[test]
    fn line_ends_of_our_own_stay() {
        assert_eq!(visible_lines("no event\u{7}\n  here\t"), "no event\\u{7}\n  here\\t");
    }
}
