//! A table whose indices carry generations.
//!
//! What it is: O(1) insert, look-up and removal; an id that was removed is refused for ever, also when its place has
//! been taken again.
//!
//! **Invariant:** no id is ever valid twice.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

/// A place in an [`Arena`], and which of its tenants is meant.
pub struct Id<Tag> {
    index: u32,
    generation: u32,
    tag: PhantomData<fn() -> Tag>,
}

impl<Tag> Id<Tag> {
    /// The place, for printing and for tables beside the arena.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Which tenant of the place.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    const fn key(self) -> (u32, u32) {
        (self.index, self.generation)
    }
}

impl<Tag> Clone for Id<Tag> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Tag> Copy for Id<Tag> {}
impl<Tag> PartialEq for Id<Tag> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<Tag> Eq for Id<Tag> {}
impl<Tag> PartialOrd for Id<Tag> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<Tag> Ord for Id<Tag> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}
impl<Tag> Hash for Id<Tag> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}
impl<Tag> fmt::Debug for Id<Tag> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}.{}", self.index, self.generation)
    }
}

struct ArenaSlot<T> {
    generation: u32,
    tenant: Option<T>,
}

/// A table of `T`, addressed by [`Id`].
pub struct Arena<T, Tag> {
    places: Vec<ArenaSlot<T>>,
    free: Vec<u32>,
    tenants: usize,
    tag: PhantomData<fn() -> Tag>,
}

impl<T, Tag> Default for Arena<T, Tag> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), tenants: 0, tag: PhantomData }
    }
}

impl<T, Tag> Arena<T, Tag> {
    /// Takes a place for `tenant`. O(1), but for growing.
    pub fn insert(&mut self, tenant: T) -> Id<Tag> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                if self.places.is_empty() {
                    // Thousands of contexts have one event each.
                    self.places.reserve_exact(1);
                }
                self.places.push(ArenaSlot { generation: 0, tenant: None });
                // Removal must never allocate: it happens when tasks exit.
                self.free.reserve(self.places.len() - self.free.len());
                u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let place = &mut self.places[index as usize];
        place.tenant = Some(tenant);
        self.tenants += 1;
        Id { index, generation: place.generation, tag: PhantomData }
    }

    fn place(&self, id: Id<Tag>) -> Option<&ArenaSlot<T>> {
        self.places.get(id.index()).filter(|place| place.generation == id.generation)
    }

    /// What `id` names, if it still does.
    #[must_use]
    pub fn get(&self, id: Id<Tag>) -> Option<&T> {
        self.place(id)?.tenant.as_ref()
    }

    /// What `id` names, if it still does.
    pub fn get_mut(&mut self, id: Id<Tag>) -> Option<&mut T> {
        self.places.get_mut(id.index()).filter(|place| place.generation == id.generation)?.tenant.as_mut()
    }

    /// Gives the place back. A place whose generations are used up is left empty for ever.
    pub fn remove(&mut self, id: Id<Tag>) -> Option<T> {
        let place = self.places.get_mut(id.index()).filter(|place| place.generation == id.generation)?;
        let tenant = place.tenant.take()?;
        self.tenants -= 1;
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(id.index);
        }
        Some(tenant)
    }

    /// All tenants, by place.
    pub fn iter(&self) -> impl Iterator<Item = (Id<Tag>, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let id = Id { index: index as u32, generation: place.generation, tag: PhantomData };
            place.tenant.as_ref().map(|tenant| (id, tenant))
        })
    }

    /// How many tenants there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.tenants
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Tag {}

    #[test]
    fn an_id_names_one_tenant_only() {
        let mut arena = Arena::<u8, Tag>::default();
        let first = arena.insert(1);
        assert_eq!(arena.remove(first), Some(1));
        let second = arena.insert(2);
        assert_eq!(first.index(), second.index());
        assert_eq!((arena.get(first), arena.get(second)), (None, Some(&2)));
        assert_eq!(arena.remove(first), None);
        assert_eq!(arena.len(), 1);
    }

    #[test]
    fn a_place_whose_generations_are_used_up_is_never_let_again() {
        let mut arena = Arena::<u8, Tag>::default();
        let first = arena.insert(1);
        arena.places[first.index()].generation = u32::MAX;
        let last = Id { generation: u32::MAX, ..first };
        assert_eq!(arena.remove(last), Some(1));
        assert_eq!((arena.len(), arena.is_empty()), (0, true), "an empty place is no tenant");
        assert_ne!(arena.insert(2).index(), last.index());
        assert_eq!((arena.get(last), arena.len()), (None, 1));
    }
}
