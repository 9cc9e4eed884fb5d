//! A sample's bytes, in both directions.
//!
//! Read first: [`decode`], [`encode`]: both go through the fields in the kernel's order.
//!
//! **Invariant:** a sample is decoded only if its last field ends where the record ends.

use super::sample_id::{halves, task_from_word, task_to_word, word};
use super::wire::{read_array, read_counted, write_array, write_counted};
use super::{BranchStack, Regs, RegsAbi, Sample, SampleLayout, UserStack, Weight};
use crate::attr::{BranchSample, SampleFormat as F};
use crate::bytes::{Reader, Writer, matching};

/// How a branch stack of no branches is laid out.
///
/// With `HW_INDEX` a kernel writes the index if the PMU gave a stack, even an empty one, and leaves it out if the PMU
/// gave none. The two can only be told apart by what follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyStack {
    WithIndex,
    Bare,
}

/// Reads a sample that takes all of the payload.
pub(super) fn decode<'a>(payload: &'a [u8], layout: &SampleLayout) -> Option<Sample<'a>> {
    let ambiguous = layout.has(F::BRANCH_STACK) && layout.branch.contains(BranchSample::HW_INDEX);
    // Where the stack isn't empty the second way fails as the first one did.
    decode_as(payload, layout, EmptyStack::WithIndex)
        .or_else(|| ambiguous.then(|| decode_as(payload, layout, EmptyStack::Bare)).flatten())
}

/// Reads the fields up to the period of a sample in which nothing but a call chain and raw data can be of any length. `None` of others, and
/// of those that [`decode`] refuses.
pub(super) fn decode_front<'a>(payload: &'a [u8], layout: &SampleLayout) -> Option<Sample<'a>> {
    let words_behind = layout.words_behind?;
    let mut r = Reader::new(payload);
    let front = read_front(&mut r, layout)?;
    if layout.has(F::CALLCHAIN) {
        read_counted::<u64>(&mut r)?;
    }
    if layout.has(F::RAW) {
        read_raw(&mut r)?;
    }
    (r.rest().len() == 8 * usize::from(words_behind)).then_some(front)
}

fn decode_as<'a>(payload: &'a [u8], layout: &SampleLayout, empty: EmptyStack) -> Option<Sample<'a>> {
    let mut r = Reader::new(payload);
    read(&mut r, layout, empty).filter(|_| r.rest().is_empty())
}

/// Reads the fields up to the period.
fn read_front<'a>(r: &mut Reader<'a>, layout: &SampleLayout) -> Option<Sample<'a>> {
    let mut word = |bit| if layout.has(bit) { r.u64().map(Some) } else { Some(None) };
    // Fields of a struct expression are evaluated in the order written: the order of the bytes.
    Some(Sample {
        identifier: word(F::IDENTIFIER)?,
        ip: word(F::IP)?,
        task: word(F::TID)?.map(task_from_word),
        time: word(F::TIME)?,
        addr: word(F::ADDR)?,
        id: word(F::ID)?,
        stream_id: word(F::STREAM_ID)?,
        cpu: word(F::CPU)?.map(|word| halves(word).0),
        period: word(F::PERIOD)?,
        ..Sample::default()
    })
}

fn read<'a>(r: &mut Reader<'a>, layout: &SampleLayout, empty: EmptyStack) -> Option<Sample<'a>> {
    let front = read_front(r, layout)?;
    let word = |r: &mut Reader<'a>, bit| field(layout.has(bit), r, Reader::u64);
    let has_weight = layout.has(F::WEIGHT) || layout.has(F::WEIGHT_STRUCT);
    Some(Sample {
        read: field(layout.has(F::READ), r, |r| layout.read().read(r))?,
        callchain: field(layout.has(F::CALLCHAIN), r, read_counted)?,
        raw: field(layout.has(F::RAW), r, read_raw)?,
        branch_stack: field(layout.has(F::BRANCH_STACK), r, |r| read_branches(r, layout, empty))?,
        regs_user: field(layout.has(F::REGS_USER), r, |r| read_regs(r, layout.regs_user.into()))?,
        stack_user: field(layout.has(F::STACK_USER), r, read_stack)?,
        weight: field(has_weight, r, Reader::u64)?.map(Weight),
        data_src: word(r, F::DATA_SRC)?,
        transaction: word(r, F::TRANSACTION)?,
        regs_intr: field(layout.has(F::REGS_INTR), r, |r| read_regs(r, layout.regs_intr.into()))?,
        phys_addr: word(r, F::PHYS_ADDR)?,
        cgroup: word(r, F::CGROUP)?,
        data_page_size: word(r, F::DATA_PAGE_SIZE)?,
        code_page_size: word(r, F::CODE_PAGE_SIZE)?,
        aux: field(layout.has(F::AUX), r, read_bytes)?,
        ..front
    })
}

/// Reads a field if the layout has it.
fn field<'a, T>(asked: bool, r: &mut Reader<'a>, read: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<Option<T>> {
    if asked { read(r).map(Some) } else { Some(None) }
}

/// Reads a number and so many bytes, which must be a multiple of 8.
fn read_bytes<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = r.u64().filter(|len| len.is_multiple_of(8))?;
    r.take_u64(len)
}

fn read_raw<'a>(r: &mut Reader<'a>) -> Option<&'a [u8]> {
    // The length itself takes 4 bytes, and both together end at a multiple of 8.
    let len = r.u32().filter(|len| len % 8 == 4)?;
    r.take_u64(len.into())
}

fn read_branches<'a>(r: &mut Reader<'a>, layout: &SampleLayout, empty: EmptyStack) -> Option<BranchStack<'a>> {
    let count = r.u64()?;
    let bare = count == 0 && empty == EmptyStack::Bare;
    Some(BranchStack {
        hw_idx: field(layout.branch.contains(BranchSample::HW_INDEX) && !bare, r, Reader::u64)?,
        branches: read_array(r, count)?,
        counters: field(layout.branch.contains(BranchSample::COUNTERS), r, |r| read_array(r, count))?,
    })
}

fn read_regs<'a>(r: &mut Reader<'a>, count: usize) -> Option<Regs<'a>> {
    let abi = RegsAbi(r.u64()?);
    let count = if abi == RegsAbi::NONE { 0 } else { count };
    Some(Regs { abi, values: read_array(r, count as u64)? })
}

fn read_stack<'a>(r: &mut Reader<'a>) -> Option<UserStack<'a>> {
    let data = read_bytes(r)?;
    let dyn_size = if data.is_empty() { 0 } else { r.u64()? };
    Some(UserStack { data, dyn_size })
}

pub(super) fn encode(sample: &Sample<'_>, w: &mut Writer<'_>, layout: &SampleLayout) -> Option<()> {
    let has_weight = layout.has(F::WEIGHT) || layout.has(F::WEIGHT_STRUCT);
    w.optional(layout.has(F::IDENTIFIER), sample.identifier)?;
    w.optional(layout.has(F::IP), sample.ip)?;
    w.optional(layout.has(F::TID), sample.task.map(task_to_word))?;
    w.optional(layout.has(F::TIME), sample.time)?;
    w.optional(layout.has(F::ADDR), sample.addr)?;
    w.optional(layout.has(F::ID), sample.id)?;
    w.optional(layout.has(F::STREAM_ID), sample.stream_id)?;
    w.optional(layout.has(F::CPU), sample.cpu.map(|cpu| word(cpu, 0)))?;
    w.optional(layout.has(F::PERIOD), sample.period)?;
    if let Some(values) = matching(layout.has(F::READ), sample.read)? {
        layout.read().write(&values, w)?;
    }
    if let Some(ips) = matching(layout.has(F::CALLCHAIN), sample.callchain)? {
        write_counted(w, ips);
    }
    if let Some(raw) = matching(layout.has(F::RAW), sample.raw)? {
        write_raw(w, raw);
    }
    if let Some(stack) = matching(layout.has(F::BRANCH_STACK), sample.branch_stack)? {
        write_branches(w, &stack, layout)?;
    }
    if let Some(regs) = matching(layout.has(F::REGS_USER), sample.regs_user)? {
        write_regs(w, &regs, layout.regs_user.into())?;
    }
    if let Some(stack) = matching(layout.has(F::STACK_USER), sample.stack_user)? {
        write_stack(w, &stack)?;
    }
    w.optional(has_weight, sample.weight.map(|weight| weight.0))?;
    w.optional(layout.has(F::DATA_SRC), sample.data_src)?;
    w.optional(layout.has(F::TRANSACTION), sample.transaction)?;
    if let Some(regs) = matching(layout.has(F::REGS_INTR), sample.regs_intr)? {
        write_regs(w, &regs, layout.regs_intr.into())?;
    }
    w.optional(layout.has(F::PHYS_ADDR), sample.phys_addr)?;
    w.optional(layout.has(F::CGROUP), sample.cgroup)?;
    w.optional(layout.has(F::DATA_PAGE_SIZE), sample.data_page_size)?;
    w.optional(layout.has(F::CODE_PAGE_SIZE), sample.code_page_size)?;
    if let Some(data) = matching(layout.has(F::AUX), sample.aux)? {
        write_bytes(w, data)?;
    }
    Some(())
}

/// Writes a length and so many bytes, which must be a multiple of 8.
fn write_bytes(w: &mut Writer<'_>, data: &[u8]) -> Option<()> {
    w.u64(data.len() as u64);
    w.put(data);
    data.len().is_multiple_of(8).then_some(())
}

fn write_raw(w: &mut Writer<'_>, raw: &[u8]) {
    let padded = (raw.len() / 8 * 8).saturating_add(if raw.len() % 8 <= 4 { 4 } else { 12 });
    // A longer one makes the record too long, which is an error of its own.
    w.u32(u32::try_from(padded).unwrap_or(u32::MAX));
    w.put(raw);
    w.pad8();
}

fn write_branches(w: &mut Writer<'_>, stack: &BranchStack<'_>, layout: &SampleLayout) -> Option<()> {
    let count = stack.branches.len();
    w.u64(count as u64);
    match (layout.branch.contains(BranchSample::HW_INDEX), stack.hw_idx) {
        (true, Some(hw_idx)) => w.u64(hw_idx),
        // The kernel's own way of saying that there is no stack.
        (true, None) if count == 0 => {}
        (asked, hw_idx) => {
            matching(asked, hw_idx)?;
        }
    }
    write_array(w, stack.branches);
    let asked = layout.branch.contains(BranchSample::COUNTERS);
    if let Some(counters) = matching(asked, stack.counters)? {
        if counters.len() != count {
            return None;
        }
        write_array(w, counters);
    }
    Some(())
}

fn write_regs(w: &mut Writer<'_>, regs: &Regs<'_>, count: usize) -> Option<()> {
    let expected = if regs.abi == RegsAbi::NONE { 0 } else { count };
    w.u64(regs.abi.0);
    write_array(w, regs.values);
    (regs.values.len() == expected).then_some(())
}

fn write_stack(w: &mut Writer<'_>, stack: &UserStack<'_>) -> Option<()> {
    write_bytes(w, stack.data)?;
    if stack.data.is_empty() {
        return (stack.dyn_size == 0).then_some(());
    }
    w.u64(stack.dyn_size);
    Some(())
}
