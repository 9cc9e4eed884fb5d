//! Call chains, as stacks.
//!
//! What it is: an address becomes a frame by what is mapped there at that time, a chain becomes a stack. Most chains were met before,
//! but for where they end: so what has called is looked up as a whole. Read first: [`Converter::stack`].
//!
//! **Invariant:** what is looked up as a whole gives what a walk over it would give; a change of mappings changes the key.

use super::Converter;
use crate::profile::modules::ModuleId;
use crate::profile::stacks::{Frame, FrameId, Site, StackId};
use crate::profile::tasks::ThreadId;
use crate::profile::{Detail, Profile};
use pmux_abi::attr::AttrFlags;
use pmux_abi::record::{self, CpuMode, callchain};
use std::hash::BuildHasher;

/// So many chains are remembered; then from the beginning.
const MOST_CHAINS: usize = 1 << 18;
/// Kernels are above this address, on all 64-bit machines.
const KERNEL_FROM: u64 = 1 << 63;

/// The mark of a part that was found out here: user mode, and each address is that of an instruction, also of those that have called.
/// The kernel's marks have other numbers.
const UNWOUND: u64 = callchain::MAX;

/// A chain: the mappings that it was met with, and two hashes of its addresses with secret seeds.
pub(super) type Key = (u32, u32, [u64; 2]);

/// The mode that a mark in a chain begins; `None` for other marks.
fn mode_of(mark: u64) -> Option<CpuMode> {
    Some(match mark {
        callchain::KERNEL => CpuMode::Kernel,
        callchain::USER | UNWOUND => CpuMode::User,
        callchain::HV => CpuMode::Hypervisor,
        callchain::GUEST | callchain::GUEST_KERNEL => CpuMode::GuestKernel,
        callchain::GUEST_USER => CpuMode::GuestUser,
        _ => return None,
    })
}

impl Converter {
    /// The stack of a sample; leaves its addresses where they are wanted.
    pub(super) fn stack(
        &mut self,
        thread: ThreadId,
        mode: CpuMode,
        fields: &record::Sample<'_>,
        event: usize,
    ) -> StackId {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words.extend(fields.callchain.iter().flat_map(|chain| chain.iter()));
        self.unwind(thread, mode, fields, event, &mut words);
        let length = words.len();
        // Where it was met is the first address of its chain, mostly.
        let first = words.iter().position(|&word| !callchain::is_mark(word));
        let met = match (fields.ip, first.and_then(|at| words.get(at).copied())) {
            (Some(ip), Some(other)) if ip == other => {
                words.remove(first.unwrap_or(0));
                Some(ip)
            }
            (ip, _) => ip,
        };
        let met_mode = match mode {
            CpuMode::Unknown => first.and_then(|at| mode_of(*words.get(at.checked_sub(1)?)?)).unwrap_or(mode),
            mode => mode,
        };
        let met_in_chain = words.len() < length;
        self.addresses.clear();
        let mut stack = match self.detail {
            Detail::Stacks if words.is_empty() => StackId::EMPTY,
            Detail::Stacks => {
                let process = self.profile.tasks.process_of(thread).stamp;
                let hashes = [&self.hashers[0], &self.hashers[1]].map(|hasher| hasher.hash_one(&words[..]));
                let key = (process, self.kernel_stamp, [hashes[0], hashes[1] ^ u64::from(met_in_chain)]);
                match self.chains.get(&key) {
                    Some(&stack) => stack,
                    None => {
                        let stack = self.walk(thread, met_mode, met_in_chain, &words);
                        if self.chains.len() >= MOST_CHAINS {
                            self.chains.clear();
                        }
                        self.chains.insert(key, stack);
                        stack
                    }
                }
            }
            Detail::Addresses => self.walk(thread, met_mode, met_in_chain, &words),
        };
        if let Some(ip) = met {
            let frame = self.frame(thread, met_mode, ip, Site::Exact);
            stack = self.profile.stacks.call(stack, frame);
            if self.detail == Detail::Addresses && met_in_chain {
                self.addresses.insert(0, (ip, frame));
            }
        }
        self.words = words;
        stack
    }

    /// Adds the part of a chain that is found out from registers and a piece of the stack, where that was recorded.
    fn unwind(
        &mut self,
        thread: ThreadId,
        mode: CpuMode,
        fields: &record::Sample<'_>,
        event: usize,
        words: &mut Vec<u64>,
    ) {
        if fields.stack_user.is_none() {
            return;
        }
        let Some(attr) = self.profile.events.get(event).map(|event| &event.attr) else { return };
        if !attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_USER) {
            return;
        }
        words.push(UNWOUND);
        let from = words.len();
        let maps = &self.profile.tasks.process_of(thread).maps;
        self.unwinding.chain(&self.profile, maps, fields, attr.sample_regs_user, words);
        // A precise event knows better where it was than the registers of a moment later.
        if let (CpuMode::User, Some(ip), Some(first)) = (mode, fields.ip, words.get_mut(from)) {
            *first = ip;
        }
        if words.len() == from {
            words.pop();
        }
    }

    /// The stack of those who have called. `met_in_chain` says whether the first address of the chain was taken out before.
    fn walk(&mut self, thread: ThreadId, mode: CpuMode, met_in_chain: bool, words: &[u64]) -> StackId {
        let (mut mode, mut site) = (mode, if met_in_chain { Site::Return } else { Site::Exact });
        let (mut is_first_part, mut below) = (true, Site::Return);
        let mut words = words.iter();
        self.addresses.clear();
        while let Some(&word) = words.next() {
            if word == callchain::USER_DEFERRED {
                // A number that belongs to another record.
                words.next();
                continue;
            }
            if callchain::is_mark(word) {
                below = if word == UNWOUND { Site::Exact } else { Site::Return };
                if let Some(begun) = mode_of(word) {
                    mode = begun;
                    // Where the part begins an instruction was interrupted, or has called the kernel.
                    if below == Site::Exact || !(is_first_part && met_in_chain && self.addresses.is_empty()) {
                        site = Site::Exact;
                    }
                    is_first_part = false;
                }
                continue;
            }
            let frame = self.frame(thread, mode, word, site);
            self.addresses.push((word, frame));
            site = below;
        }
        let stacks = &mut self.profile.stacks;
        self.addresses.iter().rev().fold(StackId::EMPTY, |caller, (_, frame)| stacks.call(caller, *frame))
    }

    fn frame(&mut self, thread: ThreadId, mode: CpuMode, address: u64, site: Site) -> FrameId {
        let Profile { tasks, stacks, .. } = &mut self.profile;
        let plain = |module| Frame { module, address, site };
        let in_kernel =
            matches!(mode, CpuMode::Kernel | CpuMode::Hypervisor) || mode == CpuMode::Unknown && address >= KERNEL_FROM;
        let frame = match mode {
            CpuMode::GuestKernel | CpuMode::GuestUser => plain(ModuleId::GUEST),
            _ if in_kernel => self.kernel.find(address, site).unwrap_or(plain(ModuleId::UNKNOWN_KERNEL)),
            _ => tasks.process_of(thread).maps.find(address, site).unwrap_or(plain(ModuleId::UNKNOWN)),
        };
        stacks.frame_id(frame)
    }
}
