//! What must hold after every step.
