//! What is repeated.
//!
//! What it is: a list of things as pieces of which each is told once, and how many times.
//!
//! **Invariant:** the pieces, each as many times as it says, are the list.

/// A piece of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// Where it begins.
    pub(super) start: usize,
    /// How long it is, at least 1.
    pub(super) len: usize,
    /// How many times it stands there, at least 1.
    pub(super) times: usize,
}

/// The longest piece whose repetition is seen.
const LONGEST: usize = 64;

/// Finds what is repeated in a list, from left to right, each time what explains the most of it. Repetitions that save fewer
/// than `least_saved` things are left as they are.
pub(super) fn pieces<T: PartialEq>(list: &[T], least_saved: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut start = 0;
    while start < list.len() {
        let best = (1..=LONGEST.min((list.len() - start) / 2))
            .map(|len| Piece { start, len, times: times(list, start, len) })
            // The shortest of those that explain the most.
            .max_by_key(|piece| (covered(piece), std::cmp::Reverse(piece.len)))
            .filter(|piece| covered(piece) - piece.len >= least_saved.max(1));
        match (best, pieces.last_mut()) {
            (Some(piece), _) => {
                start += covered(&piece);
                pieces.push(piece);
            }
            (None, Some(last)) if last.times == 1 => {
                last.len += 1;
                start += 1;
            }
            (None, _) => {
                pieces.push(Piece { start, len: 1, times: 1 });
                start += 1;
            }
        }
    }
    pieces
}

/// How much of the list a piece with its repetitions is; nothing where it is not repeated.
fn covered(piece: &Piece) -> usize {
    if piece.times > 1 { piece.len * piece.times } else { piece.len }
}

/// How many times the piece stands there, one right after the other.
fn times<T: PartialEq>(list: &[T], start: usize, len: usize) -> usize {
    let same =
        list.iter().skip(start).zip(list.iter().skip(start + len)).take_while(|(one, other)| one == other).count();
    1 + same / len
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str, least_saved: usize) -> Vec<(String, usize)> {
        let list: Vec<char> = text.chars().collect();
        let piece = |piece: &Piece| (list[piece.start..piece.start + piece.len].iter().collect(), piece.times);
        pieces(&list, least_saved).iter().map(piece).collect()
    }

    #[test]
    fn the_shortest_piece_that_explains_the_most() {
        assert_eq!(found("xababababy", 2), [("x".into(), 1), ("ab".into(), 4), ("y".into(), 1)]);
        assert_eq!(found("aaaaaa", 2), [("a".to_string(), 6)]);
        assert_eq!(found("abcabd", 1), [("abcabd".to_string(), 1)]);
        assert_eq!(found("", 1), []);
    }

    #[test]
    fn what_saves_little_is_left_as_it_is() {
        assert_eq!(found("abab", 3), [("abab".to_string(), 1)]);
        assert_eq!(found("ababab", 3), [("ab".to_string(), 3)]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(list in proptest::collection::vec(0_u8..3, 0..200), least_saved in 0_usize..5) {
            let mut told: Vec<u8> = Vec::new();
            for piece in pieces(&list, least_saved) {
                prop_assert!(piece.len > 0 && piece.times > 0);
                for _ in 0..piece.times {
                    told.extend(&list[piece.start..piece.start + piece.len]);
                }
            }
            prop_assert_eq!(told, list);
        }
    }
}
