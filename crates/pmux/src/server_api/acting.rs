//! With whose rights something is opened.
//!
//! **Invariant:** what is opened on behalf of a client is opened in a domain with its credentials, whenever the engine opens it.
//! Clients share within equal credentials only, so no client depends on a counter that another user can stop.

use super::group::{NO_FILES, ServeError};
use crate::session::Session;
use pmux_abi::attr::{Attr, AttrFlags, EventType, sw};
use pmux_engine::OpenError;
use pmux_engine::pmu::BankError;
use pmux_engine::share::SharingScope;
use pmux_linux::Errno;
use pmux_linux::credentials::{ActError, Credentials, EventTarget, OnBehalf, Openers};
use pmux_linux::diagnose::{Facts, TargetKind, UserNamespace};
use std::sync::Arc;

/// With whose rights something is opened: this process's own by default.
#[derive(Clone, Debug, Default)]
pub struct Acting(Option<(Credentials, Arc<OnBehalf>)>);

impl Acting {
    /// The domain with these rights that corresponds to one with the service's.
    pub(super) fn sharing_scope(&self, scope: SharingScope) -> SharingScope {
        self.0.as_ref().map_or(scope, |(_, on_behalf)| scope.with_cred(on_behalf.cred()))
    }

    /// Whether both act with the same rights.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.sharing_scope(SharingScope::default()) == other.sharing_scope(SharingScope::default())
    }

    /// Whether these are a client's rights, and not the service's own.
    #[must_use]
    pub const fn is_for_client(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the kernel would open an event with these rights now. With the service's own nothing is tried.
    ///
    /// # Errors
    /// [`ActError`].
    pub fn check(&self, attr: &Attr, target: EventTarget) -> Result<(), ActError> {
        let Some((_, on_behalf)) = &self.0 else { return Ok(()) };
        let attr = Attr { flags: attr.flags | AttrFlags::DISABLED, ..*attr };
        let mut bytes = [0; Attr::MAX_SIZE];
        let size = attr.encode(&mut bytes);
        on_behalf.check(bytes.get(..size).unwrap_or_default(), target)
    }

    /// As [`Acting::check`] for the event that needs nothing but the right to look at its target as this one does: it costs next to
    /// nothing, where a tracepoint takes the kernel tens of milliseconds to give up, and an event that counts nothing makes the kernel
    /// change code of its own on every CPU.
    ///
    /// # Errors
    /// As [`Acting::check`].
    pub fn check_target(&self, attr: &Attr, target: EventTarget) -> Result<(), ActError> {
        let sides = AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
        let (kind, flags) = (EventType::SOFTWARE, attr.flags & sides);
        self.check(&Attr { kind, config: sw::TASK_CLOCK, flags, ..Attr::default() }, target)
    }

    /// What is known of the client, for a refusal's reasons.
    pub(super) fn facts(&self, session: &Session) -> Option<Facts> {
        let (credentials, _) = self.0.as_ref()?;
        let namespace = match credentials.user_namespace {
            None => UserNamespace::Initial,
            Some(_) => UserNamespace::Nested,
        };
        let (effective_uid, capabilities) = (credentials.user, credentials.effective);
        let paranoid = Some(session.paranoid());
        Some(Facts { paranoid, effective_uid, capabilities, namespace, ..session.facts().clone() })
    }

    /// Why the engine could not open an event with these rights.
    pub(super) fn reason(&self, session: &Session, error: OpenError, attr: &Attr, target: TargetKind) -> String {
        let late = ActError::Late.errno().raw();
        match self.facts(session) {
            Some(_) if error.errno() == late => ActError::Late.to_string(),
            Some(facts) if matches!(error, OpenError::Bank { .. }) && error.errno() != Errno::EMFILE.raw() => {
                crate::refusal::of_kernel(error, attr, target, &facts).summary
            }
            _ => {
                let refusal = session.refusal(error, attr, target);
                // The client has files enough.
                if refusal.is_about_files() { NO_FILES.to_owned() } else { refusal.summary }
            }
        }
    }

    /// Why the kernel, or its opener, refused an event to the client.
    #[must_use]
    pub fn explain(&self, session: &Session, error: ActError, attr: &Attr, target: TargetKind) -> ServeError {
        let errno = error.errno().raw();
        let text = match (error, self.facts(session)) {
            (ActError::Refused(_), Some(facts)) => {
                let error = OpenError::Bank { index: 0, error: BankError::from_errno(errno) };
                crate::refusal::of_kernel(error, attr, target, &facts).summary
            }
            _ => error.to_string(),
        };
        ServeError { index: 0, errno, text }
    }
}

impl Session {
    /// Acts with the rights of a client, whose process is this one, as long as what comes back lives.
    #[must_use]
    pub fn act_for(&self, process: i32, credentials: Credentials) -> Acting {
        Acting(Some((credentials, self.engine().host().openers().on_behalf_of(process, credentials))))
    }

    /// Opens what openers had no answer for yet when a CPU came, for one user: when [`Openers::go_on`] tells [`super::Retry::OfUser`].
    pub fn retry_late(&self, user: u32) {
        let openers = self.openers();
        let engine = self.engine();
        openers.without_request(Some(user), || engine.retry_late(|cred| openers.payer_of(cred) == Some(user)));
    }

    /// The processes that open events with the rights of clients.
    #[must_use]
    pub fn openers(&self) -> &Openers {
        self.engine().host().openers()
    }
}
