//! Call chains, as stacks.
//!
//! What it is: an address becomes a frame by what is mapped there at that time, a chain becomes a stack. Most chains were met before,
//! but for where they end: so what has called is looked up as a whole. Read first: [`Converter::stack`].
//!
//! **Invariant:** what is looked up as a whole gives what a walk over it would give; a change of mappings changes the key.

use super::Converter;
use super::known::{ChainPlace, Mappings};
use crate::profile::modules::ModuleId;
use crate::profile::stacks::{Frame, FrameId, Site, StackId};
use crate::profile::tasks::ThreadId;
use crate::profile::{Detail, Profile};
use pmux_abi::attr::{AttrFlags, BranchSample};
use pmux_abi::record::{CpuMode, Sample, callchain};

/// Kernels are above this address, on all 64-bit machines.
const KERNEL_FROM: u64 = 1 << 63;

/// The mark of a part that was found out here: user mode, and each address is that of an instruction, also of those that have called.
/// The kernel's marks have other numbers.
const UNWOUND: u64 = callchain::MAX;

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

/// Leaves the innermost frames of a chain, so many. Returns whether there were more.
fn cut(words: &mut Vec<u64>, most: usize) -> bool {
    if words.len() <= most {
        return false;
    }
    let mut addresses = words.iter().enumerate().filter(|(_, word)| !callchain::is_mark(**word));
    let Some((end, _)) = addresses.nth(most) else { return false };
    words.truncate(end);
    true
}

impl Converter {
    /// The stack of a sample; leaves its addresses where they are wanted.
    pub(super) fn stack(&mut self, thread: ThreadId, mode: CpuMode, fields: &Sample<'_>, event: usize) -> StackId {
        if let (Detail::Innermost, Some(address), true) = (self.detail, fields.ip, mode != CpuMode::Unknown) {
            let mappings = (self.profile.tasks.process_of(thread).stamp, self.kernel_stamp);
            return self.met(thread, ChainPlace { callers: StackId::EMPTY, mappings, mode, address }).0;
        }
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words.extend(fields.callchain.iter().flat_map(|chain| chain.iter()));
        self.unwind(thread, mode, fields, event, &mut words);
        self.last_branches(mode, fields, event, &mut words);
        if cut(&mut words, self.max_stack) {
            self.profile.losses.cut_chains += 1;
        }
        let length = words.len();
        // Where it was met is the first address of its chain, mostly.
        let first = words.iter().position(|&word| !callchain::is_mark(word));
        if let Some(at) = first
            && fields.ip == words.get(at).copied()
        {
            words.remove(at);
        }
        let met_mode = match mode {
            CpuMode::Unknown => first.and_then(|at| mode_of(*words.get(at.checked_sub(1)?)?)).unwrap_or(mode),
            mode => mode,
        };
        let met_in_chain = words.len() < length;
        let mappings = (self.profile.tasks.process_of(thread).stamp, self.kernel_stamp);
        let mut stack = self.callers(thread, mappings, (met_in_chain, met_mode), &words);
        if let Some(address) = fields.ip {
            let (met_at, frame) = self.met(thread, ChainPlace { callers: stack, mappings, mode: met_mode, address });
            stack = met_at;
            if self.detail == Detail::Addresses && met_in_chain {
                self.addresses.insert(0, (address, frame));
            }
        }
        self.words = words;
        stack
    }

    /// The stack of where something was met, and its innermost frame.
    fn met(&mut self, thread: ThreadId, place: ChainPlace) -> (StackId, FrameId) {
        self.known.place(&place).unwrap_or_else(|| {
            let frame = self.frame(thread, place.mode, place.address, Site::Exact);
            let met_at = self.profile.stacks.call(place.callers, frame);
            self.known.add_place(place, met_at, frame);
            (met_at, frame)
        })
    }

    /// The stack of those who have called; leaves their addresses where they are wanted.
    fn callers(
        &mut self,
        thread: ThreadId,
        mappings: Mappings,
        (met_in_chain, mode): (bool, CpuMode),
        words: &[u64],
    ) -> StackId {
        self.addresses.clear();
        if words.is_empty() {
            return StackId::EMPTY;
        }
        let key = self.known.key(mappings, words, (met_in_chain, mode));
        if let Some(callers) = self.known.callers(&key) {
            if self.detail == Detail::Addresses {
                self.addresses.extend_from_slice(self.known.addresses(callers));
            }
            return callers.stack;
        }
        let stack = self.walk(thread, mode, met_in_chain, words);
        let addresses = if self.detail == Detail::Addresses { &self.addresses[..] } else { &[] };
        self.known.add_callers(key, stack, addresses);
        stack
    }

    /// Adds the part of a chain that is found out from registers and a piece of the stack, where that was recorded.
    fn unwind(&mut self, thread: ThreadId, mode: CpuMode, fields: &Sample<'_>, event: usize, words: &mut Vec<u64>) {
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

    /// Takes the calls that the hardware recorded (`--call-graph lbr`) for the user part of a chain.
    ///
    /// Linux: a branch of the call stack goes from the call to the function that was called, the innermost first.
    fn last_branches(&self, mode: CpuMode, fields: &Sample<'_>, event: usize, words: &mut Vec<u64>) {
        let Some(calls) = fields.branch_stack.as_ref().map(|stack| &stack.branches) else { return };
        let attr = self.profile.events.get(event).map(|event| &event.attr);
        let are_calls = attr.is_some_and(|attr| attr.branch_sample.contains(BranchSample::CALL_STACK));
        let Some(innermost) = calls.iter().next().filter(|_| are_calls) else { return };
        let user = words.iter().position(|&word| word == callchain::USER);
        words.truncate(user.unwrap_or(words.len()));
        words.push(UNWOUND);
        // In the kernel it is not known where in its function the user's code was.
        let ip = fields.ip.filter(|_| mode == CpuMode::User);
        words.push(ip.unwrap_or(innermost.to));
        words.extend(calls.iter().map(|call| call.from).take_while(|&from| from != 0));
    }

    /// The stack of a branch: where it went, called from where it was.
    pub(super) fn branch(&mut self, thread: ThreadId, from: u64, to: u64) -> StackId {
        // Which mode it was in only the address tells.
        let [from, to] = [from, to].map(|address| self.frame(thread, CpuMode::Unknown, address, Site::Exact));
        let stacks = &mut self.profile.stacks;
        let caller = stacks.call(StackId::EMPTY, from);
        stacks.call(caller, to)
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
        let (stacks, frames) = (&mut self.profile.stacks, self.addresses.iter().rev().map(|(_, frame)| *frame));
        self.known.stack(thread.index(), frames, |caller, frame| stacks.call(caller, frame))
    }

    fn frame(&mut self, thread: ThreadId, mode: CpuMode, address: u64, site: Site) -> FrameId {
        let Profile { tasks, stacks, .. } = &mut self.profile;
        let plain = |module| Frame { module, address, site };
        let in_kernel =
            matches!(mode, CpuMode::Kernel | CpuMode::Hypervisor) || mode == CpuMode::Unknown && address >= KERNEL_FROM;
        let process = tasks.process_of(thread);
        self.known.frame(((process.stamp, self.kernel_stamp), mode, address, site), || {
            stacks.frame_id(match mode {
                CpuMode::GuestKernel | CpuMode::GuestUser => plain(ModuleId::GUEST),
                _ if in_kernel => self.kernel.find(address, site).unwrap_or(plain(ModuleId::UNKNOWN_KERNEL)),
                _ => process.maps.find(address, site).unwrap_or(plain(ModuleId::UNKNOWN)),
            })
        })
    }
}
