//! The scenario language.
