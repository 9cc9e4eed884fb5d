//! A sample's bytes, in both directions.
//!
//! Read first: [`decode`], [`encode`]: both go through the fields in the kernel's order.
//!
//! **Invariant:** a sample is decoded only if its last field ends where the record ends.

use super::sample_id::{halves, task_from_word, task_to_word, word};
use super::wire::{matching, need, read_array, write_array};
use super::{BranchStack, RecordError, Regs, RegsAbi, Sample, SampleLayout, UserStack, Weight};
use crate::attr::{BranchSample, SampleFormat as F};
use crate::bytes::{Reader, Writer};

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
pub(super) fn decode<'a>(payload: &'a [u8], layout: &SampleLayout) -> Result<Sample<'a>, RecordError> {
    let first = decode_as(payload, layout, EmptyStack::WithIndex);
    let ambiguous = layout.has(F::BRANCH_STACK) && layout.branch().contains(BranchSample::HW_INDEX);
    if first.is_err() && ambiguous {
        // Where the stack isn't empty this fails in the same way, so the first error is the one to tell.
        decode_as(payload, layout, EmptyStack::Bare).or(first)
    } else {
        first
    }
}

/// Reads the fields up to the period of a sample in which nothing but a call chain and raw data can be of any length. `None` of others, and
/// of those that [`decode`] refuses.
pub(super) fn decode_front<'a>(payload: &'a [u8], layout: &SampleLayout) -> Option<Sample<'a>> {
    let words_behind = layout.words_behind?;
    let mut r = Reader::new(payload);
    let mut word = |bit| if layout.has(bit) { r.u64().map(Some) } else { Some(None) };
    let sample = Sample {
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
    };
    if layout.has(F::CALLCHAIN) {
        let count = r.u64()?;
        r.take_u64(count.checked_mul(8)?)?;
    }
    if layout.has(F::RAW) {
        read_raw(&mut r).ok()?;
    }
    (r.rest().len() == 8 * usize::from(words_behind)).then_some(sample)
}

fn decode_as<'a>(payload: &'a [u8], layout: &SampleLayout, empty: EmptyStack) -> Result<Sample<'a>, RecordError> {
    let mut r = Reader::new(payload);
    let sample = read(&mut r, layout, empty)?;
    match r.rest().len() {
        0 => Ok(sample),
        bytes => Err(RecordError::Trailing { bytes }),
    }
}

fn read<'a>(r: &mut Reader<'a>, layout: &SampleLayout, empty: EmptyStack) -> Result<Sample<'a>, RecordError> {
    let word = |r: &mut Reader<'a>, bit, field| -> Result<Option<u64>, RecordError> {
        if layout.has(bit) { need(r.u64(), field).map(Some) } else { Ok(None) }
    };
    // Fields of a struct expression are evaluated in the order written: the order of the bytes.
    Ok(Sample {
        identifier: word(r, F::IDENTIFIER, "identifier")?,
        ip: word(r, F::IP, "ip")?,
        task: word(r, F::TID, "tid")?.map(task_from_word),
        time: word(r, F::TIME, "time")?,
        addr: word(r, F::ADDR, "addr")?,
        id: word(r, F::ID, "id")?,
        stream_id: word(r, F::STREAM_ID, "stream_id")?,
        cpu: word(r, F::CPU, "cpu")?.map(|word| halves(word).0),
        period: word(r, F::PERIOD, "period")?,
        read: match layout.has(F::READ) {
            true => Some(layout.read().read(r)?),
            false => None,
        },
        callchain: match word(r, F::CALLCHAIN, "callchain")? {
            Some(count) => Some(read_array(r, count, "callchain")?),
            None => None,
        },
        raw: match layout.has(F::RAW) {
            true => Some(read_raw(r)?),
            false => None,
        },
        branch_stack: match word(r, F::BRANCH_STACK, "branch_stack")? {
            Some(count) => Some(read_branches(r, count, layout, empty)?),
            None => None,
        },
        regs_user: match word(r, F::REGS_USER, "regs_user")? {
            Some(abi) => Some(read_regs(r, abi, layout.regs_user(), "regs_user")?),
            None => None,
        },
        stack_user: match word(r, F::STACK_USER, "stack_user")? {
            Some(size) => Some(read_stack(r, size)?),
            None => None,
        },
        weight: match layout.has(F::WEIGHT) || layout.has(F::WEIGHT_STRUCT) {
            true => Some(Weight(need(r.u64(), "weight")?)),
            false => None,
        },
        data_src: word(r, F::DATA_SRC, "data_src")?,
        transaction: word(r, F::TRANSACTION, "transaction")?,
        regs_intr: match word(r, F::REGS_INTR, "regs_intr")? {
            Some(abi) => Some(read_regs(r, abi, layout.regs_intr(), "regs_intr")?),
            None => None,
        },
        phys_addr: word(r, F::PHYS_ADDR, "phys_addr")?,
        cgroup: word(r, F::CGROUP, "cgroup")?,
        data_page_size: word(r, F::DATA_PAGE_SIZE, "data_page_size")?,
        code_page_size: word(r, F::CODE_PAGE_SIZE, "code_page_size")?,
        aux: match word(r, F::AUX, "aux")? {
            Some(size) => Some(read_bytes(r, size, "aux")?),
            None => None,
        },
    })
}

/// Reads so many bytes, which must be a multiple of 8.
fn read_bytes<'a>(r: &mut Reader<'a>, len: u64, field: &'static str) -> Result<&'a [u8], RecordError> {
    if !len.is_multiple_of(8) {
        return Err(RecordError::Misaligned { field, len });
    }
    let claimed = len;
    r.take_u64(len).ok_or(RecordError::TooMany { field, claimed })
}

fn read_raw<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], RecordError> {
    let field = "raw";
    let len = u64::from(need(r.u32(), field)?);
    // The length itself takes 4 bytes, and both together end at a multiple of 8.
    if len % 8 != 4 {
        return Err(RecordError::Misaligned { field, len });
    }
    let claimed = len;
    r.take_u64(len).ok_or(RecordError::TooMany { field, claimed })
}

fn read_branches<'a>(
    r: &mut Reader<'a>,
    count: u64,
    layout: &SampleLayout,
    empty: EmptyStack,
) -> Result<BranchStack<'a>, RecordError> {
    let bare = count == 0 && empty == EmptyStack::Bare;
    let hw_idx = match layout.branch().contains(BranchSample::HW_INDEX) && !bare {
        true => Some(need(r.u64(), "hw_idx")?),
        false => None,
    };
    Ok(BranchStack {
        hw_idx,
        branches: read_array(r, count, "branch_stack")?,
        counters: match layout.branch().contains(BranchSample::COUNTERS) {
            true => Some(read_array(r, count, "branch_counters")?),
            false => None,
        },
    })
}

fn read_regs<'a>(r: &mut Reader<'a>, abi: u64, count: usize, field: &'static str) -> Result<Regs<'a>, RecordError> {
    let abi = RegsAbi(abi);
    let count = if abi == RegsAbi::NONE { 0 } else { count };
    Ok(Regs { abi, values: read_array(r, count as u64, field)? })
}

fn read_stack<'a>(r: &mut Reader<'a>, size: u64) -> Result<UserStack<'a>, RecordError> {
    let data = read_bytes(r, size, "stack_user")?;
    let dyn_size = if data.is_empty() { 0 } else { need(r.u64(), "dyn_size")? };
    Ok(UserStack { data, dyn_size })
}

/// Writes a sample.
pub(super) fn encode(sample: &Sample<'_>, w: &mut Writer<'_>, layout: &SampleLayout) -> Result<(), RecordError> {
    let has_weight = layout.has(F::WEIGHT) || layout.has(F::WEIGHT_STRUCT);
    let cpu = sample.cpu.map(|cpu| word(cpu, 0));
    let put = |w: &mut Writer<'_>, asked, value, field| -> Result<(), RecordError> {
        if let Some(value) = matching(asked, value, field)? {
            w.u64(value);
        }
        Ok(())
    };
    put(w, layout.has(F::IDENTIFIER), sample.identifier, "identifier")?;
    put(w, layout.has(F::IP), sample.ip, "ip")?;
    put(w, layout.has(F::TID), sample.task.map(task_to_word), "tid")?;
    put(w, layout.has(F::TIME), sample.time, "time")?;
    put(w, layout.has(F::ADDR), sample.addr, "addr")?;
    put(w, layout.has(F::ID), sample.id, "id")?;
    put(w, layout.has(F::STREAM_ID), sample.stream_id, "stream_id")?;
    put(w, layout.has(F::CPU), cpu, "cpu")?;
    put(w, layout.has(F::PERIOD), sample.period, "period")?;
    if let Some(values) = matching(layout.has(F::READ), sample.read, "read")? {
        layout.read().write(&values, w)?;
    }
    if let Some(ips) = matching(layout.has(F::CALLCHAIN), sample.callchain, "callchain")? {
        w.u64(ips.len() as u64);
        write_array(w, ips);
    }
    if let Some(raw) = matching(layout.has(F::RAW), sample.raw, "raw")? {
        write_raw(w, raw);
    }
    let branch_stack = matching(layout.has(F::BRANCH_STACK), sample.branch_stack, "branch_stack")?;
    if let Some(stack) = branch_stack {
        write_branches(w, &stack, layout)?;
    }
    if let Some(regs) = matching(layout.has(F::REGS_USER), sample.regs_user, "regs_user")? {
        write_regs(w, &regs, layout.regs_user(), "regs_user")?;
    }
    if let Some(stack) = matching(layout.has(F::STACK_USER), sample.stack_user, "stack_user")? {
        write_stack(w, &stack)?;
    }
    put(w, has_weight, sample.weight.map(|weight| weight.0), "weight")?;
    put(w, layout.has(F::DATA_SRC), sample.data_src, "data_src")?;
    put(w, layout.has(F::TRANSACTION), sample.transaction, "transaction")?;
    if let Some(regs) = matching(layout.has(F::REGS_INTR), sample.regs_intr, "regs_intr")? {
        write_regs(w, &regs, layout.regs_intr(), "regs_intr")?;
    }
    put(w, layout.has(F::PHYS_ADDR), sample.phys_addr, "phys_addr")?;
    put(w, layout.has(F::CGROUP), sample.cgroup, "cgroup")?;
    let (data, code) = (sample.data_page_size, sample.code_page_size);
    put(w, layout.has(F::DATA_PAGE_SIZE), data, "data_page_size")?;
    put(w, layout.has(F::CODE_PAGE_SIZE), code, "code_page_size")?;
    if let Some(data) = matching(layout.has(F::AUX), sample.aux, "aux")? {
        write_bytes(w, data, "aux")?;
    }
    Ok(())
}

/// Writes a length and so many bytes, which must be a multiple of 8.
fn write_bytes(w: &mut Writer<'_>, data: &[u8], field: &'static str) -> Result<(), RecordError> {
    let len = data.len() as u64;
    if !len.is_multiple_of(8) {
        return Err(RecordError::Misaligned { field, len });
    }
    w.u64(len);
    w.put(data);
    Ok(())
}

fn write_raw(w: &mut Writer<'_>, raw: &[u8]) {
    let padded = (raw.len() / 8 * 8).saturating_add(if raw.len() % 8 <= 4 { 4 } else { 12 });
    // A longer one makes the record too long, which is an error of its own.
    w.u32(u32::try_from(padded).unwrap_or(u32::MAX));
    w.put(raw);
    w.pad8();
}

fn write_branches(w: &mut Writer<'_>, stack: &BranchStack<'_>, layout: &SampleLayout) -> Result<(), RecordError> {
    let count = stack.branches.len();
    w.u64(count as u64);
    match (layout.branch().contains(BranchSample::HW_INDEX), stack.hw_idx) {
        (true, Some(hw_idx)) => w.u64(hw_idx),
        // The kernel's own way of saying that there is no stack.
        (true, None) if count == 0 => {}
        (asked, hw_idx) => {
            matching(asked, hw_idx, "hw_idx")?;
        }
    }
    write_array(w, stack.branches);
    let asked = layout.branch().contains(BranchSample::COUNTERS);
    if let Some(counters) = matching(asked, stack.counters, "branch_counters")? {
        if counters.len() != count {
            return Err(RecordError::WrongLength { field: "branch_counters", expected: count, given: counters.len() });
        }
        write_array(w, counters);
    }
    Ok(())
}

fn write_regs(w: &mut Writer<'_>, regs: &Regs<'_>, count: usize, field: &'static str) -> Result<(), RecordError> {
    let expected = if regs.abi == RegsAbi::NONE { 0 } else { count };
    let given = regs.values.len();
    if given != expected {
        return Err(RecordError::WrongLength { field, expected, given });
    }
    w.u64(regs.abi.0);
    write_array(w, regs.values);
    Ok(())
}

fn write_stack(w: &mut Writer<'_>, stack: &UserStack<'_>) -> Result<(), RecordError> {
    write_bytes(w, stack.data, "stack_user")?;
    if !stack.data.is_empty() {
        w.u64(stack.dyn_size);
    } else if stack.dyn_size != 0 {
        return Err(RecordError::Unexpected { field: "dyn_size" });
    }
    Ok(())
}
