//! What an interval had: rows by any key, with names as people know them, and what a row has inside, as often as it is looked at.
//!
//! Read first: [`Interval::rows`].

use crate::options::top::TopKey;
use crate::report::share;
use pmux::profile::WaitKind;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// So much is told of what is in a row.
const MOST_INSIDE: usize = 10;
/// And of those who have ended waits.
const MOST_WAKERS: usize = 3;
/// So many callers stand in a line.
const MOST_CALLERS: usize = 12;

/// A function, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) name: Arc<str>,
    pub(super) dso: Arc<str>,
    pub(super) is_kernel: bool,
    /// Whether it is in a program, a library or the kernel.
    pub(super) is_mapped: bool,
}

/// The number of the event that stands for waits.
pub(super) const WAITS: u16 = u16::MAX;

/// A sample of the interval, or a part of a wait.
#[derive(Clone, Default)]
pub(super) struct LiveSample {
    pub(super) event: u16,
    /// When, ns of the recording's clock.
    pub(super) time_ns: u64,
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// What the process and the thread are called.
    pub(super) names: [Arc<str>; 2],
    pub(super) cpu: u32,
    pub(super) period: u64,
    /// Of the functions of the interval, the innermost first.
    pub(super) stack: Range<usize>,
    /// What was waited for.
    pub(super) wait: Option<WaitKind>,
    /// Who has ended it: a thread by its name, or what interrupted one.
    pub(super) waker: Option<Arc<str>>,
    /// Whether the thread did nothing else in the interval.
    pub(super) is_idle: bool,
}

#[derive(Default)]
pub(super) struct Interval {
    pub(super) samples: Vec<LiveSample>,
    /// Places of functions in [`Interval::places`], stack by stack.
    pub(super) stacks: Vec<u32>,
    /// All functions that are known.
    pub(super) places: Arc<Vec<Place>>,
    pub(super) took: Duration,
    /// Samples that had no room here, and waits.
    pub(super) left_out: u64,
    pub(super) waits_left_out: u64,
    /// Paths of control groups by process, looked up when they are asked for.
    cgroups: HashMap<i32, Arc<str>>,
}

/// What is shown of an interval.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Choice {
    pub(super) key: TopKey,
    /// The place of the event, or [`WAITS`].
    pub(super) event: usize,
    /// Of waits, also those of threads that did nothing else.
    pub(super) shows_idle: bool,
    /// Rows whose text has this, in any case.
    pub(super) filter: String,
    pub(super) hides_kernel: bool,
    pub(super) hides_user: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) id: RowId,
    /// Process, thread or CPU; 0 for others.
    pub(super) number: i32,
    pub(super) name: String,
    /// Where it is: the program of a function, the process of a thread, the path of a control group.
    pub(super) place: String,
    pub(super) period: u64,
    pub(super) samples: u64,
    pub(super) is_kernel: bool,
    /// Of waits: how much of it was for what.
    pub(super) kinds: Vec<(WaitKind, u64)>,
}

/// What all samples of a row have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum RowId {
    /// What was waited for in it, its name and its program.
    Function(Option<WaitKind>, Arc<str>, Arc<str>),
    Task(i32),
    Named(Arc<str>),
    Cpu(u32),
}

/// What there was in all, of one event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Totals {
    pub(super) samples: u64,
    /// Of what was not idle.
    pub(super) busy_period: u64,
    /// Threads that did nothing but wait, and are not shown.
    pub(super) idle_threads: u64,
}

impl Interval {
    pub(super) fn put_stack(&mut self, functions: &[u32]) -> Range<usize> {
        let start = self.stacks.len();
        self.stacks.extend(functions);
        start..self.stacks.len()
    }

    fn stack(&self, sample: &LiveSample) -> impl Iterator<Item = &Place> {
        let ids = self.stacks.get(sample.stack.clone()).unwrap_or_default();
        ids.iter().filter_map(|&id| self.places.get(id as usize))
    }

    fn of_event(&self, event: usize) -> impl Iterator<Item = &LiveSample> {
        self.samples.iter().filter(move |sample| usize::from(sample.event) == event)
    }

    /// Where a thread waits in its program: the functions of the kernel in front of that say for what.
    fn waiting_at(&self, sample: &LiveSample) -> impl Iterator<Item = &Place> {
        self.stack(sample).skip_while(|place| place.is_kernel)
    }

    /// What there was in all, of what is chosen.
    pub(super) fn totals(&self, choice: &Choice) -> Totals {
        let mut totals = Totals::default();
        for sample in self.of_event(choice.event) {
            if sample.is_idle && !choice.shows_idle {
                totals.idle_threads += 1;
                continue;
            }
            totals.samples += 1;
            totals.busy_period += if sample.pid == 0 { 0 } else { sample.period };
        }
        totals
    }

    /// Looks up in which control groups the processes are, where that is asked for.
    pub(super) fn prepare(&mut self, choice: &Choice) {
        if choice.key == TopKey::Cgroup {
            for sample in &self.samples {
                self.cgroups.entry(sample.pid).or_insert_with(|| cgroup_of(sample.pid).into());
            }
        }
    }

    /// The row that a sample belongs to; `None` if it is hidden.
    fn row_id(&self, sample: &LiveSample, choice: &Choice) -> Option<RowId> {
        let innermost = self.stack(sample).next();
        let is_hidden = match innermost {
            _ if sample.wait.is_some() => sample.is_idle && !choice.shows_idle,
            Some(place) if place.is_kernel => choice.hides_kernel,
            _ => choice.hides_user,
        };
        // Who is idle does nothing.
        if is_hidden || sample.pid == 0 {
            return None;
        }
        let innermost = if sample.wait.is_some() { self.waiting_at(sample).next() } else { innermost };
        Some(match (choice.key, sample.wait) {
            (TopKey::Symbol, wait) => {
                let known = innermost.map(|place| (Arc::clone(&place.name), Arc::clone(&place.dso)));
                let (name, dso) = known.unwrap_or_else(|| (self.not_known(sample).into(), Arc::default()));
                RowId::Function(wait, name, dso)
            }
            (TopKey::Dso, _) => {
                RowId::Named(innermost.map_or_else(|| "[unknown]".into(), |place| Arc::clone(&place.dso)))
            }
            (TopKey::Process, _) => RowId::Task(sample.pid),
            (TopKey::Thread, _) => RowId::Task(sample.tid),
            (TopKey::Cgroup, _) => RowId::Named(self.cgroups.get(&sample.pid).cloned().unwrap_or_default()),
            // Where a thread was last says nothing of what it waits for.
            (TopKey::Cpu, Some(kind)) => RowId::Named(kind.name().into()),
            (TopKey::Cpu, None) => RowId::Cpu(sample.cpu),
        })
    }

    /// The rows, those with most first.
    pub(super) fn rows(&self, choice: &Choice) -> Vec<Row> {
        let mut found: HashMap<RowId, Row> = HashMap::new();
        for sample in self.of_event(choice.event) {
            let Some(id) = self.row_id(sample, choice) else { continue };
            let row = found.entry(id).or_insert_with_key(|id| self.new_row(id, sample, choice.key));
            row.period += sample.period;
            row.samples += 1;
            if let Some(kind) = sample.wait {
                match row.kinds.iter_mut().find(|(known, _)| *known == kind) {
                    Some((_, period)) => *period += sample.period,
                    None => row.kinds.push((kind, sample.period)),
                }
            }
        }
        found.values_mut().for_each(|row| row.kinds.sort_unstable_by_key(|&(_, period)| std::cmp::Reverse(period)));
        let wanted = choice.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let mut rows: Vec<Row> = found.into_values().filter(|row| has(&row.name) || has(&row.place)).collect();
        pmux::order::sort_by(&mut rows, |a, b| {
            b.period.cmp(&a.period).then_with(|| (&a.name, a.number).cmp(&(&b.name, b.number)))
        });
        rows
    }

    /// What stands for the function in which a thread runs or waits, where none is known.
    fn not_known(&self, sample: &LiveSample) -> &'static str {
        if sample.wait.is_some() && sample.stack.is_empty() { "(short waits)" } else { "[unknown]" }
    }

    fn new_row(&self, id: &RowId, sample: &LiveSample, key: TopKey) -> Row {
        let [process, thread] = &sample.names;
        let (number, name, place) = match id {
            RowId::Function(None, name, dso) => (0, name.to_string(), dso.to_string()),
            RowId::Function(Some(kind), name, dso) => (0, format!("{} {name}", kind.name()), dso.to_string()),
            RowId::Task(tid) if key == TopKey::Thread => {
                (*tid, thread.to_string(), format!("{} {process}", sample.pid))
            }
            RowId::Task(pid) => (*pid, process.to_string(), String::new()),
            RowId::Named(path) if key == TopKey::Cgroup => (0, container(path), path.to_string()),
            RowId::Named(name) => (0, name.to_string(), String::new()),
            RowId::Cpu(cpu) => (cpu.cast_signed(), format!("CPU {cpu}"), String::new()),
        };
        let is_code = matches!(key, TopKey::Symbol | TopKey::Dso);
        let is_kernel =
            is_code && sample.wait.is_none() && self.stack(sample).next().is_some_and(|place| place.is_kernel);
        Row { id: id.clone(), number, name, place, period: 0, samples: 0, is_kernel, kinds: Vec::new() }
    }

    /// What a row is made of: of a function who called it, of anything else its functions, and who has ended waits; each with its part of
    /// the row in per cent.
    pub(super) fn inside(&self, row: &Row, choice: &Choice) -> Vec<(f64, String)> {
        let mut parts: HashMap<String, u64> = HashMap::new();
        let mut wakers: HashMap<String, u64> = HashMap::new();
        let is_of_row = |sample: &&LiveSample| self.row_id(sample, choice).as_ref() == Some(&row.id);
        for sample in self.of_event(choice.event).filter(is_of_row) {
            let is_waiting = sample.wait.is_some();
            let mut stack = self.stack(sample).skip_while(|place| is_waiting && place.is_kernel);
            let text = if choice.key == TopKey::Symbol {
                let mut callers: Vec<_> = stack.skip(1).take(MOST_CALLERS).collect();
                // What lies in no program is no caller: without frame pointers, anything may stand where they would.
                let known = callers.iter().take_while(|place| place.is_mapped).count();
                let breaks = known < callers.len();
                callers.truncate(known);
                let names = callers.iter().map(|place| format!("< {}", place.name));
                names.chain(breaks.then(|| "< ?".to_owned())).collect::<Vec<_>>().join(" ")
            } else {
                let place = stack.next().map(|place| format!("{}  {}", place.name, place.dso));
                match sample.wait {
                    Some(kind) => format!("{} {}", kind.name(), place.as_deref().unwrap_or(self.not_known(sample))),
                    None => place.unwrap_or_default(),
                }
            };
            *parts.entry(text).or_default() += sample.period;
            if let Some(waker) = &sample.waker {
                *wakers.entry(format!("ended by {waker}")).or_default() += sample.period;
            }
        }
        let in_order = |parts: HashMap<String, u64>| {
            let mut parts: Vec<(String, u64)> = parts.into_iter().collect();
            pmux::order::sort_by(&mut parts, |a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            parts
        };
        let share = |period: u64| share(period, row.period);
        let named = |text: String| match (text.is_empty(), choice.key) {
            (false, _) => text,
            (true, TopKey::Symbol) => "(no caller is known)".to_owned(),
            (true, _) => "[unknown]".to_owned(),
        };
        let parts = in_order(parts).into_iter().take(MOST_INSIDE).map(|(text, period)| (share(period), named(text)));
        parts
            .chain(in_order(wakers).into_iter().take(MOST_WAKERS).map(|(text, period)| (share(period), text)))
            .collect()
    }
}

/// The path of the control group of a process: in the hierarchy of version 2, or the first that there is; empty if it has ended.
fn cgroup_of(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let unified = text.lines().find(|line| line.starts_with("0::")).and_then(path).filter(|path| path != "/");
    unified.or_else(|| text.lines().find_map(path)).unwrap_or_default()
}

/// What a control group is called: by the container and the pod that its path names, as runtimes do.
fn container(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = last.strip_suffix(".scope").or_else(|| last.strip_suffix(".service")).unwrap_or(last);
    let (runtime, id) = last.rsplit_once('-').unwrap_or(("container", last));
    let is_id = id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match path {
        "" => "(ended)".to_owned(),
        "/" => "/".to_owned(),
        _ if is_id => format!("{runtime} {}", &id[..12]),
        _ => last.to_owned(),
    };
    // `kubepods-burstable-pod<UID>.slice`, or `pod<UID>`; systemd writes underlines for dashes.
    let pod = path.split('/').find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let uid = part.rsplit_once("-pod").map_or_else(|| part.strip_prefix("pod"), |(_, uid)| Some(uid))?;
        (uid.len() >= 32).then(|| uid.replace('_', "-"))
    });
    pod.map_or(name.clone(), |pod| format!("pod {pod} {name}"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn place(name: &str, is_kernel: bool) -> Place {
        let dso = if is_kernel { "[kernel.kallsyms]" } else { "shop" };
        Place { name: name.into(), dso: dso.into(), is_kernel, is_mapped: name != "0x6f6f" }
    }

    /// Samples as (process, thread, CPU, period, functions by number, the innermost first).
    fn interval(samples: &[(i32, i32, u32, u64, &[u32])]) -> Interval {
        let places =
            ["serve", "main", "read", "idle", "0x6f6f"].map(|name| place(name, matches!(name, "read" | "idle")));
        let took = Duration::from_nanos(100);
        let mut made = Interval { places: Arc::new(places.into()), took, ..Interval::default() };
        for &(pid, tid, cpu, period, stack) in samples {
            let names = [format!("p{pid}").into(), format!("t{tid}").into()];
            let stack = made.put_stack(stack);
            made.samples.push(LiveSample { pid, tid, names, cpu, period, stack, ..LiveSample::default() });
        }
        made
    }

    /// 100 ns of two CPUs.
    pub(in super::super) fn shop() -> Interval {
        interval(&[
            (7, 7, 0, 10, &[0, 1]),
            (7, 8, 1, 30, &[2, 0, 1]),
            (7, 8, 1, 20, &[2, 1]),
            (9, 9, 0, 5, &[0]),
            (0, 0, 1, 100, &[3]),
            (9, 9, 0, 1, &[]),
        ])
    }

    fn cells(rows: &[Row]) -> Vec<(&str, i32, u64, u64)> {
        rows.iter().map(|row| (row.name.as_str(), row.number, row.period, row.samples)).collect()
    }

    #[test]
    fn rows_by_each_key_have_what_was_not_idle() {
        let shop = shop();
        let by = |key| shop.rows(&Choice { key, ..Choice::default() });
        assert_eq!(cells(&by(TopKey::Symbol)), [("read", 0, 50, 2), ("serve", 0, 15, 2), ("[unknown]", 0, 1, 1)]);
        assert_eq!(cells(&by(TopKey::Process)), [("p7", 7, 60, 3), ("p9", 9, 6, 2)]);
        assert_eq!(cells(&by(TopKey::Thread)), [("t8", 8, 50, 2), ("t7", 7, 10, 1), ("t9", 9, 6, 2)]);
        assert_eq!(cells(&by(TopKey::Cpu)), [("CPU 1", 1, 50, 2), ("CPU 0", 0, 16, 3)]);
        let dsos = by(TopKey::Dso);
        assert_eq!(cells(&dsos), [("[kernel.kallsyms]", 0, 50, 2), ("shop", 0, 15, 2), ("[unknown]", 0, 1, 1)]);
        assert_eq!(shop.totals(&Choice::default()), Totals { samples: 6, busy_period: 66, idle_threads: 0 });
        assert_eq!(shop.totals(&Choice { event: 1, ..Choice::default() }), Totals::default());
    }

    #[test]
    fn a_row_tells_its_callers_or_its_functions() {
        let shop = shop();
        let choice = Choice::default();
        let rows = shop.rows(&choice);
        let inside = shop.inside(&rows[0], &choice);
        assert_eq!(inside, [(60.0, "< serve < main".to_owned()), (40.0, "< main".to_owned())]);
        assert_eq!(shop.inside(&rows[2], &choice), [(100.0, "(no caller is known)".to_owned())]);
        let broken = interval(&[(7, 7, 0, 1, &[0, 1, 4, 2]), (7, 7, 0, 1, &[0, 4])]);
        let inside = broken.inside(&broken.rows(&choice)[0], &choice);
        assert_eq!(inside, [(50.0, "< ?".to_owned()), (50.0, "< main < ?".to_owned())]);
        let choice = Choice { key: TopKey::Process, ..choice };
        let rows = shop.rows(&choice);
        assert_eq!(shop.inside(&rows[0], &choice)[0].1, "read  [kernel.kallsyms]");
    }

    #[test]
    fn a_row_of_waits_tells_who_ended_them() {
        let mut shop = shop();
        for (sample, waker) in shop.samples.iter_mut().zip([None, Some("holder"), Some("[timer]")]) {
            (sample.event, sample.wait, sample.waker) = (WAITS, Some(WaitKind::Lock), waker.map(Arc::from));
        }
        let choice = Choice { event: WAITS.into(), ..Choice::default() };
        let rows = shop.rows(&choice);
        assert_eq!(cells(&rows), [("[lock] serve", 0, 40, 2), ("[lock] main", 0, 20, 1)]);
        let expected = [(100.0, "< main".to_owned()), (75.0, "ended by holder".to_owned())];
        assert_eq!(shop.inside(&rows[0], &choice), expected);
        let choice = Choice { key: TopKey::Process, ..choice };
        let inside = shop.inside(&shop.rows(&choice)[0], &choice);
        let texts: Vec<&str> = inside.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["[lock] serve  shop", "[lock] main  shop", "ended by holder", "ended by [timer]"]);
    }

    #[test]
    fn what_is_hidden_or_filtered_is_not_there() {
        let shop = shop();
        let of = |choice: Choice| shop.rows(&choice).into_iter().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(of(Choice { hides_kernel: true, ..Choice::default() }), ["serve", "[unknown]"]);
        assert_eq!(of(Choice { hides_user: true, ..Choice::default() }), ["read"]);
        assert_eq!(of(Choice { filter: "SERV".to_owned(), ..Choice::default() }), ["serve"]);
        assert_eq!(of(Choice { filter: "kallsyms".to_owned(), ..Choice::default() }), ["read"]);
        assert!(of(Choice { event: 1, ..Choice::default() }).is_empty());
    }

    #[test]
    fn containers_and_pods_have_names() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pod = "kubepods-burstable-pod8dd1ee26_4bb5_4d1b_9b3c_6a4b40a1d0c5.slice";
        for (path, name) in [
            (format!("/system.slice/docker-{id}.scope"), "docker 0123456789ab"),
            (format!("/docker/{id}"), "container 0123456789ab"),
            (
                format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{id}.scope"),
                "pod 8dd1ee26-4bb5-4d1b-9b3c-6a4b40a1d0c5 cri-containerd 0123456789ab",
            ),
            ("/system.slice/ssh.service".to_owned(), "ssh"),
            ("/".to_owned(), "/"),
            (String::new(), "(ended)"),
        ] {
            assert_eq!(container(&path), name);
        }
    }
}
