//! What a security module has to say.
//!
//! What it is: [`allowed_by`], the question that the kernel asks SELinux about an event, beside those of [`super::decide`].
//!
//! **Invariant:** as [`super`].

use super::Denied;
use pmux::abi::Attr;
use pmux::server_api::{PerfRights, TargetScope};

/// A security module, as far as one asker is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Module {
    /// There is none that has a say.
    None,
    /// It allows the client this.
    Allows(PerfRights),
    /// It is there, and doesn't tell.
    Silent,
}

/// Whether a security module lets an asker have an event.
///
/// # Errors
/// [`Denied::Module`] with the first permission that the asker lacks; [`Denied::ModuleUnknown`].
pub fn allowed_by(module: Module, attr: &Attr, target_scope: TargetScope) -> Result<(), Denied> {
    match module {
        Module::None => Ok(()),
        Module::Silent => Err(Denied::ModuleUnknown),
        Module::Allows(rights) => {
            rights.lack_for(attr, target_scope).map_or(Ok(()), |lacks| Err(Denied::Module(lacks)))
        }
    }
}
