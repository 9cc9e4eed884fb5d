//! How many registers there are to hand out in turns.
//!
//! **Invariant:** it is tried out on the target itself, for a moment; nothing stays open.

use super::shortage::RegisterTarget;
use super::{Shortage, WatchTarget};
use crate::error::Error;
use crate::event::{Access, Event};
use crate::session::Session;
use crate::target::Target;
use pmux_abi::attr::{Attr, AttrFlags};
use pmux_engine::target::ContextKey;
use pmux_engine::{CpuId, GroupSpec, Target as EngineTarget};
use pmux_linux::diagnose::{TargetKind, Whose};
use pmux_linux::host::{KERNEL, LinuxHost, Registers};

/// More registers than any machine has.
const MOST_REGISTERS: usize = 16;

/// How many registers a target has to hand out in turns; [`Registers::Kept`] where they are enough for all.
pub(super) fn registers(
    session: &Session,
    watch_targets: &[WatchTarget],
    target: &Target<'_>,
) -> Result<Registers, Error> {
    let mut wanted = Vec::new();
    for (index, watch_target) in watch_targets.iter().enumerate() {
        let pieces = watch_target.pieces(index).map_err(Error::WatchTarget)?;
        wanted.extend(
            pieces.into_iter().map(|piece| Event::breakpoint(piece.address, piece.len, watch_target.access).attr),
        );
    }
    let is_code = |attr: &&Attr| attr.bp_type == Access::EXECUTE.bits();
    let (code, data): (Vec<_>, Vec<_>) = wanted.iter().partition(is_code);
    let place = match target {
        Target::Cpus(cpus) => {
            let (mask, _) = cpus.mask(session)?;
            let online = session.engine().online();
            let first = mask.iter().find(|&cpu| online.contains(cpu)).unwrap_or(CpuId(0));
            EngineTarget::cpu(first)
        }
        Target::CurrentThread => EngineTarget::task(LinuxHost::task(pmux_linux::current_tid())),
        Target::Command(command) => EngineTarget::task(LinuxHost::task(command.pid())),
        Target::Threads(ids) | Target::Processes(ids) => {
            EngineTarget::task(LinuxHost::task(ids.first().copied().unwrap_or_default()))
        }
        Target::Cgroups { .. } => return Ok(Registers::Kept),
    };
    let granted = |attrs: &[Attr]| granted(session, place, attrs);
    // One by one: what is refused for other reasons than want of registers would be so in its turn, too.
    for attr in &wanted {
        if granted(std::slice::from_ref(attr))? == 0 {
            let found = watch_targets.iter().find(|watch_target| watch_target.address <= attr.config1);
            let name = found.map(|found| found.name.clone());
            let tid = if let ContextKey::Task(task) = place.context { i32::try_from(task.0).ok() } else { None };
            let cpu = RegisterTarget::Cpu(place.bound_to().unwrap_or(CpuId(0)));
            let at = tid.map_or(cpu, |tid| RegisterTarget::Thread(tid, Whose::Other));
            // Taking turns on none is no use.
            return Err(Error::Shortage(Box::new(Shortage::of(at, name.unwrap_or_default(), 0, 1, None))));
        }
    }
    let (together, all_code, all_data) = (granted(&wanted)?, code.len(), data.len());
    if together == wanted.len() {
        return Ok(Registers::Kept);
    }
    let (code, data) = (granted(&fill(&code))?, granted(&fill(&data))?);
    let number = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    Ok(match (all_code, all_data) {
        (0, _) => Registers::Shared(number(data.max(1))),
        (_, 0) => Registers::Shared(number(code.max(1))),
        // Where both kinds together get no more than one of them, they are the same registers.
        _ if together <= code.max(data) => Registers::Shared(number(together.max(1))),
        _ => Registers::Separate { execute: number(code.max(1)), data: number(data.max(1)) },
    })
}

/// As many of a kind as there could be registers.
fn fill(attrs: &[&Attr]) -> Vec<Attr> {
    attrs.iter().cycle().take(if attrs.is_empty() { 0 } else { MOST_REGISTERS }).map(|attr| **attr).collect()
}

/// How many of these can be open at once on a target; at most [`MOST_REGISTERS`].
fn granted(session: &Session, place: EngineTarget, attrs: &[Attr]) -> Result<usize, Error> {
    let mut opened = Vec::new();
    for attr in attrs.iter().take(MOST_REGISTERS) {
        // Whether they are permitted in the kernel is no question of registers.
        let kernel = if attr.config1 >> 63 == 0 { AttrFlags::EXCLUDE_KERNEL } else { AttrFlags::empty() };
        let attr = Attr { flags: attr.flags | kernel, ..*attr };
        match session.hold(&GroupSpec::single(KERNEL, attr), place) {
            Ok(event) => opened.push(event),
            Err(error) if error.errno() == pmux_linux::Errno::ENOSPC.raw() => break,
            Err(error) => {
                let kind = place.bound_to().map_or(TargetKind::Task(Whose::Other), |cpu| TargetKind::Cpu(cpu.0));
                return Err(Error::Refused(vec![session.refusal(error, &attr, kind)]));
            }
        }
    }
    Ok(opened.len())
}
