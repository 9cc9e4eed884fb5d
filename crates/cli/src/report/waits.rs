//! `pmux report --locks` and `--wakers`: who waited for what, and who ended it.
//!
//! What it is: [`run`] reads all waits with who ended them ([`WaitLinks`]), adds them up by lock ([`by_lock`]) or by pair ([`by_pair`]), and
//! prints a table, or JSON.
//!
//! | field | what |
//! |---|---|
//! | `locks` | each with `address` (`null` for those of the kernel, and where it was not recorded), `symbol` and `offset` (of a variable of a program, else `null`), `pid`, `comm`; `waits`, `total_ns`, `longest_ns` (of short waits only `total_ns` is known, the others are 0); `waiters` and `wakers`, each with `comm`, `function` and these sums |
//! | `wakers` | pairs: `waiter` and `waker` (`comm`, `function`), `kind` (what was waited for), and the sums |
//! | `lost`, `notes` | as in the report |
//!
//! **Invariant:** what an interrupt has ended is not said of the thread that ran then.

use super::{json, missing, share, written};
use crate::failure::{Failure, failed};
use crate::input::{self, OpenedInput};
use crate::options::reading::ReportOptions;
use crate::picture;
use crate::stderr::{visible, write_stderr};
use pmux::profile::{
    self, DataPlace, Interrupt, ModuleKind, Profile, Sink, StackId, Symbols, WaitEnd, WaitKind, WaitLinks, WaitSum,
};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::io::{self, Write};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitTable {
    Locks,
    Wakers,
}

/// A thread by its name, and where it was. Without a function: an interrupt, or what is not known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Party {
    comm: String,
    function: String,
}

impl Party {
    fn text(&self) -> String {
        if self.function.is_empty() { self.comm.clone() } else { format!("{}: {}", self.comm, self.function) }
    }

    fn json(&self) -> Json {
        let function = (!self.function.is_empty()).then_some(&self.function);
        json!({ "comm": self.comm, "function": function })
    }
}

type Parties = HashMap<Party, WaitSum>;

#[derive(Default, Debug)]
struct LockRow {
    pid: i32,
    address: u64,
    place: Option<DataPlace>,
    comm: String,
    /// For how long its first thread has waited at once, as what the process is called.
    main_ns: u64,
    sum: WaitSum,
    waiters: Parties,
    wakers: Parties,
}

/// A thread that waited, for what, and what ended it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Pair {
    waiter: Party,
    kind: &'static str,
    waker: Party,
}

/// Libraries whose functions wait and wake for a program: it is the function that called them that tells something.
const FOR_OTHERS: [&str; 7] = ["libc.", "libc-", "libpthread", "ld-", "ld.so", "libstdc++", "[vdso]"];
/// Functions of the kernel that each waking goes through.
const WAKES: [&str; 12] = [
    "bpf_",
    "__bpf",
    "__traceiter_",
    "trace_call_bpf",
    "try_to_wake_up",
    "wake_",
    "__wake_",
    "default_wake_",
    "autoremove_wake_",
    "swake_up",
    "complete",
    "pollwake",
];

/// What stacks tell, each looked at once.
pub(super) struct Stacks<'a> {
    pub(super) profile: &'a Profile,
    symbols: &'a Symbols,
    known: HashMap<StackId, StackFacts>,
}

#[derive(Clone, Debug)]
pub(super) struct StackFacts {
    kind: &'static str,
    /// The function of the program that waits or wakes.
    pub(super) function: String,
    /// What stands for an interrupt, if one came in between.
    interrupt: Option<&'static str>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        Self { profile, symbols, known: HashMap::new() }
    }

    pub(super) fn facts(&mut self, stack: StackId) -> &StackFacts {
        let (profile, symbols) = (self.profile, self.symbols);
        self.known.entry(stack).or_insert_with(|| facts_of(profile, symbols, stack))
    }

    fn name(&self, name: profile::Name) -> String {
        visible(self.profile.names.get(name))
    }

    fn waiter(&mut self, end: WaitEnd) -> Party {
        Party { comm: self.name(end.comm), function: self.facts(end.stack).function.clone() }
    }

    fn waker(&mut self, end: Option<WaitEnd>) -> Party {
        let nothing = |text: &str| Party { comm: text.to_owned(), function: String::new() };
        let Some(end) = end else { return nothing("[unknown]") };
        match self.facts(end.stack).interrupt {
            Some(interrupt) => nothing(interrupt),
            None => self.waiter(end),
        }
    }
}

fn facts_of(profile: &Profile, symbols: &Symbols, stack: StackId) -> StackFacts {
    if profile.stacks.is_nowhere(stack) {
        // What was only added up.
        return StackFacts { kind: "[short waits]", function: String::new(), interrupt: None };
    }
    let (mut kernel, mut program, mut library, mut unknown) = (Vec::new(), None, None, None);
    for frame in profile.stacks.walk(stack) {
        let module = profile.modules.get(profile.stacks.frame(frame).module);
        // What was waited for, where that was put onto the stack.
        if module.kind == ModuleKind::Wait {
            continue;
        }
        let name = symbols.known_id_of(frame).map(|id| &*symbols.function(id).name).unwrap_or_default();
        if module.kind.is_kernel() {
            kernel.push(name);
            continue;
        }
        let short = profile.names.get(module.short);
        let is_for_others = FOR_OTHERS.iter().any(|begin| short.starts_with(begin));
        let shown = || if name.is_empty() { short.to_owned() } else { name.to_owned() };
        // What the kernel has made while it ran is in no module either.
        if matches!(module.kind, ModuleKind::Unknown) {
            unknown.get_or_insert_with(shown);
        } else if is_for_others {
            library.get_or_insert_with(shown);
        } else {
            program = Some(shown());
            break;
        }
    }
    let of_kernel =
        || kernel.iter().find(|name| !name.is_empty() && !WAKES.iter().any(|begin| name.starts_with(begin)));
    let function = program.or(library).or_else(|| of_kernel().map(|name| (*name).to_owned())).or(unknown);
    StackFacts {
        kind: WaitKind::of(&kernel).name(),
        function: visible(&function.unwrap_or_default()),
        interrupt: Interrupt::of(&kernel).map(Interrupt::name),
    }
}

fn by_lock(stacks: &mut Stacks<'_>, links: &WaitLinks) -> Vec<LockRow> {
    // Another program, after an exec, may have another one there.
    let mut locks: HashMap<(profile::ProcessId, u64, Option<DataPlace>), LockRow> = HashMap::new();
    for (link, sum) in links.rows() {
        if link.lock == 0 && stacks.facts(link.waiter.stack).kind != WaitKind::Lock.name() {
            continue;
        }
        let process = stacks.profile.tasks.thread(link.waiter.thread).process;
        let (waiter, waker) = (stacks.waiter(link.waiter), stacks.waker(link.waker));
        let row = locks.entry((process, link.lock, link.lock_place)).or_insert_with(|| {
            let facts = stacks.profile.tasks.process(process);
            let main = facts.main.map(|main| stacks.profile.tasks.thread(main));
            let name = main.map_or(link.waiter.comm, |main| main.name());
            LockRow {
                pid: facts.pid,
                address: link.lock,
                place: link.lock_place,
                comm: stacks.name(name),
                ..LockRow::default()
            }
        });
        // A process that changes its name is called as it was when it waited longest.
        let is_main = stacks.profile.tasks.process(process).main == Some(link.waiter.thread);
        if is_main && (sum.total_ns, &row.comm) > (row.main_ns, &waiter.comm) {
            (row.comm, row.main_ns) = (waiter.comm.clone(), sum.total_ns);
        }
        row.sum.add(*sum);
        row.waiters.entry(waiter).or_default().add(*sum);
        row.wakers.entry(waker).or_default().add(*sum);
    }
    let mut rows: Vec<LockRow> = locks.into_values().collect();
    pmux::order::sort_by_key(&mut rows, |row| (std::cmp::Reverse(row.sum.total_ns), row.pid, row.address, row.place));
    rows
}

fn by_pair(stacks: &mut Stacks<'_>, links: &WaitLinks) -> Vec<(Pair, WaitSum)> {
    let mut pairs: HashMap<Pair, WaitSum> = HashMap::new();
    for (link, sum) in links.rows() {
        let kind = stacks.facts(link.waiter.stack).kind;
        let pair = Pair { waiter: stacks.waiter(link.waiter), kind, waker: stacks.waker(link.waker) };
        pairs.entry(pair).or_default().add(*sum);
    }
    in_order(pairs)
}

/// Those that waited longest first.
pub(super) fn in_order<K: Ord>(sums: impl IntoIterator<Item = (K, WaitSum)>) -> Vec<(K, WaitSum)> {
    let mut list: Vec<_> = sums.into_iter().collect();
    pmux::order::sort_by(&mut list, |(one, of_one), (other, of_other)| {
        of_other.total_ns.cmp(&of_one.total_ns).then_with(|| one.cmp(other))
    });
    list
}

/// Reads a recording of waits; and what is wrong with it. `what` waits are samples of `event`, if the recording has some.
pub(super) fn read<S: Sink>(
    opened: OpenedInput,
    options: &ReportOptions,
    sink: &mut S,
    (has_waits, what, event): (fn(&Profile) -> bool, &str, &str),
) -> Result<(Profile, Vec<String>), Failure> {
    let OpenedInput { input, name, wrong, .. } = opened;
    let profile = profile::read(input::progress::on_stderr(input), sink);
    let profile = profile.map_err(|error| input::about(&name, &error))?;
    if !has_waits(&profile) {
        return Err(input::about(&name, &"it has no waits: record it with `pmux record --off-cpu`"));
    }
    if !options.part.wanted().has_event(event) {
        return Err(failed(format!("{what} are samples of {event}, and -e names other events")));
    }
    picture::has_event(&profile, &options.part.wanted()).map_err(|text| input::about(&name, &text))?;
    Ok((profile, wrong.into_iter().collect()))
}

/// Reads a recording, and prints the table.
pub(super) fn run(opened: OpenedInput, options: &ReportOptions) -> Result<(), Failure> {
    let table = if options.locks { WaitTable::Locks } else { WaitTable::Wakers };
    let mut links = WaitLinks::new(options.part.wanted());
    let (profile, mut notes) = read(opened, options, &mut links, (WaitLinks::has_waits, "waits", "offcpu-time"))?;
    let mut symbols = Symbols::new(&profile);
    symbols.resolve_all(&profile);
    let mut stacks = Stacks::new(&profile, &symbols);
    let least_percent = options.percent_limit.unwrap_or_default();
    let mut rows = Rows::default();
    match table {
        WaitTable::Locks => {
            let locks = by_lock(&mut stacks, &links);
            rows.take_locks(locks, least_percent, |place| symbols.variable_of(&profile, place));
        }
        WaitTable::Wakers => rows.take_pairs(by_pair(&mut stacks, &links), least_percent),
    }
    if !WaitLinks::has_wakers(&profile) {
        notes.push("it does not tell who ended waits: an older pmux has recorded it".to_owned());
    }
    notes.extend(missing::notes(&profile, symbols.notes()));
    let kind = if table == WaitTable::Locks { "locks" } else { "wakers" };
    printed(options, &profile, &notes, || json!({ kind: rows.json }), |out| rows.print(table, out))
}

/// Prints a report to standard output: for people, and the notes behind it; or as an object, with what was lost and the notes in it.
pub(super) fn printed(
    options: &ReportOptions,
    profile: &Profile,
    notes: &[String],
    object: impl FnOnce() -> Json,
    print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let printed = if options.json {
        let mut object = object();
        object["lost"] = json::losses(&profile.losses);
        object["notes"] = json!(notes);
        writeln!(out, "{object}")
    } else {
        print(&mut out)
    };
    written(printed.and_then(|()| out.flush()), "the report")?;
    if !options.json {
        notes.iter().for_each(|note| write_stderr(&format!("pmux: {note}")));
    }
    Ok(())
}

#[derive(Default)]
struct Rows {
    total: WaitSum,
    lines: Vec<Vec<String>>,
    json: Vec<Json>,
}

/// So many are named in a line.
const NAMED: usize = 2;

/// The first names, and how many more there are.
pub(super) fn first_of(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!("{more} more"));
    names.take(NAMED).chain(more).collect::<Vec<_>>().join(", ")
}

impl Rows {
    fn take_locks(
        &mut self,
        locks: Vec<LockRow>,
        least_percent: f64,
        mut variable: impl FnMut(DataPlace) -> Option<(String, u64)>,
    ) {
        locks.iter().for_each(|row| self.total.add(row.sum));
        for row in locks {
            let Some(numbers) = self.numbers(row.sum, least_percent) else { continue };
            let (waiters, wakers) = (in_order(row.waiters), in_order(row.wakers));
            let several = |parties: &[(Party, WaitSum)]| first_of(parties.iter().map(|(party, _)| party.text()));
            let address = (row.address != 0).then(|| format!("{:#x}", row.address));
            let symbol = row.place.filter(|_| row.address != 0).and_then(&mut variable);
            let symbol = symbol.map(|(name, offset)| (visible(&name), offset));
            let name = match &symbol {
                Some((name, 0)) => name.clone(),
                Some((name, offset)) => format!("{name}+{offset:#x}"),
                None => address.clone().unwrap_or_else(|| "unknown".to_owned()),
            };
            let lock = format!("{name} of {}/{}", row.comm, row.pid);
            let (symbol, offset) = symbol.unzip();
            let [total, share, waits, longest] = numbers;
            self.lines.push(vec![total, share, waits, longest, lock, several(&waiters), several(&wakers)]);
            let json_of = |(party, sum): &(Party, WaitSum)| with_sums(party.json(), *sum);
            let object = json!({
                "address": address, "symbol": symbol, "offset": offset, "pid": row.pid, "comm": row.comm,
                "waiters": waiters.iter().map(json_of).collect::<Vec<_>>(),
                "wakers": wakers.iter().map(json_of).collect::<Vec<_>>(),
            });
            self.json.push(with_sums(object, row.sum));
        }
    }

    fn take_pairs(&mut self, pairs: Vec<(Pair, WaitSum)>, least_percent: f64) {
        pairs.iter().for_each(|(_, sum)| self.total.add(*sum));
        for (pair, sum) in pairs {
            let Some([total, share, waits, longest]) = self.numbers(sum, least_percent) else { continue };
            let Pair { waiter, kind, waker } = pair;
            self.lines.push(vec![total, share, waits, longest, waiter.text(), kind.to_owned(), waker.text()]);
            let object = json!({ "waiter": waiter.json(), "kind": kind, "waker": waker.json() });
            self.json.push(with_sums(object, sum));
        }
    }

    /// The columns of numbers; `None` for less than is wanted.
    fn numbers(&self, sum: WaitSum, least_percent: f64) -> Option<[String; 4]> {
        let share = share(sum.total_ns, self.total.total_ns);
        let (waits, longest) = match sum.waits {
            0 => ("-".to_owned(), "-".to_owned()),
            waits => (waits.to_string(), milliseconds(sum.longest_ns)),
        };
        (share >= least_percent).then(|| [milliseconds(sum.total_ns), format!("{share:.2}%"), waits, longest])
    }

    fn print(&self, table: WaitTable, out: &mut dyn Write) -> io::Result<()> {
        let WaitSum { waits, total_ns, .. } = self.total;
        let (what, heading) = match table {
            WaitTable::Locks => (
                "for locks (a condition or a barrier is one, too), by the variable or the address of the futex",
                ["total ms", "share", "waits", "longest ms", "lock", "who waited", "who ended it"],
            ),
            WaitTable::Wakers => (
                "with who ended them",
                ["total ms", "share", "waits", "longest ms", "who waited", "for what", "who ended it"],
            ),
        };
        writeln!(out, "# {waits} waits of {} ms {what}\n#", milliseconds(total_ns))?;
        print_columns(out, &heading, &self.lines, 4)
    }
}

/// Milliseconds, to the microsecond.
pub(super) fn milliseconds(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

/// Prints lines below a heading; the first columns are numbers.
pub(super) fn print_columns(
    out: &mut dyn Write,
    heading: &[&str],
    lines: &[Vec<String>],
    numbers: usize,
) -> io::Result<()> {
    let heading: Vec<String> = heading.iter().map(|&head| head.to_owned()).collect();
    let all = || std::iter::once(&heading).chain(lines);
    let mut widths = vec![0; heading.len()];
    for line in all() {
        widths.iter_mut().zip(line).for_each(|(width, cell)| *width = crate::columns::width(cell).max(*width));
    }
    for (index, line) in all().enumerate() {
        let mut text = String::from(if index == 0 { "# " } else { "  " });
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let fill = " ".repeat(width.saturating_sub(crate::columns::width(cell)));
            let gap = if at == 0 { "" } else { "  " };
            text.push_str(&if at < numbers { format!("{gap}{fill}{cell}") } else { format!("{gap}{cell}{fill}") });
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

pub(super) fn with_sums(mut object: Json, sum: WaitSum) -> Json {
    object["waits"] = sum.waits.into();
    object["total_ns"] = sum.total_ns.into();
    object["longest_ns"] = sum.longest_ns.into();
    object
}
