//! Call stacks, each kept once: a tree whose nodes are calls.
//!
//! What it is: a [`Frame`] is a place in a program or in the kernel; a stack is a node of the tree that begins at the outermost
//! function. Stacks that begin alike share their nodes, so what is kept grows with how different stacks are, and not with how many
//! samples there are. Read first: [`Stacks::walk`].
//!
//! **Invariant:** a parent's number is lower than those of its children; nothing is ever removed.

use super::modules::ModuleId;
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::HashTable;
use std::hash::BuildHasher;

number! {
    /// A frame of [`Stacks`].
    FrameId, "Its place, for arrays beside [`Stacks`]."
}

number! {
    /// A stack of [`Stacks`].
    StackId, "Its place, for arrays beside [`Stacks`]; parents come first."
}

impl FrameId {
    pub(super) fn at(index: usize) -> Self {
        Self(index as u32)
    }
}

impl StackId {
    /// The stack without a frame.
    pub const EMPTY: Self = Self(0);
}

/// What an address in a call chain is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Site {
    /// The instruction that was met.
    Exact,
    /// Where a call returns to: the call itself stands before it.
    Return,
}

/// A place in a program or in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Which program.
    pub module: ModuleId,
    /// The address as the module counts: in a file the place in the file, in the kernel and where there is no file the address
    /// itself, in the kernel's own code in each process (vdso) from its start.
    pub address: u64,
    /// What stands there.
    pub site: Site,
}

impl Frame {
    /// The address whose function this is.
    #[must_use]
    pub fn lookup(&self) -> u64 {
        self.address.saturating_sub(u64::from(self.site == Site::Return))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct StackNode {
    parent: u32,
    frame: FrameId,
}

/// The stacks of a recording.
#[derive(Debug)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_ids: HashTable<u32>,
    nodes: Vec<StackNode>,
    /// By node: what it called first, or 0. Most have called nothing else, so these are found without a look-up.
    first_called: Vec<u32>,
    /// The other ones.
    node_ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Default for Stacks {
    fn default() -> Self {
        // The first node is the empty stack, which no look-up finds.
        let nodes = vec![StackNode { parent: 0, frame: FrameId(u32::MAX) }];
        let hasher = DefaultHashBuilder::default();
        let (frames, first_called) = (Vec::new(), vec![0]);
        Self { frames, frame_ids: HashTable::new(), nodes, first_called, node_ids: HashTable::new(), hasher }
    }
}

/// The number of an item in a list that keeps each once.
fn intern<T: Copy + Eq + std::hash::Hash>(
    list: &mut Vec<T>,
    known: &mut HashTable<u32>,
    hasher: &DefaultHashBuilder,
    item: T,
) -> u32 {
    let hash = hasher.hash_one(item);
    if let Some(&index) = known.find(hash, |&index| list.get(index as usize) == Some(&item)) {
        return index;
    }
    let index = list.len() as u32;
    list.push(item);
    known.insert_unique(hash, index, |&index| list.get(index as usize).map_or(0, |item| hasher.hash_one(item)));
    index
}

impl Stacks {
    /// The number of a frame.
    pub fn frame_id(&mut self, frame: Frame) -> FrameId {
        FrameId(intern(&mut self.frames, &mut self.frame_ids, &self.hasher, frame))
    }

    /// The stack in which `caller` has called a function.
    pub fn call(&mut self, caller: StackId, frame: FrameId) -> StackId {
        let node = StackNode { parent: caller.0, frame };
        let first = self.first_called[caller.index()];
        if first != 0 && self.nodes[first as usize] == node {
            return StackId(first);
        }
        let next = self.nodes.len() as u32;
        if first == 0 {
            self.first_called[caller.index()] = next;
            self.nodes.push(node);
        } else {
            let known = intern(&mut self.nodes, &mut self.node_ids, &self.hasher, node);
            if known != next {
                return StackId(known);
            }
        }
        self.first_called.push(0);
        StackId(next)
    }

    /// A frame by its number.
    ///
    /// # Panics
    /// If the number is another recording's.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames[id.index()]
    }

    /// All frames, by number.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// How many stacks there are, the empty one too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none but the empty one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The innermost frame of a stack; `None` of the empty one.
    #[must_use]
    pub fn innermost(&self, stack: StackId) -> Option<FrameId> {
        (stack != StackId::EMPTY).then(|| self.nodes[stack.index()].frame)
    }

    /// The stack of the caller.
    #[must_use]
    pub fn caller(&self, stack: StackId) -> StackId {
        StackId(self.nodes[stack.index()].parent)
    }

    /// Whether a stack stands for none, as that of a sum does: only address 0 is in it.
    #[must_use]
    pub fn is_nowhere(&self, stack: StackId) -> bool {
        let at_0 = |only| self.frame(only).address == 0;
        self.innermost(stack).is_some_and(at_0) && self.caller(stack) == StackId::EMPTY
    }

    /// All stacks but the empty one, each with its innermost frame and the stack of the caller, which comes before it.
    pub fn nodes(&self) -> impl Iterator<Item = (StackId, FrameId, StackId)> + '_ {
        let stacks = self.nodes.iter().enumerate().skip(1);
        stacks.map(|(index, node)| (StackId(index as u32), node.frame, StackId(node.parent)))
    }

    /// The frames of a stack, the innermost first.
    pub fn walk(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let callers = std::iter::successors(Some(stack), move |&at| Some(self.caller(at)));
        callers.map_while(move |at| self.innermost(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_share_what_they_begin_with() {
        let mut stacks = Stacks::default();
        let frame = |address| Frame { module: ModuleId::UNKNOWN, address, site: Site::Return };
        let ids: Vec<_> = (0..5).map(|address| stacks.frame_id(frame(address))).collect();
        let build = |stacks: &mut Stacks, path: &[usize]| {
            path.iter().fold(StackId::EMPTY, |stack, &at| stacks.call(stack, ids[at]))
        };
        let one = build(&mut stacks, &[0, 1, 2]);
        let other = build(&mut stacks, &[0, 1, 3, 2]);
        assert_eq!(stacks.len(), 1 + 3 + 2);
        assert_eq!(build(&mut stacks, &[0, 1, 2]), one);
        assert_eq!(stacks.walk(other).collect::<Vec<_>>(), [ids[2], ids[3], ids[1], ids[0]]);
        assert_eq!(stacks.innermost(StackId::EMPTY), None);
        assert_eq!(stacks.caller(StackId::EMPTY), StackId::EMPTY);
        assert_eq!(stacks.frame_id(frame(3)), ids[3]);
        assert_eq!(stacks.frame(ids[3]).lookup(), 2);
    }
}
