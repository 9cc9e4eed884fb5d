//! Where time went: functions by what they cost themselves, and with all that they called.
//!
//! What it is: [`Hot`] makes rows of a [`Tally`], as `perf report` does. Stacks of addresses become stacks of what rows are made of
//! (functions, programs, or nothing but the command), of which there are far fewer; everything else is sums over that tree. Read first:
//! [`Hot::new`], [`Row`].
//!
//! **Invariant:** a sample counts once for each row that is in its stack, however often, and once for the row that it was met in.

use super::hot_sums::{Adder, Loads};
use super::hot_tree::{Order, Tree, TreeSide, Trees};
use super::tally::{Apart, Key, Tally, Weight};
use super::{FunctionId, ModuleId, ModuleKind, Name, Profile, Symbols, ThreadId};
use hashbrown::HashMap;

/// What rows are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SortKey {
    /// The name of the thread.
    Comm,
    /// The program or library.
    Dso,
    /// The function.
    Symbol,
    /// The CPU.
    Cpu,
    /// The thread.
    Thread,
    /// The cgroup.
    Cgroup,
    /// How many threads ran.
    Parallelism,
}

impl SortKey {
    /// All of them, with the names that `--sort` takes; the first is the usual one.
    pub const ALL: [(Self, &'static [&'static str]); 7] = [
        (Self::Comm, &["comm"]),
        (Self::Dso, &["dso"]),
        (Self::Symbol, &["symbol", "sym"]),
        (Self::Cpu, &["cpu"]),
        (Self::Thread, &["thread", "pid", "tid"]),
        (Self::Cgroup, &["cgroup"]),
        (Self::Parallelism, &["parallelism"]),
    ];

    /// The one with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, names)| names.contains(&name)).map(|(key, _)| *key)
    }
}

/// What a tally has to tell apart for these rows.
#[must_use]
pub fn apart(keys: &[SortKey]) -> Apart {
    Apart {
        threads: keys.contains(&SortKey::Thread),
        cpus: keys.contains(&SortKey::Cpu),
        cgroups: keys.contains(&SortKey::Cgroup),
        parallelism: keys.contains(&SortKey::Parallelism),
    }
}

/// What the rows of one group have in common, as far as rows are told apart by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RowGroup {
    /// The name of the thread.
    pub comm: Option<Name>,
    /// The thread.
    pub thread: Option<ThreadId>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The cgroup.
    pub cgroup: Option<u64>,
    /// How many threads ran.
    pub parallelism: Option<u32>,
}

/// What a place in a stack counts for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spot {
    /// A function.
    Function(FunctionId),
    /// A program or library, by what it is called in a table.
    Program(Name),
    /// Rows are not told apart by where it was.
    Any,
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it shares with others.
    pub group: usize,
    /// Where it was.
    pub spot: Spot,
    /// What was met in it.
    pub own: Weight,
    /// What was met in it, or in what it had called.
    pub total: Weight,
    /// The number of its spot.
    pub(super) at: u32,
}

/// A node of the tree of stacks, in what rows are made of.
#[derive(Clone, Copy)]
pub(super) struct HotNode {
    pub(super) parent: u32,
    pub(super) spot: u32,
    /// The spot for which it counts what was met in it: of what was inlined the function that has the frame, as in `perf`.
    pub(super) owner: u32,
    /// Whether no node above has the same spot.
    pub(super) is_topmost: bool,
}

/// It is worth a thread to add up so much.
const MUCH: usize = 1 << 13;

/// Rows, and the trees behind them.
pub struct Hot {
    pub(super) nodes: Vec<HotNode>,
    pub(super) spots: Vec<Spot>,
    groups: Vec<RowGroup>,
    /// For each event, for each group that it has.
    loads: Vec<HashMap<usize, Loads>>,
    events: Vec<Vec<Row>>,
}

impl Hot {
    /// Makes the rows. `keys` say what they are told apart by; the tally must have been made with [`apart`] of the same.
    /// Every frame must have been looked up: [`Symbols::resolve_all`].
    #[must_use]
    pub fn new(profile: &Profile, symbols: &Symbols, tally: &Tally, keys: &[SortKey]) -> Self {
        let mut hot = Self {
            nodes: vec![HotNode { parent: 0, spot: u32::MAX, owner: u32::MAX, is_topmost: false }],
            spots: Vec::new(),
            groups: Vec::new(),
            loads: Vec::new(),
            events: Vec::new(),
        };
        let node_of = hot.fold(profile, symbols, keys);
        let has = |key| keys.contains(&key);
        let mut group_ids: HashMap<RowGroup, usize> = HashMap::new();
        // The place of what is in one group of an event, and of the node, as one number.
        let mut met: Vec<(u64, Weight)> = Vec::with_capacity(tally.rows().len());
        let mut places: HashMap<(u32, usize), u32> = HashMap::new();
        for (key, weight) in tally.rows() {
            let Key { event, comm, stack, thread, cpu, cgroup, parallelism } = *key;
            let group = RowGroup { comm: has(SortKey::Comm).then_some(comm), thread, cpu, cgroup, parallelism };
            let groups = &mut hot.groups;
            let group = *group_ids.entry(group).or_insert_with(|| {
                groups.push(group);
                groups.len() - 1
            });
            let count = places.len() as u32;
            let place = *places.entry((event, group)).or_insert(count);
            met.push((u64::from(place) << 32 | u64::from(node_of[stack.index()]), *weight));
        }
        drop(node_of);
        met.sort_unstable_by_key(|&(place, _)| place);
        let mut names = vec![(0, 0); places.len()];
        places.into_iter().for_each(|(name, place)| names[place as usize] = name);
        let groups: Vec<_> = met.chunk_by(|a, b| a.0 >> 32 == b.0 >> 32).collect();
        // Each half of what was met on a CPU of its own, where it is much.
        let (mut half, mut count) = (0, 0);
        while half < groups.len() && (count < met.len() / 2 || met.len() < MUCH) {
            count += groups[half].len();
            half += 1;
        }
        let nodes = &hot.nodes;
        let add = |groups: &[&[(u64, Weight)]]| -> Vec<(usize, usize, Loads)> {
            let mut adder = Adder::new(nodes);
            let one = |same: &&[(u64, Weight)]| {
                let loads = adder.loads(same.iter().map(|&(place, weight)| (place as u32, weight)));
                let (event, group) = names[(same[0].0 >> 32) as usize];
                (event as usize, group, loads)
            };
            groups.iter().map(one).collect()
        };
        let (first, second) = groups.split_at(half);
        let found = std::thread::scope(|scope| {
            let beside = (!second.is_empty()).then(|| scope.spawn(|| add(second)));
            let mut found = add(first);
            found.extend(beside.into_iter().flat_map(|beside| beside.join().unwrap_or_default()));
            found
        });
        hot.loads = profile.events.iter().map(|_| HashMap::new()).collect();
        for (event, group, loads) in found {
            if let Some(of_event) = hot.loads.get_mut(event) {
                of_event.insert(group, loads);
            }
        }
        hot.events = (0..hot.loads.len()).map(|event| hot.rows_of(event)).collect();
        hot
    }

    /// Folds stacks of addresses into stacks of spots. Returns the node of each stack.
    fn fold(&mut self, profile: &Profile, symbols: &Symbols, keys: &[SortKey]) -> Vec<u32> {
        let by_symbol = keys.contains(&SortKey::Symbol);
        let by_program = keys.contains(&SortKey::Dso);
        let mut spot_ids: HashMap<Spot, u32> = HashMap::new();
        let mut spot_id = |spots: &mut Vec<Spot>, spot: Spot| {
            *spot_ids.entry(spot).or_insert_with(|| {
                spots.push(spot);
                spots.len() as u32 - 1
            })
        };
        let stacks = &profile.stacks;
        let mut spot_of = vec![0_u32; stacks.frames().len()];
        for (index, frame) in stacks.frames().iter().enumerate() {
            let spot = match symbols.known_id_at(index) {
                Some(function) if by_symbol => Spot::Function(function),
                _ if by_program => Spot::Program(profile.modules.get(frame.module).short),
                _ => Spot::Any,
            };
            spot_of[index] = spot_id(&mut self.spots, spot);
        }
        let mut folder = Folder { first_called: vec![0], others: HashMap::new(), above: vec![0] };
        let mut node_of = vec![0_u32; stacks.len()];
        // Parents come first.
        for (stack, frame, caller) in stacks.nodes() {
            let (parent, spot) = (node_of[caller.index()], spot_of[frame.index()]);
            // Without a spot all of a stack is one.
            if self.spots[spot as usize] == Spot::Any && parent != 0 {
                node_of[stack.index()] = parent;
                continue;
            }
            let mut node = folder.call(&mut self.nodes, parent, (spot, spot));
            if by_symbol {
                for &inlined in symbols.inlined_in(frame).iter().rev() {
                    let inlined = spot_id(&mut self.spots, Spot::Function(inlined));
                    node = folder.call(&mut self.nodes, node, (inlined, spot));
                }
            }
            node_of[stack.index()] = node;
        }
        node_of
    }

    fn rows_of(&self, event: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (&group, loads) in &self.loads[event] {
            rows.extend(loads.sums().map(|(at, own, total)| {
                let spot = self.spots.get(at as usize).copied().unwrap_or(Spot::Any);
                // What has no stack at all has nothing above it.
                let total = if total.samples == 0 { own } else { total };
                Row { group, spot, own, total, at }
            }));
        }
        rows
    }

    /// The rows of an event, in no order.
    #[must_use]
    pub fn rows(&self, event: usize) -> &[Row] {
        self.events.get(event).map_or(&[], |rows| rows)
    }

    /// What the rows of a group have in common.
    ///
    /// # Panics
    /// If the number is another table's.
    #[must_use]
    pub fn group(&self, group: usize) -> RowGroup {
        self.groups[group]
    }

    /// Makes the calls behind rows, one row after the other.
    #[must_use]
    pub fn trees(&self) -> Trees<'_> {
        Trees::new(self)
    }

    /// As [`Trees::tree`], for one row.
    #[must_use]
    pub fn tree(&self, event: usize, row: &Row, order: Order, least_period: u64) -> Tree {
        self.trees().tree(event, row, order, least_period)
    }

    /// As [`Trees::beside`], for one row.
    #[must_use]
    pub fn calls(&self, event: usize, row: &Row, side: TreeSide, least_period: u64) -> Tree {
        self.trees().beside(event, row, side, least_period)
    }

    pub(super) fn loads_of(&self, event: usize, group: usize) -> Option<&Loads> {
        self.loads.get(event)?.get(&group)
    }
}

/// Finds the nodes of the tree of stacks.
struct Folder {
    /// By node: what it called first, or 0. Most have called nothing else, so these are found without a look-up.
    first_called: Vec<u32>,
    /// The other ones, by what has called and what was called.
    others: HashMap<u64, u32>,
    /// By node: which spots are above it and in it, a bit for each 64th one; mostly that is enough to know that one is not.
    above: Vec<u64>,
}

impl Folder {
    /// The node of what a node has called: its spot and its owner.
    fn call(&mut self, nodes: &mut Vec<HotNode>, parent: u32, (spot, owner): (u32, u32)) -> u32 {
        let next = nodes.len() as u32;
        let first = &mut self.first_called[parent as usize];
        let node = if *first == 0 {
            *first = next;
            next
        } else if nodes[*first as usize].spot == spot {
            *first
        } else {
            *self.others.entry(u64::from(parent) << 32 | u64::from(spot)).or_insert(next)
        };
        if node == next {
            let (bits, bit) = (self.above[parent as usize], 1 << (spot % 64));
            let is_below = bits & bit != 0 && above(nodes, parent).any(|node| nodes[node as usize].spot == spot);
            nodes.push(HotNode { parent, spot, owner, is_topmost: !is_below });
            self.above.push(bits | bit);
            self.first_called.push(0);
        }
        node
    }
}

/// A node and those above it, but for the first one of all.
pub(super) fn above(nodes: &[HotNode], node: u32) -> impl Iterator<Item = u32> + '_ {
    let up = move |&node: &u32| Some(nodes[node as usize].parent);
    std::iter::successors(Some(node), up).take_while(|&node| node != 0)
}

/// The letter that says where a function runs: `k` in the kernel, `.` in user mode, `g` in a guest.
#[must_use]
pub fn level(profile: &Profile, module: ModuleId) -> char {
    match profile.modules.get(module).kind {
        _ if module == ModuleId::GUEST => 'g',
        _ if module == ModuleId::UNKNOWN_KERNEL => 'k',
        ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::KernelSymbol => 'k',
        _ => '.',
    }
}
