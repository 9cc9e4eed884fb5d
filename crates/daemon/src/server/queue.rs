//! Whose turn it is.
//!
//! What it is: [`RunQueue`], the clients that can go on: round robin over users, and over each user's clients.
//!
//! **Invariant:** between two turns of one user, every other user that waits has one, however many connections each of them has.

use crate::service::ClientId;
use std::collections::{HashMap, VecDeque};

/// Clients that can go on.
#[derive(Debug, Default)]
pub(super) struct RunQueue {
    users: VecDeque<u32>,
    clients: HashMap<u32, VecDeque<ClientId>>,
}

impl RunQueue {
    /// Puts a client behind the others of its user. It must not be in it already.
    pub(super) fn push(&mut self, user: u32, id: ClientId) {
        let of_user = self.clients.entry(user).or_default();
        if of_user.is_empty() {
            self.users.push_back(user);
        }
        of_user.push_back(id);
    }

    /// The next client; its user comes behind the others.
    pub(super) fn pop(&mut self) -> Option<ClientId> {
        let user = self.users.pop_front()?;
        let of_user = self.clients.get_mut(&user)?;
        let id = of_user.pop_front();
        if of_user.is_empty() {
            self.clients.remove(&user);
        } else {
            self.users.push_back(user);
        }
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns_and_not_connections() {
        let mut queue = RunQueue::default();
        (0..300).for_each(|id| queue.push(1, ClientId(id)));
        queue.push(2, ClientId(1000));
        queue.push(2, ClientId(1001));
        queue.push(3, ClientId(2000));
        let first: Vec<_> = (0..7).filter_map(|_| queue.pop()).map(|id| id.0).collect();
        assert_eq!(first, [0, 1000, 2000, 1, 1001, 2, 3]);
        // One that comes again stands behind those of its user that were there before, and not behind all.
        queue.push(1, ClientId(0));
        queue.push(2, ClientId(1000));
        assert_eq!([queue.pop(), queue.pop()], [Some(ClientId(4)), Some(ClientId(1000))]);
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|id| id.0).collect();
        assert_eq!((rest.len(), rest.last()), (296, Some(&0)));
        assert!(queue.is_empty() && queue.clients.is_empty());
    }
}
