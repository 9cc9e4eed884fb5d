//! Tests of the language as a whole.

mod checks;
mod errors;
mod eval;
mod files;
mod fuzz;
pub(super) mod generate;
mod roundtrip;

use super::ast::Scenario;
use super::{parse, render};

/// Reads a scenario that must be readable.
pub(super) fn read(text: &str) -> Scenario {
    parse(text).unwrap_or_else(|problems| panic!("{}", render("test", text, &problems)))
}
