//! Who may get records.
//!
//! What it is: [`decide_records`]: what a record may tell, and then the same rules as for counting.
//!
//! **Invariant:** as [`super`]; and no group of the configuration allows records: who may count what all do may not yet look where
//! they are.
//!
//! Source: Linux 6.18, `kernel/events/core.c` (`perf_event_open`, `perf_copy_attr`), `kernel/trace/trace_event_perf.c`
//! (`perf_trace_event_perm`). Records tell numbers of tasks as the service sees them.

use super::{Denied, Machine, Membership, PmuKind, Wanted, decide, is_privileged};
use pmux::serving::abi::{Attr, AttrFlags, BranchSample, EventType, SampleFormat};
use pmux::serving::{Asker, Namespace, counting_part_of_records};

/// What a sample may tell to everybody who may have it at all.
const FIELDS: SampleFormat = SampleFormat::IP
    .union(SampleFormat::TID)
    .union(SampleFormat::TIME)
    .union(SampleFormat::ADDR)
    .union(SampleFormat::CALLCHAIN)
    .union(SampleFormat::ID)
    .union(SampleFormat::CPU)
    .union(SampleFormat::PERIOD)
    .union(SampleFormat::STREAM_ID)
    .union(SampleFormat::RAW)
    .union(SampleFormat::BRANCH_STACK)
    .union(SampleFormat::REGS_USER)
    .union(SampleFormat::STACK_USER)
    .union(SampleFormat::WEIGHT)
    .union(SampleFormat::DATA_SRC)
    .union(SampleFormat::IDENTIFIER)
    .union(SampleFormat::TRANSACTION)
    .union(SampleFormat::CGROUP)
    .union(SampleFormat::DATA_PAGE_SIZE)
    .union(SampleFormat::CODE_PAGE_SIZE)
    .union(SampleFormat::WEIGHT_STRUCT);

/// Records beside samples that need a right of their own.
const PRIVILEGED: AttrFlags =
    AttrFlags::NAMESPACES.union(AttrFlags::KSYMBOL).union(AttrFlags::BPF_EVENT).union(AttrFlags::TEXT_POKE);

/// Whether somebody gets the records of an event.
///
/// # Errors
/// Checked in this order: [`Denied::OwnRecords`], [`Denied::OtherNamespace`]; for those without `CAP_PERFMON`
/// [`Denied::PrivilegedRecords`], [`Denied::TracepointData`]; then as [`decide`].
pub fn decide_records(
    asker: &Asker,
    attr: &Attr,
    pmu: PmuKind,
    wanted: Wanted<'_>,
    machine: Machine,
) -> Result<(), Denied> {
    let counting = counting_part_of_records(attr).ok_or(Denied::OwnRecords)?;
    if asker.task_ids != Namespace::Ours {
        return Err(Denied::OtherNamespace);
    }
    if !is_privileged(asker) {
        let of_kernel = BranchSample::KERNEL | BranchSample::HV;
        let branches = attr.sample.contains(SampleFormat::BRANCH_STACK) && attr.branch_sample.intersects(of_kernel);
        if !FIELDS.contains(attr.sample) || attr.flags.intersects(PRIVILEGED) || branches {
            return Err(Denied::PrivilegedRecords);
        }
        let data = attr.kind == EventType::TRACEPOINT && attr.sample.contains(SampleFormat::RAW);
        if data && machine.paranoid > -1 {
            return Err(Denied::TracepointData { paranoid: machine.paranoid });
        }
    }
    decide(asker, &counting, pmu, wanted, machine, Membership::None).map(drop)
}
