//! What an event asks, without how it was asked.
//!
//! What it is: the canonical form of an attribute, and the table of which field does what. Two events whose canonical
//! attributes are equal count the same thing in the same context.
//! Read first: [`canonical`].
//!
//! **Invariant:** every field and every flag of an attribute has exactly one [`Role`]; one without a role does not compile, or
//! fails the test that walks over all flags.

use pmux_abi::attr::{Attr, AttrFlags, ReadFormat, SampleFormat, Sampling, Wakeup};

/// What a field of an attribute does to sharing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It says what is counted, when, or for which tasks: events that differ in it don't share.
    Asked,
    /// It changes nothing for an event that only counts.
    Ignored,
    /// An event that has it set does more than count, or begins at a moment that only its own counter knows: it shares with no
    /// other event.
    Alone,
}

/// What a flag does to sharing; `None` for a combination, or a flag without a name.
#[must_use]
pub fn role_of(flag: AttrFlags) -> Option<Role> {
    [(ASKED, Role::Asked), (IGNORED, Role::Ignored), (ALONE, Role::Alone)]
        .into_iter()
        .find_map(|(flags, role)| (flag.bits().count_ones() == 1 && flags.contains(flag)).then_some(role))
}

/// When and for which tasks an event counts. Pinned and exclusive are demands on the counter; events that make them share only with
/// events that make them too (and no event that wants to be alone shares: see [`super::may_share`]).
const ASKED: AttrFlags = AttrFlags::INHERIT
    .union(AttrFlags::INHERIT_THREAD)
    .union(AttrFlags::PINNED)
    .union(AttrFlags::EXCLUSIVE)
    .union(AttrFlags::EXCLUDE_USER)
    .union(AttrFlags::EXCLUDE_KERNEL)
    .union(AttrFlags::EXCLUDE_HV)
    .union(AttrFlags::EXCLUDE_IDLE)
    .union(AttrFlags::EXCLUDE_HOST)
    .union(AttrFlags::EXCLUDE_GUEST)
    .union(AttrFlags::REMOVE_ON_EXEC);

/// The engine says when an event begins (`DISABLED`); the others shape records of which a counting event writes none.
const IGNORED: AttrFlags = AttrFlags::DISABLED
    .union(AttrFlags::SAMPLE_ID_ALL)
    .union(AttrFlags::EXCLUDE_CALLCHAIN_KERNEL)
    .union(AttrFlags::EXCLUDE_CALLCHAIN_USER)
    .union(AttrFlags::COMM_EXEC)
    .union(AttrFlags::USE_CLOCKID)
    .union(AttrFlags::WRITE_BACKWARD)
    .union(AttrFlags::BUILD_ID)
    .union(AttrFlags::DEFER_CALLCHAIN);

/// It writes records, reports child by child, is started by an exec, or sends signals.
pub(crate) const ALONE: AttrFlags = AttrFlags::MMAP
    .union(AttrFlags::COMM)
    .union(AttrFlags::INHERIT_STAT)
    .union(AttrFlags::ENABLE_ON_EXEC)
    .union(AttrFlags::TASK)
    .union(AttrFlags::MMAP_DATA)
    .union(AttrFlags::MMAP2)
    .union(AttrFlags::CONTEXT_SWITCH)
    .union(AttrFlags::NAMESPACES)
    .union(AttrFlags::KSYMBOL)
    .union(AttrFlags::BPF_EVENT)
    .union(AttrFlags::AUX_OUTPUT)
    .union(AttrFlags::CGROUP)
    .union(AttrFlags::TEXT_POKE)
    .union(AttrFlags::SIGTRAP)
    .union(AttrFlags::DEFER_OUTPUT);

/// The flags of an event that counts and does nothing else, so that it can be counted for another client.
pub const COUNTING: AttrFlags = ASKED.union(IGNORED);

/// The question of an attribute; `None` where it is one that no other event can share.
///
/// | field | role |
/// |---|---|
/// | `kind`, `config`, `config1` to `config4`, `bp_type` | asked |
/// | `precise` | asked: it may choose another counter |
/// | `flags` | each by itself: see [`role_of`] |
/// | `sampling`, `aux_sample_size`, `aux_action` | alone, unless 0 |
/// | `sample`, `read_format`, `wakeup`, `branch_sample`, `sample_regs_user`, `sample_stack_user`, `clock_id`, `sample_regs_intr`, `aux_watermark`, `sample_max_stack`, `sig_data` | ignored |
///
/// A word that is a pointer (the name of a probe) can't be compared: the PMU says so, see
/// [`crate::pmu::PmuModel::share_key`].
#[must_use]
pub fn canonical(attr: &Attr) -> Option<Attr> {
    // Every field is named here, so that one that is added must be given its role.
    let Attr {
        kind,
        config,
        sampling,
        sample: _,
        read_format: _,
        flags,
        precise,
        wakeup: _,
        bp_type,
        config1,
        config2,
        branch_sample: _,
        sample_regs_user: _,
        sample_stack_user: _,
        clock_id: _,
        sample_regs_intr: _,
        aux_watermark: _,
        sample_max_stack: _,
        aux_sample_size,
        aux_action,
        sig_data: _,
        config3,
        config4,
    } = *attr;
    let counts_only = matches!(sampling, Sampling::None | Sampling::Period(0));
    if !counts_only || aux_sample_size != 0 || aux_action != 0 || !COUNTING.contains(flags) {
        return None;
    }
    let flags = flags & ASKED;
    Some(Attr { kind, config, config1, config2, config3, config4, bp_type, precise, flags, ..Attr::default() })
}

/// What can't be handed to several, be the records equal: what tells of one event's own count or begin, a signal, a ring that is
/// written backwards, and data in a buffer of its own.
const OWN_RECORDS: AttrFlags = AttrFlags::INHERIT_STAT
    .union(AttrFlags::ENABLE_ON_EXEC)
    .union(AttrFlags::REMOVE_ON_EXEC)
    .union(AttrFlags::WRITE_BACKWARD)
    .union(AttrFlags::AUX_OUTPUT)
    .union(AttrFlags::SIGTRAP)
    .union(AttrFlags::DEFER_OUTPUT);

/// The question of an attribute where records are asked for; `None` where no other event could use them.
///
/// All of it is asked, but for `DISABLED`, `wakeup` and `read_format`: which reader is woken when is the affair of each ring, and
/// samples with counts in them ([`SampleFormat::READ`]) belong to one event only. So an event that asks for fewer fields has a
/// master of its own.
#[must_use]
pub fn canonical_of_records(attr: &Attr) -> Option<Attr> {
    let own = SampleFormat::READ | SampleFormat::AUX;
    let alone = attr.flags.intersects(OWN_RECORDS) || attr.sample.intersects(own);
    if alone || attr.aux_sample_size != 0 || attr.aux_action != 0 || attr.sig_data != 0 {
        return None;
    }
    let flags = attr.flags - AttrFlags::DISABLED;
    Some(Attr { flags, read_format: ReadFormat::empty(), wakeup: Wakeup::default(), ..*attr })
}

/// The part of it that counts: whether a PMU can compare it says whether it can compare the whole.
#[must_use]
pub fn counting_part(attr: &Attr) -> Attr {
    let flags = attr.flags & COUNTING;
    Attr { flags, sampling: Sampling::None, aux_sample_size: 0, aux_action: 0, ..*attr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::share_key::Role::{Alone, Asked, Ignored};
    use alloc::vec::Vec;
    use pmux_abi::attr::{BranchSample, EventType, Precise};

    type AttrEdit = fn(&mut Attr);

    /// Every field, with what it does.
    const FIELDS: [(&str, Role, AttrEdit); 24] = [
        ("kind", Asked, |attr| attr.kind = EventType(9)),
        ("config", Asked, |attr| attr.config ^= 1),
        ("config1", Asked, |attr| attr.config1 ^= 1),
        ("config2", Asked, |attr| attr.config2 ^= 1),
        ("config3", Asked, |attr| attr.config3 ^= 1),
        ("config4", Asked, |attr| attr.config4 ^= 1),
        ("bp_type", Asked, |attr| attr.bp_type ^= 1),
        ("precise", Asked, |attr| attr.precise = Precise::RequestZeroSkid),
        ("period", Alone, |attr| attr.sampling = Sampling::Period(1)),
        ("period 0", Ignored, |attr| attr.sampling = Sampling::Period(0)),
        ("frequency", Alone, |attr| attr.sampling = Sampling::Frequency(99)),
        ("aux_sample_size", Alone, |attr| attr.aux_sample_size = 8),
        ("aux_action", Alone, |attr| attr.aux_action = 1),
        ("sample", Ignored, |attr| attr.sample = SampleFormat::IDENTIFIER),
        ("read_format", Ignored, |attr| attr.read_format = ReadFormat::ID),
        ("wakeup", Ignored, |attr| attr.wakeup = Wakeup::Bytes(3)),
        ("branch_sample", Ignored, |attr| attr.branch_sample = BranchSample::all()),
        ("sample_regs_user", Ignored, |attr| attr.sample_regs_user = 1),
        ("sample_stack_user", Ignored, |attr| attr.sample_stack_user = 8),
        ("clock_id", Ignored, |attr| attr.clock_id = 1),
        ("sample_regs_intr", Ignored, |attr| attr.sample_regs_intr = 1),
        ("aux_watermark", Ignored, |attr| attr.aux_watermark = 8),
        ("sample_max_stack", Ignored, |attr| attr.sample_max_stack = 3),
        ("sig_data", Ignored, |attr| attr.sig_data = 1),
    ];

    fn base() -> Attr {
        Attr { kind: EventType(8), config: 6, config1: 2, bp_type: 2, flags: AttrFlags::INHERIT, ..Attr::default() }
    }

    fn holds(role: Role, one: &Attr, other: &Attr) -> bool {
        let (one, other) = (canonical(one), canonical(other));
        match role {
            Asked => one.is_some() && other.is_some() && one != other,
            Ignored => one.is_some() && one == other,
            Alone => one.is_some() && other.is_none(),
        }
    }

    #[test]
    fn each_field_does_what_the_table_says() {
        for (name, role, change) in FIELDS {
            let mut other = base();
            change(&mut other);
            assert!(holds(role, &base(), &other), "{name} is not {role:?}");
        }
    }

    #[test]
    fn each_flag_has_one_role_and_does_what_it_says() {
        assert_eq!(ASKED | IGNORED | ALONE, AttrFlags::all());
        assert!((ASKED & IGNORED | IGNORED & ALONE | ASKED & ALONE).is_empty());
        for (name, flag) in AttrFlags::all().iter_names() {
            let role = role_of(flag).unwrap_or_else(|| panic!("{name} has no role"));
            let (without, with) = (base().flags - flag, base().flags | flag);
            let (without, with) = (Attr { flags: without, ..base() }, Attr { flags: with, ..base() });
            assert!(holds(role, &without, &with), "{name} is not {role:?}");
        }
        assert_eq!(role_of(AttrFlags::INHERIT | AttrFlags::PINNED), None);
    }

    /// Written apart from the sets above, so that no flag goes from one to another unseen.
    #[test]
    fn what_counts_something_else_is_asked_and_what_does_more_is_alone() {
        let asked = "INHERIT INHERIT_THREAD PINNED EXCLUSIVE EXCLUDE_USER EXCLUDE_KERNEL EXCLUDE_HV EXCLUDE_IDLE \
                     EXCLUDE_HOST EXCLUDE_GUEST REMOVE_ON_EXEC";
        let ignored = "DISABLED SAMPLE_ID_ALL EXCLUDE_CALLCHAIN_KERNEL EXCLUDE_CALLCHAIN_USER COMM_EXEC USE_CLOCKID \
                       WRITE_BACKWARD BUILD_ID DEFER_CALLCHAIN";
        let among = |names: &str, name| names.split_whitespace().any(|other| other == name);
        for (name, flag) in AttrFlags::all().iter_names() {
            let expected = match (among(asked, name), among(ignored, name)) {
                (true, _) => Asked,
                (_, true) => Ignored,
                _ => Alone,
            };
            assert_eq!(role_of(flag), Some(expected), "{name}");
        }
    }

    #[test]
    fn records_are_equal_only_where_everything_is_that_shapes_them() {
        let sampling = Sampling::Frequency(100);
        let base = Attr { sampling, flags: AttrFlags::DISABLED | AttrFlags::SAMPLE_ID_ALL, ..base() };
        let question = canonical_of_records(&base);
        assert!(question.is_some());
        let ignored = ["read_format", "wakeup"];
        let alone = ["aux_sample_size", "aux_action", "sig_data"];
        for (name, _, change) in FIELDS {
            let mut other = base;
            change(&mut other);
            match canonical_of_records(&other) {
                None => assert!(alone.contains(&name), "{name}"),
                other => assert_eq!(other == question, ignored.contains(&name), "{name}"),
            }
        }
        for (name, flag) in AttrFlags::all().iter_names() {
            let other = Attr { flags: base.flags ^ flag, ..base };
            match canonical_of_records(&other) {
                None => assert!(OWN_RECORDS.contains(flag), "{name}"),
                other => assert_eq!(other == question, flag == AttrFlags::DISABLED, "{name}"),
            }
        }
        for sample in [SampleFormat::READ, SampleFormat::AUX] {
            assert_eq!(canonical_of_records(&Attr { sample, ..base }), None);
        }
        assert!(canonical(&counting_part(&Attr { flags: AttrFlags::all(), ..base })).is_some());
    }

    #[test]
    fn a_canonical_attribute_is_its_own_question() {
        let asked: Vec<_> = FIELDS.iter().filter(|(_, role, _)| *role != Alone).collect();
        for (_, _, change) in asked {
            let mut attr = base();
            change(&mut attr);
            let question = canonical(&attr);
            assert_eq!(question.as_ref().and_then(canonical), question);
        }
    }
}
