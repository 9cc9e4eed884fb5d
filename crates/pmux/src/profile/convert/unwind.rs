//! Call chains that were recorded as registers and a piece of the stack, and are found out by the reader.
//!
//! What it is: [`Unwinding`] walks from a sample's registers from caller to caller, with the tables that programs carry of how their
//! functions are left (`framehop` understands these); where there are none it goes by frame pointers. Each program is opened once, when
//! a chain first meets it, and has a range of made-up addresses that it keeps: so what was found out about an instruction is good for
//! all processes. Read first: [`Unwinding::chain`].
//!
//! **Invariant:** a chain holds only addresses that were mapped as code; where it could not be followed to its end is counted, and said.
//!
//! Source: registers as `asm/perf_regs.h` numbers them, signal frames as `asm/sigcontext.h` and `asm/ucontext.h` lay them out.

use crate::profile::Profile;
use crate::profile::maps::Maps;
use crate::profile::modules::{Module, ModuleId, ModuleKind};
use crate::profile::stacks::Site;
use crate::symbol::{CallFrames, Missing};
use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder};
use hashbrown::HashMap;
use pmux_abi::record::{Regs, RegsAbi, Sample};
use std::sync::Arc;

/// No chain is longer.
const MOST_FRAMES: usize = 1024;
/// All tables together take no more.
const MOST_TABLE_BYTES: u64 = 1 << 30;
/// Each program's range of made-up addresses.
const ROOM: u64 = 1 << 33;
/// An address where no program has its range.
const NOWHERE: u64 = 0x1000;
/// So many places are remembered of which it is known whether a signal handler returns there.
const MOST_PLACES: usize = 1 << 16;
/// An arm64 processor may sign return addresses above the bits of user mode.
const ARM_ADDRESS_BITS: u32 = 48;

type Tables = Arc<[u8]>;

enum Machine {
    X86(Box<(UnwinderX86_64<Tables>, CacheX86_64)>),
    Arm(Box<(UnwinderAarch64<Tables>, CacheAarch64)>),
}

enum Registers {
    X86(UnwindRegsX86_64),
    Arm(UnwindRegsAarch64),
}

enum ModuleTables {
    /// Its tables, and where its range begins.
    Placed { frames: CallFrames, base: u64, start: u64 },
    /// Why there are none, and how many chains went through it.
    Bare { why: Option<Missing>, chains: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// At the outermost function.
    Whole,
    /// Where the copied piece of the stack ends.
    CutOff,
    /// Somewhere else.
    Lost,
}

#[derive(Default)]
pub(super) struct Unwinding {
    /// `None` until it is asked for.
    machine: Option<Option<Machine>>,
    modules: HashMap<ModuleId, ModuleTables>,
    trampolines: HashMap<(ModuleId, u64), bool>,
    placed: u64,
    table_bytes: u64,
    chains: u64,
    cut_off: u64,
    lost: u64,
    narrow: u64,
    unknown_machine: u64,
}

struct Stack<'a> {
    start: u64,
    bytes: &'a [u8],
    /// Whether it was tried to read behind its end.
    is_passed: bool,
}

impl Stack<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.start)?;
        let found = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..at.checked_add(8)?));
        self.is_passed |= found.is_none();
        Some(u64::from_le_bytes(found?.try_into().ok()?))
    }
}

impl Unwinding {
    /// Adds the addresses of a chain, the innermost first: each is that of an instruction, also of those that have called.
    ///
    /// `mask` says which registers a sample has, `maps` what is mapped.
    pub(super) fn chain(&mut self, profile: &Profile, maps: &Maps, fields: &Sample<'_>, mask: u64, out: &mut Vec<u64>) {
        let (Some(regs), Some(piece)) = (fields.regs_user, fields.stack_user) else { return };
        match regs.abi {
            RegsAbi::BITS_64 => {}
            RegsAbi::BITS_32 => return self.narrow += 1,
            // A thread of the kernel, or one that ends.
            _ => return,
        }
        let machine = self.machine.get_or_insert_with(|| Machine::of(profile.about.architecture.as_deref()));
        let Some(machine) = machine else { return self.unknown_machine += 1 };
        let Some((registers, ip, sp)) = machine.registers(&regs, mask) else { return };
        self.chains += 1;
        let stack = Stack { start: sp, bytes: piece.copied(), is_passed: false };
        match self.walk(profile, maps, registers, ip, stack, out) {
            End::Whole => {}
            End::CutOff => self.cut_off += 1,
            End::Lost => self.lost += 1,
        }
    }

    fn walk(
        &mut self,
        profile: &Profile,
        maps: &Maps,
        mut registers: Registers,
        ip: u64,
        mut stack: Stack<'_>,
        out: &mut Vec<u64>,
    ) -> End {
        let mut at = FrameAddress::InstructionPointer(ip);
        for _ in 0..MOST_FRAMES {
            let lookup = at.address_for_lookup();
            let Some(found) = maps.find(lookup, Site::Exact) else {
                // Where it was met counts, wherever that is.
                if !at.is_return_address() {
                    out.push(lookup);
                }
                return if stack.is_passed { End::CutOff } else { End::Lost };
            };
            if at.is_return_address() && self.is_trampoline(profile, found.module, found.address + 1) {
                out.push(at.address());
                match registers.of_signal_frame(&mut stack) {
                    Some(next) => at = FrameAddress::InstructionPointer(next),
                    None => return if stack.is_passed { End::CutOff } else { End::Lost },
                }
                continue;
            }
            out.push(lookup);
            let made_up = self.made_up(profile, found.module, found.address);
            let place = match at {
                FrameAddress::InstructionPointer(_) => FrameAddress::InstructionPointer(made_up),
                FrameAddress::ReturnAddress(_) => {
                    FrameAddress::from_return_address(made_up + 1).unwrap_or(FrameAddress::InstructionPointer(NOWHERE))
                }
            };
            let before = registers.sp();
            let Some(Some(machine)) = &mut self.machine else { return End::Lost };
            let next = machine.step(place, &mut registers, &mut stack);
            match next.map(|next| next.and_then(FrameAddress::from_return_address)) {
                Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => return End::Whole,
                Ok(Some(next)) if registers.sp() > before || !at.is_return_address() => at = next,
                _ => return if stack.is_passed { End::CutOff } else { End::Lost },
            }
        }
        End::Lost
    }

    /// The made-up address of a place in a program.
    fn made_up(&mut self, profile: &Profile, id: ModuleId, offset: u64) -> u64 {
        if !self.modules.contains_key(&id) {
            let known = self.open(profile, id);
            self.modules.insert(id, known);
        }
        match self.modules.get_mut(&id) {
            Some(ModuleTables::Placed { frames, base, start }) => {
                let inside = frames.address_of(offset).and_then(|address| address.checked_sub(*start));
                inside.filter(|inside| *inside < u64::from(u32::MAX)).map_or(NOWHERE, |inside| *base + inside)
            }
            Some(ModuleTables::Bare { chains, .. }) => {
                *chains += 1;
                NOWHERE
            }
            None => NOWHERE,
        }
    }

    fn open(&mut self, profile: &Profile, id: ModuleId) -> ModuleTables {
        let bare = |why| ModuleTables::Bare { why, chains: 0 };
        let frames = match frames_of(profile, profile.modules.get(id)) {
            Ok(Some(frames)) if frames.has_tables() => frames,
            Ok(_) => return bare(None),
            Err(why) => return bare(Some(why)),
        };
        let Some((start, end)) = frames.range() else { return bare(None) };
        if self.table_bytes.saturating_add(frames.bytes()) > MOST_TABLE_BYTES {
            return bare(Some(Missing::Unreadable("there are more tables than have room".to_owned())));
        }
        let Some(Some(machine)) = &mut self.machine else { return bare(None) };
        self.table_bytes += frames.bytes();
        self.placed += 1;
        let base = self.placed * ROOM;
        machine.add(&frames, base, start, end);
        ModuleTables::Placed { frames, base, start }
    }

    fn is_trampoline(&mut self, profile: &Profile, id: ModuleId, offset: u64) -> bool {
        if let Some(&known) = self.trampolines.get(&(id, offset)) {
            return known;
        }
        self.made_up(profile, id, offset);
        let is =
            matches!(self.modules.get(&id), Some(ModuleTables::Placed { frames, .. }) if frames.is_trampoline(offset));
        if self.trampolines.len() >= MOST_PLACES {
            self.trampolines.clear();
        }
        self.trampolines.insert((id, offset), is);
        is
    }

    /// What is missing, in sentences.
    pub(super) fn notes(&self, profile: &Profile) -> Vec<String> {
        let Self { chains, cut_off, lost, narrow, unknown_machine, .. } = self;
        let mut notes = Vec::new();
        if *cut_off > 0 {
            notes.push(format!(
                "{cut_off} of {chains} call chains end too early, where the copied piece of the stack ends: `--call-graph dwarf,BYTES` copies more"
            ));
        }
        if *lost > 0 {
            notes.push(format!("{lost} of {chains} call chains could not be followed to their outermost function"));
        }
        if *narrow > 0 {
            notes.push(format!("{narrow} samples are of 32-bit programs: their call chains can't be found out"));
        }
        if *unknown_machine > 0 {
            let machine = profile.about.architecture.as_deref().unwrap_or("this machine");
            notes.push(format!(
                "{unknown_machine} call chains can't be found out: stacks of {machine} are not understood"
            ));
        }
        let mut bare: Vec<String> =
            self.modules.iter().filter_map(|(id, known)| bare_note(profile, *id, known)).collect();
        crate::order::sort(&mut bare);
        notes.append(&mut bare);
        notes
    }
}

fn bare_note(profile: &Profile, id: ModuleId, known: &ModuleTables) -> Option<String> {
    let ModuleTables::Bare { why: Some(why), chains: chains @ 1.. } = known else { return None };
    let path = profile.names.get(profile.modules.get(id).path);
    let why = match why {
        Missing::Gone => "is not there".to_owned(),
        Missing::Changed => "has changed since it was recorded".to_owned(),
        Missing::Unreadable(why) => format!("can't be read ({why})"),
    };
    Some(format!("{path} {why}: {chains} calls in it are followed by frame pointers, which may lead astray"))
}

/// The tables of a module; `None` of what has none.
fn frames_of(profile: &Profile, module: &Module) -> Result<Option<CallFrames>, Missing> {
    match module.kind {
        ModuleKind::File => CallFrames::open(&profile.sources, profile.recorded(module)).map(Some),
        ModuleKind::Vdso if profile.kernel_id().is_this() => Ok(CallFrames::of_vdso()),
        _ => Ok(None),
    }
}

impl Machine {
    /// What unwinds for this kind of machine; `None` where nothing does.
    fn of(architecture: Option<&str>) -> Option<Self> {
        match architecture.unwrap_or(std::env::consts::ARCH) {
            "x86_64" => Some(Self::X86(Box::new((UnwinderX86_64::new(), CacheX86_64::new())))),
            "aarch64" => Some(Self::Arm(Box::new((UnwinderAarch64::new(), CacheAarch64::new())))),
            _ => None,
        }
    }

    /// The registers of a sample, its instruction and its stack pointer. `None` where one is missing.
    fn registers(&self, regs: &Regs<'_>, mask: u64) -> Option<(Registers, u64, u64)> {
        let register = |number| regs.register(mask, number);
        match self {
            Self::X86(_) => {
                let (ip, sp, bp) = (register(8)?, register(7)?, register(6)?);
                Some((Registers::X86(UnwindRegsX86_64::new(ip, sp, bp)), ip, sp))
            }
            Self::Arm(_) => {
                let (ip, sp, fp, lr) = (register(32)?, register(31)?, register(29)?, register(30)?);
                Some((Registers::Arm(arm(lr, sp, fp)), ip, sp))
            }
        }
    }

    /// Adds the tables of a program, whose range begins at `base`.
    fn add(&mut self, frames: &CallFrames, base: u64, start: u64, end: u64) {
        let range = |name: &[u8]| frames.section(name).map(|(address, bytes)| address..address + bytes.len() as u64);
        let bytes = |name: &[u8]| frames.section(name).map(|(_, bytes)| bytes).filter(|bytes| !bytes.is_empty());
        let info = ExplicitModuleSectionInfo {
            base_svma: start,
            text_svma: range(b".text"),
            got_svma: range(b".got"),
            eh_frame_svma: range(b".eh_frame"),
            eh_frame: bytes(b".eh_frame"),
            eh_frame_hdr_svma: range(b".eh_frame_hdr"),
            eh_frame_hdr: bytes(b".eh_frame_hdr"),
            debug_frame: bytes(b".debug_frame"),
            ..ExplicitModuleSectionInfo::default()
        };
        let all = base..base + (end - start).min(u64::from(u32::MAX));
        let module = framehop::Module::new(String::new(), all, base, info);
        match self {
            Self::X86(unwinder) => unwinder.0.add_module(module),
            Self::Arm(unwinder) => unwinder.0.add_module(module),
        }
    }

    /// Goes to the caller. Returns where it goes on; `None` at the outermost function.
    fn step(
        &mut self,
        at: FrameAddress,
        registers: &mut Registers,
        stack: &mut Stack<'_>,
    ) -> Result<Option<u64>, framehop::Error> {
        let mut read = |address| stack.word(address).ok_or(());
        match (self, registers) {
            (Self::X86(unwinder), Registers::X86(registers)) => {
                let (unwinder, cache) = &mut **unwinder;
                // Tables of jumps to other libraries ask for its lowest bits.
                registers.set_ip(at.address());
                unwinder.unwind_frame(at, registers, cache, &mut read)
            }
            (Self::Arm(unwinder), Registers::Arm(registers)) => {
                let (unwinder, cache) = &mut **unwinder;
                let next = unwinder.unwind_frame(at, registers, cache, &mut read)?;
                Ok(next.map(|address| registers.lr_mask().strip_ptr_auth(address)))
            }
            _ => Ok(None),
        }
    }
}

fn arm(lr: u64, sp: u64, fp: u64) -> UnwindRegsAarch64 {
    UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask((1 << ARM_ADDRESS_BITS) - 1), lr, sp, fp)
}

impl Registers {
    fn sp(&self) -> u64 {
        match self {
            Self::X86(registers) => registers.sp(),
            Self::Arm(registers) => registers.sp(),
        }
    }

    /// Takes the registers that the kernel saved for a signal handler, and returns where it was.
    fn of_signal_frame(&mut self, stack: &mut Stack<'_>) -> Option<u64> {
        let sp = self.sp();
        let mut saved = |at: u64| stack.word(sp.checked_add(at)?);
        match self {
            Self::X86(registers) => {
                let (bp, sp, ip) = (saved(120)?, saved(160)?, saved(168)?);
                *registers = UnwindRegsX86_64::new(ip, sp, bp);
                Some(ip)
            }
            Self::Arm(registers) => {
                let (fp, lr, sp, ip) = (saved(544)?, saved(552)?, saved(560)?, saved(568)?);
                *registers = arm(lr, sp, fp);
                Some(ip)
            }
        }
    }
}

#[cfg(test)]
mod tests;
