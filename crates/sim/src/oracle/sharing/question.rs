//! Who asks the same.
//!
//! What it is: for two attributes whether they ask the same, and for a group which others it may share with, field by field.
//!
//! **Invariant:** two attributes are compared as they are; there is no form that both are brought into.

use pmux_abi::attr::{Attr, AttrFlags, Sampling};

/// Which others a group may share with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharesWith {
    /// None: it does more than count, begins by itself, or wants all counters.
    NoGroup,
    /// Groups that ask for the same as a whole: it demands to be on always.
    Alike,
    /// These, and single events that ask for one of its own.
    GroupsAndSingles,
}

/// Which others a group may share with, the leader first.
#[must_use]
pub fn of_group(attrs: &[Attr]) -> SharesWith {
    let leader = attrs.first().map_or(AttrFlags::empty(), |leader| leader.flags);
    match attrs.iter().all(only_counts) {
        true if leader.contains(AttrFlags::EXCLUSIVE) => SharesWith::NoGroup,
        true if leader.contains(AttrFlags::PINNED) => SharesWith::Alike,
        true => SharesWith::GroupsAndSingles,
        false => SharesWith::NoGroup,
    }
}

/// Whether an event does nothing but count, from when it is told to.
#[must_use]
pub fn only_counts(attr: &Attr) -> bool {
    use AttrFlags as F;
    let samples = !matches!(attr.sampling, Sampling::None | Sampling::Period(0));
    let traces = attr.aux_sample_size != 0 || attr.aux_action != 0 || attr.flags.contains(F::AUX_OUTPUT);
    let signals = attr.flags.contains(F::SIGTRAP);
    let begins_by_itself = attr.flags.contains(F::ENABLE_ON_EXEC);
    let mappings = F::MMAP | F::MMAP_DATA | F::MMAP2 | F::KSYMBOL | F::BPF_EVENT | F::TEXT_POKE;
    let tasks = F::COMM | F::TASK | F::CONTEXT_SWITCH | F::NAMESPACES | F::CGROUP | F::INHERIT_STAT;
    let writes = attr.flags.intersects(mappings | tasks | F::DEFER_OUTPUT);
    !(samples || traces || signals || begins_by_itself || writes)
}

/// Whether two events that only count ask the same: what happens, when, and to which tasks in which modes. How it would be written
/// into a ring, and whether it begins at once, makes no difference.
#[must_use]
pub fn same(one: &Attr, other: &Attr) -> bool {
    use AttrFlags as F;
    let tasks = F::INHERIT | F::INHERIT_THREAD;
    let modes = F::EXCLUDE_USER | F::EXCLUDE_KERNEL | F::EXCLUDE_HV;
    let places = F::EXCLUDE_IDLE | F::EXCLUDE_HOST | F::EXCLUDE_GUEST;
    let when = F::PINNED | F::EXCLUSIVE | F::REMOVE_ON_EXEC;
    (one.kind, one.config, one.precise) == (other.kind, other.config, other.precise)
        && (one.config1, one.config2) == (other.config1, other.config2)
        && (one.config3, one.config4) == (other.config3, other.config4)
        && one.bp_type == other.bp_type
        && !(one.flags ^ other.flags).intersects(tasks | modes | places | when)
}
