//! Lines as `perf script` prints them.
//!
//! **Invariant:** columns are as wide as perf's; names come without control characters.

use super::fields::{Field, FieldSelection, Fields};
use super::frames::{Form, FrameTexts};
use super::{Out, Resolvers, WRITTEN_BYTES, branches, memory, registers};
use crate::options::reading::ScriptOptions;
use crate::stderr::visible;
use pmux::abi::SampleFormat;
use pmux::profile::records::{CommCause, Mmap, Mmap2, Record, SwitchDirection};
use pmux::profile::{Detail, EventInfo, Happening, ModuleKind, Profile, Sample, Sink};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// So many unknown frames are looked up at once at first, then twice as many each time, to the most.
const FIRST_FRAMES: usize = 1 << 11;
const MOST_FRAMES: usize = 1 << 15;
/// No more text waits than that, nor for longer.
const MOST_BYTES: usize = 1 << 23;
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(200);
/// Text with less than one unknown frame in so many bytes does not wait.
const FEW_IN_BYTES: usize = 1_000;

pub(super) struct Lines {
    options: ScriptOptions,
    asked: FieldSelection,
    pub(super) out: Out,
    pub(super) known: Option<Resolvers>,
    /// By event: its fields, and its name in its width.
    events: Vec<(Fields, String)>,
    frames: FrameTexts,
    /// So many unknown frames don't wait for more.
    enough_frames: usize,
    /// When text was written last.
    written: Instant,
    /// By name: without control characters.
    comms: Vec<Option<Box<str>>>,
}

impl Lines {
    pub(super) fn new(options: &ScriptOptions, asked: FieldSelection) -> Self {
        Self {
            options: options.clone(),
            asked,
            out: Out::new(),
            known: None,
            events: Vec::new(),
            frames: FrameTexts::new(!options.no_inline),
            enough_frames: FIRST_FRAMES,
            written: Instant::now(),
            comms: Vec::new(),
        }
    }

    /// Who, where and when.
    fn head(
        &mut self,
        profile: &Profile,
        fields: Fields,
        (comm, pid, tid): (pmux::profile::Name, i32, i32),
        (cpu, time_ns): (Option<u32>, u64),
        narrow: Narrow,
    ) {
        let out = &mut self.out.text;
        if fields.has(Field::Comm) {
            if self.comms.len() <= comm.index() {
                self.comms.resize(profile.names.len(), None);
            }
            let text = self.comms[comm.index()].get_or_insert_with(|| visible(profile.names.get(comm)).into());
            if narrow == Narrow::No {
                pad(out, 16, text.chars().count());
            }
            out.push_str(text);
            out.push(' ');
        }
        match (fields.has(Field::Pid), fields.has(Field::Tid)) {
            (true, true) => {
                signed(out, pid, 5);
                out.push('/');
                let from = out.len();
                signed(out, tid, 0);
                let used = out.len() - from;
                pad(out, 5, used);
            }
            (true, false) => signed(out, pid, 5),
            (false, true) => signed(out, tid, 5),
            (false, false) => {}
        }
        if fields.has(Field::Pid) || fields.has(Field::Tid) {
            out.push(' ');
        }
        if let Some(cpu) = cpu.filter(|_| fields.has(Field::Cpu)) {
            out.push('[');
            decimal(out, cpu.into(), 3, b'0');
            out.push_str("] ");
        }
        if fields.has(Field::Time) {
            decimal(out, time_ns / 1_000_000_000, 5, b' ');
            out.push('.');
            let rest = time_ns % 1_000_000_000;
            if self.options.ns {
                decimal(out, rest, 9, b'0');
            } else {
                decimal(out, rest / 1000, 6, b'0');
            }
            out.push_str(": ");
        }
    }

    fn prepare(&mut self, profile: &Profile) {
        if self.events.len() != profile.events.len() {
            let width = profile.events.iter().map(|event| event.name.len()).max().unwrap_or(0);
            let one = |event: &EventInfo| (self.asked.of(event), format!("{:>width$}: ", visible(&event.name)));
            self.events = profile.events.iter().map(one).collect();
        }
        self.known.get_or_insert_with(|| Resolvers::of(profile));
    }

    /// Writes if there is enough. Where many frames are not known yet, that is when so many can be looked up together.
    fn pass_on(&mut self, profile: &Profile) -> ControlFlow<()> {
        let bytes = self.out.text.len() + self.frames.missing_bytes();
        if bytes < WRITTEN_BYTES {
            return ControlFlow::Continue(());
        }
        let unknown = self.frames.unknown();
        let waits = unknown > bytes / FEW_IN_BYTES && unknown < self.enough_frames && bytes < MOST_BYTES;
        if waits && self.written.elapsed() < LONGEST_WAIT { ControlFlow::Continue(()) } else { self.write(profile) }
    }

    pub(super) fn write(&mut self, profile: &Profile) -> ControlFlow<()> {
        if self.frames.unknown() >= self.enough_frames {
            self.enough_frames = (self.enough_frames * 2).min(MOST_FRAMES);
        }
        let written = match &mut self.known {
            Some(known) => self.frames.write(profile, &mut known.symbols, &mut self.out),
            None => self.out.write(),
        };
        self.written = Instant::now();
        written
    }
}

/// Whether what is no sample is asked for.
pub(super) fn is_shown(options: &ScriptOptions, record: &Record<'_>) -> bool {
    match record {
        Record::Comm(_) | Record::Fork(_) | Record::Exit(_) => options.show_task_events,
        Record::Mmap(_) | Record::Mmap2(_) => options.show_mmap_events,
        Record::Switch(_) | Record::SwitchCpuWide(_) => options.show_switch_events,
        Record::Lost(_) | Record::LostSamples(_) => options.show_lost_events,
        _ => false,
    }
}

/// Whether a name is put into a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Narrow {
    No,
    Yes,
}

fn pad(out: &mut String, width: usize, used: usize) {
    const SPACES: &str = "                                ";
    out.push_str(&SPACES[..width.saturating_sub(used).min(SPACES.len())]);
}

/// A number, to the right of so many places, which are filled with `fill`. Lines have several of them: this is what they cost most.
fn decimal(out: &mut String, number: u64, width: usize, fill: u8) {
    // As many digits as the largest number has.
    let (mut digits, mut at, mut rest) = ([fill; 20], 20, number);
    while at == 20 || rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let from = at.min(20 - width.min(20));
    out.push_str(std::str::from_utf8(&digits[from..]).unwrap_or_default());
}

/// A number that may be negative, to the right of so many places.
fn signed(out: &mut String, number: i32, width: usize) {
    match u64::try_from(number) {
        Ok(number) => decimal(out, number, width, b' '),
        Err(_) => {
            let _ = write!(out, "{number:width$}");
        }
    }
}

/// Sixteen places with a number in hexadecimal.
pub(super) fn hex16(out: &mut String, number: u64) {
    let digits = (16 - number.leading_zeros() as usize / 4).max(1);
    pad(out, 16, digits);
    let digit = |place: usize| b"0123456789abcdef"[(number >> (4 * place)) as usize & 0xf];
    out.extend((0..digits).rev().map(|place| char::from(digit(place))));
}

impl Sink for Lines {
    fn wants(&self) -> Detail {
        Detail::Addresses
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        self.prepare(profile);
        let Some(fields) = self.events.get(sample.event).map(|(fields, _)| *fields) else {
            return ControlFlow::Continue(());
        };
        let event = &profile.events[sample.event];
        let has_chain = fields.has(Field::Ip) && fields.has(Field::Callchain) && !sample.addresses.is_empty();
        let thread = profile.tasks.thread(sample.thread);
        let who = (sample.comm, profile.tasks.process(thread.process).pid, thread.tid);
        let narrow = if fields.has(Field::Ip) && event.has_call_chains() { Narrow::Yes } else { Narrow::No };
        self.head(profile, fields, who, (sample.cpu, sample.time_ns), narrow);
        let Self { out, known, events, frames, .. } = self;
        let (out, Some(known)) = (&mut out.text, known) else { return ControlFlow::Continue(()) };
        if fields.has(Field::Period) {
            decimal(out, sample.period, 10, b' ');
            out.push(' ');
        }
        if fields.has(Field::Event) {
            out.push_str(&events[sample.event].1);
        }
        if let Some(raw) = sample.fields.raw.filter(|_| fields.has(Field::Trace) && event.is_tracepoint()) {
            match known.formats.get(event.attr.config) {
                Some(format) => {
                    let symbols = &mut known.symbols;
                    let from = out.len();
                    format.print(raw, &mut |address| symbols.kernel_function(profile, address), out);
                    // A byte of a control character may be among them.
                    if out[from..].bytes().any(|byte| !(0x20..0x7f).contains(&byte)) {
                        let shown = visible(&out[from..]);
                        out.truncate(from);
                        out.push_str(&shown);
                    }
                }
                None => out.push_str("[no description of this tracepoint]"),
            }
        }
        if let Some(address) = sample.fields.addr.filter(|_| fields.has(Field::Address)) {
            hex16(out, address);
        }
        if let Some(source) = sample.fields.data_src.filter(|_| fields.has(Field::DataSource)) {
            memory::push(source, out);
        }
        if let Some(weight) = weight(event, sample).filter(|_| fields.has(Field::Weight)) {
            decimal(out, weight, 16, b' ');
        }
        if has_chain {
            known.count_chain(sample.event, sample.stack);
            out.push('\n');
            for &(address, frame) in sample.addresses {
                let place = profile.stacks.frame(frame);
                let is_file = profile.modules.get(place.module).kind == ModuleKind::File;
                let shown = if is_file { place.address } else { address };
                frames.push(profile, (fields, Form::Call), (shown, frame), out);
            }
        } else if fields.has(Field::Ip)
            && let (Some(ip), Some(frame)) = (sample.fields.ip, profile.stacks.innermost(sample.stack))
        {
            out.push(' ');
            hex16(out, ip);
            frames.push(profile, (fields, Form::Own), (ip, frame), out);
        }
        let architecture = profile.about.architecture.as_deref().unwrap_or_default();
        let (attr, values) = (&event.attr, sample.fields);
        if let Some(regs) = values.regs_intr.as_ref().filter(|_| fields.has(Field::InterruptRegisters)) {
            registers::push(regs, attr.sample_regs_intr, architecture, out);
        }
        if let Some(regs) = values.regs_user.as_ref().filter(|_| fields.has(Field::UserRegisters)) {
            registers::push(regs, attr.sample_regs_user, architecture, out);
        }
        if let Some(address) = values.phys_addr.filter(|_| fields.has(Field::PhysicalAddress)) {
            hex16(out, address);
        }
        if let Some(stack) = values.branch_stack.as_ref().filter(|_| fields.has(Field::Branches)) {
            branches::print(stack, out);
        }
        if let Some(id) = values.cgroup.filter(|_| fields.has(Field::Cgroup)) {
            let path = profile.cgroups.get(&id).map(|path| visible(profile.names.get(*path)));
            let _ = write!(out, " {}", path.unwrap_or_else(|| id.to_string()));
        }
        out.push('\n');
        self.pass_on(profile)
    }

    fn happening(&mut self, profile: &Profile, happening: &Happening<'_>) -> ControlFlow<()> {
        if !is_shown(&self.options, happening.record) {
            return ControlFlow::Continue(());
        }
        self.prepare(profile);
        let who = match happening.thread {
            Some(thread) => {
                let thread = profile.tasks.thread(thread);
                (thread.name(), profile.tasks.process(thread.process).pid, thread.tid)
            }
            None => (pmux::profile::Name::default(), -1, -1),
        };
        let fields = self.asked.of(&profile.events[happening.event]);
        self.head(profile, fields, who, (happening.cpu, happening.time_ns), Narrow::No);
        let out = &mut self.out.text;
        let _ = match happening.record {
            Record::Comm(comm) => {
                let exec = if comm.cause == CommCause::Exec { " exec" } else { "" };
                let name = visible(&String::from_utf8_lossy(comm.comm));
                writeln!(out, "PERF_RECORD_COMM{exec}: {name}:{}/{}", comm.pid, comm.tid)
            }
            Record::Fork(task) | Record::Exit(task) => {
                let what = if matches!(happening.record, Record::Fork(_)) { "FORK" } else { "EXIT" };
                writeln!(out, "PERF_RECORD_{what}({}:{}):({}:{})", task.pid, task.tid, task.ppid, task.ptid)
            }
            Record::Mmap(Mmap { pid, tid, addr, len, pgoff, filename, .. })
            | Record::Mmap2(Mmap2 { pid, tid, addr, len, pgoff, filename, .. }) => {
                let what = if matches!(happening.record, Record::Mmap(_)) { "MMAP" } else { "MMAP2" };
                let (pid, tid) = (pid.cast_signed(), tid.cast_signed());
                let name = visible(&String::from_utf8_lossy(filename));
                writeln!(out, "PERF_RECORD_{what} {pid}/{tid}: [{addr:#x}({len:#x}) @ {pgoff:#x}]: {name}")
            }
            Record::Switch(way) => writeln!(out, "PERF_RECORD_SWITCH {}", way_text(*way)),
            Record::SwitchCpuWide(switch) => {
                let (pid, tid) = (switch.next_prev_pid, switch.next_prev_tid);
                let other = if switch.direction == SwitchDirection::In { "prev" } else { "next" };
                let way = way_text(switch.direction);
                writeln!(out, "PERF_RECORD_SWITCH_CPU_WIDE {way} {other} pid/tid: {pid:5}/{tid:<5}")
            }
            Record::Lost(lost) => writeln!(out, "PERF_RECORD_LOST lost {}", lost.lost),
            Record::LostSamples(lost) => writeln!(out, "PERF_RECORD_LOST_SAMPLES lost {}", lost.lost),
            _ => Ok(()),
        };
        self.pass_on(profile)
    }
}

/// The weight of a sample; of several parts the first one.
pub(super) fn weight(event: &EventInfo, sample: &Sample<'_>) -> Option<u64> {
    let weight = sample.fields.weight?;
    let has_parts = event.attr.sample.contains(SampleFormat::WEIGHT_STRUCT);
    Some(if has_parts { u64::from(weight.parts().0) } else { weight.0 })
}

fn way_text(way: SwitchDirection) -> &'static str {
    match way {
        SwitchDirection::In => "IN         ",
        SwitchDirection::Out => "OUT        ",
        SwitchDirection::OutPreempted => "OUT preempt",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_to_the_right() {
        let mut out = String::new();
        hex16(&mut out, 0xfdd6b);
        hex16(&mut out, u64::MAX);
        hex16(&mut out, 0);
        assert_eq!(out, "           fdd6bffffffffffffffff               0");
    }

    #[test]
    fn numbers_are_as_the_standard_library_has_them() {
        for number in [0, 7, 10, 99_999, 100_000, u64::MAX] {
            for width in [0, 1, 5, 10, 25] {
                let (mut out, mut zeros) = (String::new(), String::new());
                decimal(&mut out, number, width, b' ');
                decimal(&mut zeros, number, width, b'0');
                let width = width.min(20);
                assert_eq!((out, zeros), (format!("{number:width$}"), format!("{number:0width$}")));
            }
        }
        let mut out = String::new();
        signed(&mut out, -1, 5);
        signed(&mut out, i32::MAX, 5);
        assert_eq!(out, "   -12147483647");
    }
}
