//! `pmux diff`: what changed between recordings.
//!
//! **Invariant:** plain data, and the rules that clap can't say.

use super::picture::PartOptions;
use super::symbols::SymbolOptions;
use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct DiffOptions {
    /// Recordings from before the change; with two and nothing after `--`, one before and one after. A folder stands for all recordings in
    /// it
    #[arg(value_name = "BEFORE", required_unless_present = "input")]
    pub(crate) before: Vec<PathBuf>,

    /// The same as BEFORE, one each time; these come first
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,

    /// Recordings from after the change
    #[arg(value_name = "AFTER", last = true)]
    pub(crate) after: Vec<PathBuf>,

    /// Compare functions with all that they call, instead of each alone
    #[arg(long)]
    pub(crate) children: bool,

    /// Show so many functions; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: usize,

    /// Print JSON
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) part: PartOptions,

    #[command(flatten)]
    pub(crate) symbols: SymbolOptions,
}

impl DiffOptions {
    /// The recordings of both sides.
    pub(crate) fn sides(&self) -> Result<(Vec<PathBuf>, Vec<PathBuf>), String> {
        let before: Vec<_> = self.input.iter().chain(&self.before).cloned().collect();
        match (before.as_slice(), self.after.as_slice()) {
            ([before, after], []) => Ok((vec![before.clone()], vec![after.clone()])),
            (_, []) => Err("name two recordings, or those from before, `--`, and those from after".to_owned()),
            (_, after) => Ok((before, after.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sides_are_told_apart() {
        let options = |before: &[&str], after: &[&str]| {
            let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
            DiffOptions { before: paths(before), after: paths(after), ..DiffOptions::default() }
        };
        assert_eq!(options(&["a", "b"], &[]).sides().map(|(a, b)| (a.len(), b.len())), Ok((1, 1)));
        assert_eq!(options(&["a", "b"], &["c"]).sides().map(|(a, b)| (a.len(), b.len())), Ok((2, 1)));
        let with_input = DiffOptions { input: vec!["a".into()], ..options(&["b"], &[]) };
        assert_eq!(with_input.sides(), Ok((vec!["a".into()], vec!["b".into()])));
        assert!(options(&["a"], &[]).sides().is_err() && options(&["a", "b", "c"], &[]).sides().is_err());
    }
}
