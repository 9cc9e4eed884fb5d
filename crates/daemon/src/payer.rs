//! Which user pays for a client.
//!
//! What it is: [`Payers`]. Budgets are of users, and some are exempt from them: what makes a client one of these, or another user's,
//! is decided here, once for each connection.
//!
//! A user that is root in a container has the number 0 and none of root's rights; such clients pay together. A user who may take
//! subordinate numbers (`/etc/subuid`), in a user namespace or by a set-user-id program that was made in one, pays for all of them; for
//! those that root gives its containers, the first of them does. Numbers that come from elsewhere (`subid` in nsswitch.conf) are not known.
//!
//! **Invariant:** no number makes a client exempt, but its rights.
//!
//! Source: `subuid(5)`, `passwd(5)`.

use pmux::server_api::{Credentials, Proc};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;

/// Pays for those that have root's or the service's number without their rights: no user has it (it is `(uid_t)-1`).
pub const WITHOUT_RIGHTS: u32 = u32::MAX;
/// Source: `capabilities(7)`.
const SYS_ADMIN: u64 = 1 << 21;

/// Which user pays for a client.
pub struct Payers {
    own_user: u32,
    own: Option<Credentials>,
    /// Numbers that a user may take beside its own.
    subordinate: Vec<(Range<u32>, u32)>,
    /// Of which state of [`SUBUID`] that is.
    read_at: FileState,
}

const SUBUID: &str = "/etc/subuid";

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileState {
    NotRead,
    Missing,
    /// What changes when it is written or replaced: its inode, its time of change, its size.
    Is(u64, (i64, i64), u64),
}

impl FileState {
    fn of(path: &str) -> Self {
        match std::fs::metadata(path) {
            Ok(found) => Self::Is(found.ino(), (found.ctime(), found.ctime_nsec()), found.size()),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Missing,
            Err(_) => Self::NotRead,
        }
    }
}

impl Payers {
    /// As this machine is configured now.
    #[must_use]
    pub fn look_up() -> Self {
        let (own_user, own) = (own_user(), Credentials::own());
        let mut payers = Self { own_user, own, subordinate: Vec::new(), read_at: FileState::NotRead };
        payers.refresh();
        payers
    }

    /// Looks again where users may have got other numbers since: adding a user gives it some. What can't be read now is as it was, and is
    /// tried again.
    pub fn refresh(&mut self) {
        let read = |path: &str| match std::fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            read => read,
        };
        // Its state first: what is written meanwhile is read again.
        let state = FileState::of(SUBUID);
        if self.read_at == state || state == FileState::NotRead {
            return;
        }
        if let (Ok(subuid), Ok(passwd)) = (read(SUBUID), read("/etc/passwd")) {
            (self.subordinate, self.read_at) = (subordinate(&subuid, &passwd), state);
        }
    }

    /// Who pays for a client with this user. Its credentials are asked for only where its number could make it exempt.
    pub fn payer(&self, user: u32, credentials: impl FnOnce() -> Option<Credentials>) -> u32 {
        if user == 0 || user == self.own_user {
            let has_rights = credentials().is_some_and(|credentials| self.has_rights(&credentials));
            return if has_rights { user } else { WITHOUT_RIGHTS };
        }
        self.subordinate.iter().find(|(numbers, _)| numbers.contains(&user)).map_or(user, |&(_, owner)| owner)
    }

    /// Whether a client with one of these numbers has the rights that go with it: root no fewer than the service. The user of a service
    /// that is not root's may end it anyway.
    fn has_rights(&self, client: &Credentials) -> bool {
        let no_less = || self.own.is_some_and(|own| client.has_capabilities_of(&own));
        let is_root = || client.effective & SYS_ADMIN != 0 && no_less();
        client.user_namespace.is_none() && (client.user != 0 || is_root())
    }

    /// Whether a process is root's or the service's user's, with the rights that go with it.
    pub fn is_trusted(&self, user: u32, credentials: impl FnOnce() -> Option<Credentials>) -> bool {
        (user == 0 || user == self.own_user) && self.payer(user, credentials) == user
    }
}

/// The user of this process, effective.
pub(crate) fn own_user() -> u32 {
    Proc::system().own_status().map_or(0, |status| status.users.effective)
}

/// The lines of `/etc/subuid`: a user's name or number, the first number, and how many.
fn subordinate(subuid: &str, passwd: &str) -> Vec<(Range<u32>, u32)> {
    let number_of = |user: &str| {
        let named = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = named.filter(|fields| fields.first() == Some(&user)).find_map(|fields| fields.get(2)?.parse().ok());
        found.or_else(|| user.parse().ok())
    };
    let range = |line: &str| {
        let mut fields = line.split(':');
        let owner: u32 = number_of(fields.next()?)?;
        let first: u32 = fields.next()?.trim().parse().ok()?;
        let count: u32 = fields.next()?.trim().parse().ok()?;
        // What root gives its containers is no other user's, and not exempt.
        Some((first..first.saturating_add(count), if owner == 0 { first } else { owner }))
    };
    subuid.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = (1 << 41) - 1;

    fn root() -> Credentials {
        Credentials { permitted: ALL, effective: ALL, ..Credentials::default() }
    }

    #[test]
    fn rights_and_not_numbers_make_exempt() {
        let payers = Payers { own_user: 0, own: Some(root()), subordinate: Vec::new(), read_at: FileState::NotRead };
        assert_eq!(payers.payer(0, || Some(root())), 0);
        let without = [
            None,
            Some(Credentials::default()),
            Some(Credentials { effective: ALL & !(1 << 38), ..root() }),
            Some(Credentials { user_namespace: Some(7), ..root() }),
        ];
        for credentials in without {
            assert_eq!(payers.payer(0, || credentials), WITHOUT_RIGHTS, "{credentials:?}");
        }
        assert_eq!(payers.payer(1000, || panic!("an ordinary user is not looked at")), 1000);
        // A service of an ordinary user: its own clients and root.
        let own =
            Credentials { user: 1000, group: 1000, permitted: 1 << 38, effective: 1 << 38, ..Credentials::default() };
        let payers = Payers { own_user: 1000, own: Some(own), subordinate: Vec::new(), read_at: FileState::NotRead };
        assert_eq!(payers.payer(1000, || Some(own)), 1000);
        // Of a program that was given capabilities nothing more can be known.
        assert_eq!(payers.payer(1000, || Some(Credentials { permitted: 0, effective: 0, ..own })), 1000);
        assert!(payers.is_trusted(1000, || Some(own)) && !payers.is_trusted(1001, || Some(own)));
        assert_eq!(payers.payer(1000, || Some(Credentials { user_namespace: Some(7), ..own })), WITHOUT_RIGHTS);
        assert_eq!(payers.payer(0, || Some(root())), 0);
        assert_eq!(payers.payer(0, || Some(Credentials::default())), WITHOUT_RIGHTS);
        // Whose rights differ from each other: nothing is known to cover them.
        let payers = Payers { own_user: 0, own: None, subordinate: Vec::new(), read_at: FileState::NotRead };
        assert_eq!(payers.payer(0, || Some(root())), WITHOUT_RIGHTS);
    }

    #[test]
    fn subordinate_numbers_are_paid_for_by_their_user() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n1001:x:7:7:::\n";
        let subuid =
            "ann:100000:65536\n1002:165536:65536\nroot:1000000:65536\nnobody's:5:5\nann:x:y\n\n1001:300000:2\n";
        let payers =
            Payers { own_user: 0, own: None, subordinate: subordinate(subuid, passwd), read_at: FileState::NotRead };
        let payer = |user| payers.payer(user, || None);
        assert_eq!([100_000, 165_535].map(payer), [1000; 2]);
        assert_eq!([165_536, 231_071].map(payer), [1002; 2]);
        assert_eq!([99_999, 231_072, 1_000_000, 1_000_001].map(payer), [99_999, 231_072, 1_000_000, 1_000_000]);
        assert_eq!([300_001, 5].map(payer), [7, 5]);
        // They pay with their user's account, and are not their user.
        let payers =
            Payers { own_user: 1000, own: None, subordinate: subordinate(subuid, passwd), read_at: FileState::NotRead };
        assert!(!payers.is_trusted(100_000, || None));
    }
}
