//! The known word that is nearest to a misspelled one.
//!
//! **Invariant:** pure, and bounded: texts longer than any word of the language are not compared.

/// Longer texts are no misspelled word.
const LONGEST: usize = 60;

/// The word that differs least from what was typed, if it differs little: at most one letter in three. Case makes no
/// difference. Where letters are only missing, that is nearer than where one is another. The last of those that are equally near: of `e1` and `e2`, who typed `e3` has just written `e2`.
pub(super) fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = typed.chars().map(|c| c.to_ascii_lowercase()).collect();
    if typed.is_empty() || typed.len() > LONGEST {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for word in known {
        let letters: Vec<char> = word.chars().map(|c| c.to_ascii_lowercase()).collect();
        let most = (typed.len().max(letters.len()) / 3).max(1);
        let distance = distance(&typed, &letters);
        // Names of one or two letters have nothing in common when one letter differs, unless it is the last: e1, e2.
        let alike = letters.len() > 2 || typed.first() == letters.first();
        let changed = !is_part(&typed, &letters) && !is_part(&letters, &typed);
        let far = distance * 2 + usize::from(changed);
        if distance <= most && alike && best.is_none_or(|(least, _)| far <= least) {
            best = Some((far, word));
        }
    }
    best.map(|(_, word)| word)
}

/// As [`nearest`], as a question to add to an error.
pub(super) fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(typed, known).map(|word| format!("did you mean `{word}`?"))
}

/// Whether all letters of `part` are in `whole`, in their order.
fn is_part(part: &[char], whole: &[char]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|letter| rest.any(|other| other == letter))
}

/// How many letters must be added, dropped, changed or swapped with their neighbour, none of them twice.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, other) in b.iter().enumerate() {
            let change = last[j] + usize::from(letter != other);
            row[j + 1] = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let words = ["open", "offline", "online", "enable", "disable", "e1", "e2"];
        for (typed, word) in [
            ("opne", Some("open")),
            ("ofline", Some("offline")),
            ("Enabel", Some("enable")),
            ("e3", Some("e2")),
            ("x1", None),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, words), word, "{typed}");
        }
    }
}
