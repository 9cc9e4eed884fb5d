//! Call chains that break off, which frame pointers do not find where programs are built without them.
//!
//! What it is: [`BrokenChains::of`] looks at the stacks of samples. Read first: [`BrokenChains`].
//!
//! **Invariant:** what may be right is not called broken.

use super::{FrameId, ModuleId, ModuleKind, Profile, StackId, Symbols, level};
use pmux_abi::attr::SampleFormat;
use std::collections::HashMap;

/// What begins a thread or a program, so that nothing has called it.
const BEGINNINGS: [&str; 9] =
    ["_start", "_dl_start", "_dl_start_user", "clone", "clone3", "__clone", "__clone3", "start_thread", "thread_start"];

/// How many call chains break off in user mode, and where.
///
/// A chain is broken where a return address lies in no program, library or code that a process has made: without frame pointers,
/// anything may stand where they would. So is one of a single function that begins neither a thread nor a program. Others may end too
/// early without being seen to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokenChains {
    /// Samples with a broken chain.
    pub broken: u64,
    /// Samples with a chain in user mode, found by frame pointers.
    pub chains: u64,
    /// The programs and libraries whose functions have no caller then, with their samples, most first.
    pub modules: Vec<(ModuleId, u64)>,
}

impl BrokenChains {
    /// Of samples, each with its event, its stack, and how many they are ([`Tally::chains`](super::Tally::chains)). Names of functions are
    /// those that were looked up before.
    #[must_use]
    pub fn of(profile: &Profile, symbols: &Symbols, samples: &mut dyn Iterator<Item = (usize, StackId, u64)>) -> Self {
        let mut found = Self::default();
        let by_frame_pointers: Vec<bool> = profile
            .events
            .iter()
            .map(|event| event.has_call_chains() && !event.attr.sample.contains(SampleFormat::STACK_USER))
            .collect();
        let mut modules: HashMap<ModuleId, u64> = HashMap::new();
        // By stack: whether it has a part in user mode, and where that breaks off. Samples may come one by one.
        let mut known: Vec<Option<(bool, Option<ModuleId>)>> = vec![None; profile.stacks.nodes().count() + 1];
        for (event, stack, samples) in samples {
            if !by_frame_pointers.get(event).is_some_and(|is| *is) {
                continue;
            }
            let of_stack = || broken_at(profile, symbols, stack);
            let (has_user, broken_at) = *known[stack.index()].get_or_insert_with(of_stack);
            found.chains += if has_user { samples } else { 0 };
            if let Some(module) = broken_at {
                found.broken += samples;
                *modules.entry(module).or_default() += samples;
            }
        }
        found.modules = modules.into_iter().collect();
        crate::order::sort_by(&mut found.modules, |a, b| b.1.cmp(&a.1).then(a.0.index().cmp(&b.0.index())));
        found
    }
}

/// Whether a stack has a part in user mode, and in which program that breaks off, if it does.
fn broken_at(profile: &Profile, symbols: &Symbols, stack: StackId) -> (bool, Option<ModuleId>) {
    let module_of = |frame: FrameId| profile.stacks.frame(frame).module;
    let is_user = |frame: &FrameId| {
        let module = module_of(*frame);
        level(profile, module) == '.' && profile.modules.get(module).kind != ModuleKind::Wait
    };
    let mut frames = profile.stacks.walk(stack).filter(is_user).peekable();
    let Some(innermost) = frames.next() else { return (false, None) };
    let begins = |id| BEGINNINGS.contains(&&*symbols.function(id).name);
    let mut callee = innermost;
    let broken_at = if frames.peek().is_none() {
        (!symbols.known_id_of(innermost).is_some_and(begins)).then_some(innermost)
    } else {
        frames.find_map(|frame| {
            let callee = std::mem::replace(&mut callee, frame);
            (module_of(frame) == ModuleId::UNKNOWN).then_some(callee)
        })
    };
    // Code of which nothing is known says nothing of its callers either.
    (true, broken_at.map(module_of).filter(|&module| module != ModuleId::UNKNOWN))
}
