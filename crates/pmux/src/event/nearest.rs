//! Names that are close to a misspelled one.
//!
//! **Invariant:** pure, and bounded: names longer than any real one are not compared.

const OFFERED: usize = 3;
/// Longer texts are no misspelled name.
const LONGEST: usize = 100;

/// The number of letters to add, drop, change or swap with a neighbour to get from one text to the other.
///
/// This is the restricted Damerau-Levenshtein distance: no part is changed twice. Upper and lower case are the same.
pub fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// How far a name may be from a typed one and still be offered. `None` if it is too far.
///
/// A name that contains all that was typed counts as near: people type `fault` and mean `page-faults`.
fn nearness(typed: &str, name: &str) -> Option<usize> {
    let most = (typed.chars().count() / 3).max(1);
    // The lengths alone may already say that they are too far apart, and so may the letters: that is cheap to see.
    let far = typed.len().abs_diff(name.len()) > most || letters_apart(typed, name) > most;
    let by_letters = if far { None } else { Some(distance(typed, name)).filter(|d| *d <= most) };
    let here = |part: &[u8]| part.eq_ignore_ascii_case(typed.as_bytes());
    by_letters.or_else(|| {
        let contained = typed.len() >= 3 && name.as_bytes().windows(typed.len()).any(here);
        contained.then_some(most + 1)
    })
}

/// How many letters of the one the other lacks, wherever they stand: no more than their distance. 0 where some are not plain,
/// which are several bytes each.
fn letters_apart(a: &str, b: &str) -> usize {
    if !a.is_ascii() || !b.is_ascii() {
        return 0;
    }
    /// Letters, figures, and all others by their last bits.
    const SORTS: usize = 64;
    let mut more = [0_i16; SORTS];
    let sort = |byte: u8| usize::from(byte.to_ascii_lowercase()) % SORTS;
    a.bytes().for_each(|byte| more[sort(byte)] += 1);
    b.bytes().for_each(|byte| more[sort(byte)] -= 1);
    let lacks = |sign: i16| more.iter().map(|&more| usize::try_from(sign * more).unwrap_or(0)).sum::<usize>();
    lacks(1).max(lacks(-1))
}

pub(crate) fn is_near(typed: &str, name: &str) -> bool {
    nearness(typed, name).is_some()
}

/// The candidates nearest to what was typed, best first: at most three, each once.
pub(crate) fn nearest(typed: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    nearest_by(typed, candidates.into_iter().map(|name| (name.clone(), name)))
}

/// As [`nearest`], for pairs of a name to compare and the text to offer for it.
pub(crate) fn nearest_by(typed: &str, candidates: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    if typed.is_empty() || typed.len() > LONGEST {
        return Vec::new();
    }
    let mut found: Vec<(usize, usize, String)> = candidates
        .into_iter()
        .filter_map(|(name, offer)| nearness(typed, &name).map(|far| (far, name.len().abs_diff(typed.len()), offer)))
        .collect();
    crate::order::sort(&mut found);
    let best = found.first().map_or(0, |(far, ..)| *far);
    // One that is clearly the best should not stand beside those that are hardly alike.
    let offered = found.into_iter().filter(|(far, ..)| *far <= best + 1).map(|(.., offer)| offer);
    let mut seen = std::collections::BTreeSet::new();
    offered.filter(|offer| seen.insert(offer.clone())).take(OFFERED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, far) in [
            ("", "", 0),
            ("abc", "", 3),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
            ("ABC", "abc", 0),
            ("page-fautls", "page-faults", 1),
        ] {
            assert_eq!(distance(a, b), far, "{a} {b}");
            assert_eq!(distance(b, a), far, "{b} {a}");
            assert!(letters_apart(a, b) <= far, "{a} {b}");
        }
    }

    #[test]
    fn near_names_come_best_first() {
        let names = || ["page-faults", "minor-faults", "cycles", "cs"].map(String::from);
        assert_eq!(nearest("page-fautls", names()), ["page-faults"]);
        assert_eq!(nearest("fault", names()), ["page-faults", "minor-faults"]);
        assert_eq!(nearest("cycle", names()), ["cycles"]);
        assert_eq!(nearest("zzzzzz", names()), [""; 0]);
        assert_eq!(nearest("", names()), [""; 0]);
    }
}
