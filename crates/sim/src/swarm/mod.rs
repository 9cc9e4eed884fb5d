//! Random runs from a seed.
