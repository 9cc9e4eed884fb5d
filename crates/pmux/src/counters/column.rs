//! One event as it is being opened: who counts it, how it is asked for, and what became of that.
//!
//! **Invariant:** a column is tried in each way once: as asked, then in a milder way, then it is refused.

use crate::error::Error;
use crate::event::{Event, EventSource, LEVELS, ToolEvent};
use crate::refusal::Refusal;
use crate::session::{Backend, Session};
use crate::target::{Attribution, Inherit, Options};
use pmux_abi::attr::{Attr, AttrFlags, EventType, Sampling};
use pmux_engine::{OpenError, PmuId};
use pmux_linux::diagnose::{ReasonKind, TargetKind};
use pmux_linux::host::{KERNEL, USAGE, machine_usage_attr, usage_attr};
use pmux_linux::probe::cannot_be_inherited;
use pmux_linux::usage::UsageKind;

pub(crate) struct Column {
    pub(crate) event: Event,
    pub(crate) refusal: Option<Refusal>,
    pub(super) adjustment: Option<String>,
    /// How its group was broken up, where it led that.
    pub(super) regrouping: Option<String>,
    pub(crate) pmu: PmuId,
    pub(crate) attr: Attr,
    /// The PMU that counts it, unless it has to be taken from elsewhere.
    home: PmuId,
    /// The event and its attribute as asked for, and why that was refused, where it was changed since.
    asked: Option<Box<(Event, Attr, Refusal)>>,
}

impl Column {
    pub(super) fn new(session: &Session, event: &Event, options: Options, knows_tasks: bool) -> Self {
        let (event, attr) = (event.clone(), event.attr);
        let (refusal, adjustment, regrouping, asked) = (None, None, None, None);
        let mut column = Self { event, refusal, adjustment, regrouping, pmu: KERNEL, attr, home: KERNEL, asked };
        let usage = matches!(session.backend(), Backend::Usage { .. });
        match &column.event.source {
            EventSource::Tool(tool) => {
                column.pmu = USAGE;
                column.attr = usage_attr(match tool {
                    ToolEvent::DurationTime => UsageKind::DurationTime,
                    ToolEvent::UserTime => UsageKind::UserTime,
                    ToolEvent::SystemTime => UsageKind::SystemTime,
                    ToolEvent::MaxRss => UsageKind::MaxRss,
                });
            }
            EventSource::Kernel { .. } if usage => {
                column.pmu = USAGE;
                if UsageKind::for_attr(&column.event.attr).is_none() {
                    column.refusal = Some(Refusal::needs_kernel_events());
                }
            }
            EventSource::Kernel { .. } => {
                if knows_tasks && column.event.package_cpus().is_some() {
                    column.refusal = Some(Refusal::counts_packages());
                }
            }
        }
        let flags = &mut column.attr.flags;
        flags.set(AttrFlags::INHERIT, options.inherit == Inherit::Children && knows_tasks);
        flags.set(AttrFlags::ENABLE_ON_EXEC, options.start == crate::target::Start::OnExec);
        if options.attribution == Attribution::EachProcess && column.pmu == KERNEL {
            crate::tree::make_reporting(&mut column.attr);
        }
        column
    }

    pub(super) fn cannot_follow(&self) -> Option<String> {
        let inherits = self.pmu == KERNEL && self.attr.flags.contains(AttrFlags::INHERIT);
        inherits.then(|| cannot_be_inherited(&self.attr)).flatten()
    }

    /// Counts the task alone, because an event of its group can't follow children; a tree needs them.
    pub(super) fn count_alone(&mut self, why: &str, attribution: Attribution) {
        if attribution == Attribution::EachProcess {
            self.refusal.get_or_insert_with(|| Refusal::cannot_be_inherited(why));
        }
        self.attr.flags.remove(AttrFlags::INHERIT | AttrFlags::INHERIT_STAT);
        self.adjustment = Some(format!("without the threads and children that come later: {why}"));
    }

    /// Whether it is one number for everything, which must not be added up over threads or CPUs.
    pub(super) fn counts_once(&self) -> bool {
        matches!(self.event.source, EventSource::Tool(ToolEvent::DurationTime))
    }

    /// Where only the machine as a whole tells it, it is taken from there.
    pub(super) fn count_machine(&mut self) {
        if self.pmu == USAGE
            && self.refusal.is_none()
            && let Some(attr) = UsageKind::for_attr(&self.event.attr).and_then(machine_usage_attr)
        {
            self.attr = Attr { flags: self.attr.flags, ..attr };
            self.adjustment = Some("one number for the whole machine, from /proc/stat or /proc/vmstat".to_owned());
        }
    }

    pub(super) fn is_of_machine(&self) -> bool {
        let of_machine = UsageKind::for_attr(&self.event.attr).and_then(machine_usage_attr);
        of_machine.is_some_and(|attr| (attr.kind, attr.config) == (self.attr.kind, self.attr.config))
    }

    pub(crate) fn move_to(&mut self, pmu: PmuId) {
        (self.pmu, self.home) = (pmu, pmu);
        // The exec starts the events that are on then, not all that are open.
        self.attr.flags.remove(AttrFlags::ENABLE_ON_EXEC);
    }

    pub(crate) fn is_scarce(&self) -> bool {
        self.refusal.is_none() && !matches!(self.pmu, KERNEL | USAGE)
    }

    /// Takes an error of the engine: the event is tried again in another way, or refused, and the others go on.
    ///
    /// # Errors
    /// [`Error::Refused`] where there is no point in going on.
    pub(super) fn refuse(&mut self, session: &Session, error: OpenError, target: TargetKind) -> Result<(), Error> {
        let errno = error.errno();
        let mut refusal = match error {
            OpenError::NeverFits { pmu, events } => Refusal::too_few_counters(session, pmu, events),
            error => session.refusal(error, &self.attr, target),
        };
        if refusal.is_fatal() {
            return Err(Error::Refused(vec![refusal]));
        }
        if self.pmu == USAGE {
            refusal = Refusal::not_accounted(&self.event.name, target, errno);
        } else if refusal.kind == ReasonKind::NotPermitted && self.asked.is_none() && self.soften(target, &refusal) {
            return Ok(());
        }
        if let Some(asked) = self.asked.take() {
            let (event, attr, first) = *asked;
            if self.pmu == USAGE {
                // That there is no substitute says less than what stood in the way of the event itself.
                refusal = first;
            }
            (self.event, self.attr, self.adjustment, self.pmu) = (event, attr, None, self.home);
        }
        self.refusal = Some(refusal);
        Ok(())
    }

    /// Asks for less: what needs no rights. Answers whether there is such a way.
    fn soften(&mut self, target: TargetKind, refusal: &Refusal) -> bool {
        if !is_unrestricted(&self.event) {
            return false;
        }
        let asked = (self.event.clone(), self.attr, refusal.clone());
        if !only_in_kernel(&self.event.attr) {
            self.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
            self.event.attr.flags |= AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
            self.event.name.push_str(":u");
            self.adjustment = Some(format!("counts user mode only: {}", refusal.summary));
        } else if matches!(target, TargetKind::Task(_)) && UsageKind::for_attr(&self.event.attr).is_some() {
            self.pmu = USAGE;
            self.adjustment = Some(format!("taken from what the kernel accounts for anyway: {}", refusal.summary));
        } else {
            return false;
        }
        self.asked = Some(Box::new(asked));
        true
    }
}

/// Whether leaving something out is worth a try: the event counts user mode and kernel, and doesn't sample.
fn is_unrestricted(event: &Event) -> bool {
    matches!(event.source, EventSource::Kernel { .. })
        && !event.attr.flags.intersects(LEVELS)
        && event.attr.sampling == Sampling::None
        && event.package_cpus().is_none()
}

/// Whether it never happens in user mode: restricted to that, it would count 0.
fn only_in_kernel(attr: &Attr) -> bool {
    const SWITCHES: [u64; 3] = [3, 4, 11];
    attr.kind == EventType::TRACEPOINT || (attr.kind == EventType::SOFTWARE && SWITCHES.contains(&attr.config))
}
