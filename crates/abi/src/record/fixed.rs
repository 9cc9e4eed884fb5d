//! Records of a fixed size.
//!
//! **Invariant:** fields stand in the order of the bytes; what a newer kernel may append is not looked at.

use super::Misc;
use crate::bytes::{Reader, Writer};

/// Makes a record of integer fields, with its reading and writing from the one list of fields.
macro_rules! fixed_record {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $int:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $int,)*
        }

        impl $name {
            pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
                Some(Self { $($field: r.$int()?,)* })
            }

            pub(super) fn write(&self, w: &mut Writer<'_>) {
                $(w.$int(self.$field);)*
            }
        }
    };
}

fixed_record! {
    /// Records that found no room in the ring.
    Lost {
        /// The event whose ring it is.
        id: u64,
        /// How many were lost.
        lost: u64,
    }
}

fixed_record! {
    /// A task that starts or ends.
    Task {
        /// Its process.
        pid: u32,
        /// The parent's process.
        ppid: u32,
        /// The task.
        tid: u32,
        /// The parent's thread.
        ptid: u32,
        /// When, ns.
        time: u64,
    }
}

fixed_record! {
    /// An event is held back because it interrupts too often, or is let go again.
    Throttle {
        /// When, ns.
        time: u64,
        /// The event.
        id: u64,
        /// Its stream.
        stream_id: u64,
    }
}

fixed_record! {
    /// New data in the AUX area.
    Aux {
        /// Where it starts, in bytes since the area was set up.
        aux_offset: u64,
        /// Its bytes.
        aux_size: u64,
        /// `PERF_AUX_FLAG_*`, and in bits 8 to 15 the PMU's format.
        flags: u64,
    }
}

fixed_record! {
    /// An instruction trace begins.
    ItraceStart {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    }
}

fixed_record! {
    /// Samples that were lost.
    LostSamples {
        /// How many.
        lost: u64,
    }
}

fixed_record! {
    /// The hardware's id for the AUX output of an event.
    AuxOutputHwId {
        /// That id.
        hw_id: u64,
    }
}

/// Which way a context switch goes, seen from the task of the record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SwitchDirection {
    /// To the task.
    #[default]
    In,
    /// Away from the task, which waits.
    Out,
    /// Away from the task, which could have gone on.
    OutPreempted,
}

impl SwitchDirection {
    pub(super) const fn from_misc(misc: Misc) -> Self {
        match (misc.contains(Misc::SWITCH_OUT), misc.contains(Misc::SWITCH_OUT_PREEMPT)) {
            (false, _) => Self::In,
            (true, false) => Self::Out,
            (true, true) => Self::OutPreempted,
        }
    }

    pub(super) const fn to_misc(self, misc: Misc) -> Misc {
        let both = Misc::SWITCH_OUT.with(Misc::SWITCH_OUT_PREEMPT);
        match self {
            Self::In => misc.without(both),
            Self::Out => misc.without(both).with(Misc::SWITCH_OUT),
            Self::OutPreempted => misc.with(both),
        }
    }
}

/// A context switch, with the task on the other side of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SwitchCpuWide {
    /// Which way.
    pub direction: SwitchDirection,
    /// The process that comes next, or that was there before.
    pub next_prev_pid: u32,
    /// The thread that comes next, or that was there before.
    pub next_prev_tid: u32,
}

impl SwitchCpuWide {
    pub(super) fn read(r: &mut Reader<'_>, misc: Misc) -> Option<Self> {
        Some(Self { direction: SwitchDirection::from_misc(misc), next_prev_pid: r.u32()?, next_prev_tid: r.u32()? })
    }

    pub(super) fn write(&self, w: &mut Writer<'_>) {
        w.u32(self.next_prev_pid);
        w.u32(self.next_prev_tid);
    }
}
