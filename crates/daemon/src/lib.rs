//! The sharing service: one engine that counts for all clients.
//!
//! What it is: `pmux serve`. Clients ask over a Unix socket for groups of events; the service opens them in one session,
//! whose engine counts equal questions once, and answers with numbers, with a page of memory, or with the kernel's own files.
//! Read first: `service`, which says what becomes of a request; then `server`, the loop around it.
//!
//! **Invariant:** of the project it knows the `pmux` library only, and makes no system call of its own. Nothing that a
//! client sends, leaves out or does too slowly shows to another client.
#![forbid(unsafe_code)]

mod agent;
pub mod config;
pub mod counters;
pub mod flight;
pub mod http;
pub mod log;
mod log_limiter;
pub mod metrics;
mod notify;
pub mod payer;
pub mod rights;
pub mod server;
pub mod service;
mod streams;
