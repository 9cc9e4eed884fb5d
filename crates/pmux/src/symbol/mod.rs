//! From names to addresses, and from addresses to names.
//!
//! What it is: everything between the text of a target (`counter:w`, `main:x`, `writer.rs:120`) and the addresses that
//! breakpoints need, for programs, libraries and the kernel; a command that is held at the moment when they are mapped;
//! and the way back, from an address in a sample to a function and a line.
//!
//! Read first: [`AddressSpec`], then [`Symbolizer::find`] and [`Symbolizer::place`]; for commands [`Followed`].
//!
//! ```
//! use pmux::symbol::{AddressSpec, Finding, ProcessImage, SearchScope, Symbolizer};
//! use pmux::{Command, Step};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wanted: AddressSpec = "libc.so:malloc:x".parse()?;
//! let mut symbolizer = Symbolizer::new();
//! let mut followed = match Command::hold(["true"])?.follow() {
//!     Err(pmux::Error::Follow(refused)) => return Ok(println!("not here: {refused}")),
//!     followed => followed?,
//! };
//! // Everything stands while a stop is looked at: events that are opened now miss nothing.
//! while let Step::Mapped(stop) = followed.next_step() {
//!     let image = ProcessImage::read(stop.pid())?;
//!     match symbolizer.find(&wanted, SearchScope::Process(&image)) {
//!         Ok(Finding::Found(found)) => {
//!             println!("{} is at {:#x}", found[0].name, found[0].address);
//!             break;
//!         }
//!         Ok(Finding::NotYet(_)) => {}
//!         Err(error) => return Ok(println!("{error}")),
//!     }
//! }
//! let status = followed.finish().wait(&pmux::Session::new()?)?.status;
//! # assert!(status.success());
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** nothing here opens an event, and nothing here writes anywhere but into a cache that it was given. Files and
//! processes may be hostile: what they say is checked, bounded, and shown without control characters.

mod debug;
mod debuginfod;
mod elf;
mod find;
mod follow;
mod frame_pointers;
mod image;
mod in_file;
mod jit;
mod kept;
mod kernel;
mod kernel_answers;
mod module;
mod names;
mod offline;
mod place;
mod recorded_kernel;
mod sources;
mod symbolizer;
mod unwind;
mod wanted;

pub use crate::text::TextError;
pub use find::{Candidate, FindError, Finding, FoundAddress, FoundKind, Others, SearchScope, Stripped};
pub use follow::Followed;
pub use frame_pointers::{CodeOf, FramePointers};
pub use image::{ProcessImage, mapping_of};
pub(crate) use in_file::code_in_file;
pub(crate) use jit::JitCode;
pub(crate) use kept::NamedFunction;
pub(crate) use kernel_answers::KernelAnswers;
pub use offline::CodeRange;
pub(crate) use offline::{FileCode, VdsoCode};
pub use place::{ResolvedAddress, ResolvedFrame};
pub use pmux_linux::procfs::Mapping;
pub(crate) use recorded_kernel::{KernelCode, KernelId};
pub use sources::Sources;
pub(crate) use sources::{Missing, Recorded};
pub use symbolizer::Symbolizer;
pub(crate) use unwind::CallFrames;
pub use wanted::{AddressForm, AddressSpec, KERNEL};
