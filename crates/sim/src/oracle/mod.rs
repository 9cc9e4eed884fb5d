//! Slow and obvious models of what the engine does.
