//! Samples and happenings, for programs: an object a line, each with its `kind`.
//!
//! | kind | what |
//! |---|---|
//! | `sample` | `event`, `period`, `ip`, `addr`, `phys_addr`, `data_src`, `weight`, registers (`iregs`, `uregs`, by name), `brstack` (the newest first: `from`, `to`, `predicted`, `in_tx`, `abort`, `cycles`, `kind`), the `stack` (innermost first: `ip`, `symbol`, `offset`, `dso`; `inlined` has the functions that were inlined there), and of a tracepoint its `fields` and `text` |
//! | `comm`, `fork`, `exit`, `mmap`, `switch`, `lost` | as far as they are asked for |
//!
//! All have `time_ns`, `cpu`, `pid`, `tid` and `comm`.
//!
//! What it is: objects wait until the frames of many can be looked up together. Read first: [`JsonLines::write`].
//!
//! **Invariant:** a field that is not known is `null`, never 0 and never missing.

use super::lines::{LONGEST_WAIT, is_shown};
use super::{Out, Resolvers, branches, registers};
use crate::options::reading::ScriptOptions;
use pmux::profile::formats::FieldValue;
use pmux::profile::records::{CommCause, Mmap, Mmap2, Record, Regs, SwitchDirection};
use pmux::profile::{Detail, FrameId, Happening, Profile, Sample, Sink, ThreadId};
use serde_json::{Map, Value as Json, json};
use std::ops::ControlFlow;
use std::time::Instant;

/// No more objects wait than so many.
const MOST_OBJECTS: usize = 1 << 12;

/// An object that waits for its frames, with what stands for them in the call chain.
struct Waiting {
    object: Map<String, Json>,
    stack: Option<Vec<(u64, FrameId)>>,
}

pub(super) struct JsonLines {
    options: ScriptOptions,
    pub(super) out: Out,
    pub(super) known: Option<Resolvers>,
    waiting: Vec<Waiting>,
    /// When objects were written last.
    written: Instant,
}

impl JsonLines {
    pub(super) fn new(options: &ScriptOptions) -> Self {
        let (out, waiting, written) = (Out::new(), Vec::new(), Instant::now());
        Self { options: options.clone(), out, known: None, waiting, written }
    }

    fn put(&mut self, profile: &Profile, object: Waiting) -> ControlFlow<()> {
        self.waiting.push(object);
        if self.waiting.len() < MOST_OBJECTS && self.written.elapsed() < LONGEST_WAIT {
            return ControlFlow::Continue(());
        }
        self.write(profile)
    }

    /// Looks up the frames of all that waits, and writes it.
    pub(super) fn write(&mut self, profile: &Profile) -> ControlFlow<()> {
        if let Some(known) = &mut self.known {
            let places = self.waiting.iter().filter_map(|one| one.stack.as_ref()).flatten();
            let frames = places.map(|&(_, frame)| frame);
            known.symbols.resolve(profile, frames.clone());
            if !self.options.no_inline {
                known.symbols.resolve_lines(profile, frames);
            }
            for Waiting { object, stack } in &mut self.waiting {
                let Some(stack) = stack.take() else { continue };
                let frames = stack.into_iter().map(|place| frame(&self.options, profile, known, place));
                object.insert("stack".into(), frames.collect());
            }
        }
        for Waiting { object, .. } in self.waiting.drain(..) {
            self.out.text.push_str(&Json::Object(object).to_string());
            self.out.text.push('\n');
            self.out.pass_on()?;
        }
        self.written = Instant::now();
        ControlFlow::Continue(())
    }
}

fn head(kind: &str, profile: &Profile, thread: Option<ThreadId>, cpu: Option<u32>, time_ns: u64) -> Map<String, Json> {
    let thread = thread.map(|thread| profile.tasks.thread(thread));
    let mut object = Map::new();
    object.insert("kind".into(), json!(kind));
    object.insert("time_ns".into(), json!(time_ns));
    object.insert("cpu".into(), json!(cpu));
    object.insert("pid".into(), json!(thread.map(|thread| profile.tasks.process(thread.process).pid)));
    object.insert("tid".into(), json!(thread.map(|thread| thread.tid)));
    object.insert("comm".into(), json!(thread.map(|thread| profile.names.get(thread.name()))));
    object
}

fn frame(options: &ScriptOptions, profile: &Profile, known: &mut Resolvers, (address, frame): (u64, FrameId)) -> Json {
    let (id, offset) = known.symbols.id_of(profile, frame);
    let function = known.symbols.function(id);
    let is_known = !function.name.is_empty();
    let (name, module) = (function.name.clone(), function.module);
    let places = if options.no_inline { Default::default() } else { known.symbols.lines_of(profile, frame) };
    let inlined = places.split_last().map_or(&[][..], |(_, inlined)| inlined);
    let inlined = inlined.iter().map(|place| place.function.as_deref().unwrap_or("?"));
    json!({
        "ip": format!("{address:#x}"),
        "symbol": is_known.then_some(&*name),
        "offset": is_known.then_some(offset),
        "dso": profile.names.get(profile.modules.get(module).path).trim_end(),
        "inlined": inlined.collect::<Vec<_>>(),
    })
}

impl Sink for JsonLines {
    fn wants(&self) -> Detail {
        Detail::Addresses
    }

    fn sample(&mut self, profile: &Profile, sample: &Sample<'_>) -> ControlFlow<()> {
        let mut known = self.known.take().unwrap_or_else(|| Resolvers::of(profile));
        let event = &profile.events[sample.event];
        let mut object = head("sample", profile, Some(sample.thread), sample.cpu, sample.time_ns);
        object.insert("event".into(), json!(event.name));
        object.insert("period".into(), json!(sample.period));
        let hex = |address: Option<u64>| json!(address.map(|address| format!("{address:#x}")));
        object.insert("ip".into(), hex(sample.fields.ip));
        object.insert("addr".into(), hex(sample.fields.addr));
        object.insert("phys_addr".into(), hex(sample.fields.phys_addr));
        object.insert("data_src".into(), hex(sample.fields.data_src));
        object.insert("weight".into(), json!(super::lines::weight(event, sample)));
        let architecture = profile.about.architecture.as_deref().unwrap_or_default();
        let registers = |regs: Option<&Regs<'_>>, mask: u64| {
            let named = regs.map(|regs| registers::named(regs, mask, architecture));
            json!(named.map(|named| {
                named.map(|(name, value)| (name.into_owned(), hex(Some(value)))).collect::<Map<String, Json>>()
            }))
        };
        object.insert("iregs".into(), registers(sample.fields.regs_intr.as_ref(), event.attr.sample_regs_intr));
        object.insert("uregs".into(), registers(sample.fields.regs_user.as_ref(), event.attr.sample_regs_user));
        object.insert("brstack".into(), json!(sample.fields.branch_stack.as_ref().map(branches::to_json)));
        let stack = match (sample.addresses, sample.fields.ip, profile.stacks.innermost(sample.stack)) {
            ([], Some(ip), Some(met)) => vec![(ip, met)],
            (addresses, ..) => {
                known.count_chain(sample.event, sample.stack);
                addresses.to_vec()
            }
        };
        if event.is_tracepoint() {
            let format = known.formats.get(event.attr.config).zip(sample.fields.raw);
            let fields = format.map(|(format, raw)| {
                let value = |field: &pmux::profile::formats::Field| match field.value(raw) {
                    Some(FieldValue::Unsigned(value)) => json!(value),
                    Some(FieldValue::Signed(value)) => json!(value),
                    Some(FieldValue::Text(text)) => json!(text),
                    Some(FieldValue::Numbers(values)) => json!(values),
                    None => Json::Null,
                };
                Json::Object(format.own_fields().map(|field| (field.name.clone(), value(field))).collect())
            });
            let symbols = &mut known.symbols;
            let text = format.map(|(format, raw)| {
                let mut text = String::new();
                format.print(raw, &mut |address| symbols.kernel_function(profile, address), &mut text);
                text
            });
            object.insert("fields".into(), json!(fields));
            object.insert("text".into(), json!(text));
        }
        self.known = Some(known);
        self.put(profile, Waiting { object, stack: Some(stack) })
    }

    fn happening(&mut self, profile: &Profile, happening: &Happening<'_>) -> ControlFlow<()> {
        if !is_shown(&self.options, happening.record) {
            return ControlFlow::Continue(());
        }
        let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
        let way = |way: SwitchDirection| match way {
            SwitchDirection::In => json!("in"),
            SwitchDirection::Out => json!("out"),
            SwitchDirection::OutPreempted => json!("out_preempted"),
        };
        let (kind, more) = match happening.record {
            Record::Comm(comm) => {
                ("comm", vec![("name", text(comm.comm)), ("exec", json!(comm.cause == CommCause::Exec))])
            }
            Record::Fork(task) => ("fork", vec![("parent_pid", json!(task.ppid)), ("parent_tid", json!(task.ptid))]),
            Record::Exit(_) => ("exit", Vec::new()),
            Record::Mmap(Mmap { addr, len, pgoff, filename, .. })
            | Record::Mmap2(Mmap2 { addr, len, pgoff, filename, .. }) => {
                let (start, bytes) = (json!(addr), json!(len));
                ("mmap", vec![("start", start), ("bytes", bytes), ("offset", json!(pgoff)), ("path", text(filename))])
            }
            Record::Switch(direction) => ("switch", vec![("way", way(*direction))]),
            Record::SwitchCpuWide(switch) => {
                ("switch", vec![("way", way(switch.direction)), ("other_tid", json!(switch.next_prev_tid))])
            }
            Record::Lost(lost) => ("lost", vec![("records", json!(lost.lost))]),
            Record::LostSamples(lost) => ("lost", vec![("samples", json!(lost.lost))]),
            _ => return ControlFlow::Continue(()),
        };
        let mut object = head(kind, profile, happening.thread, happening.cpu, happening.time_ns);
        object.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        self.put(profile, Waiting { object, stack: None })
    }
}
