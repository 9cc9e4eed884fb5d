//! The state of the service as a page.
//!
//! **Invariant:** a pure function from what the service said to text. What is missing there is left out here.

mod others;

use crate::stderr::visible;
use crate::style::{Color, Ink, Style};
pub(super) use others::survey;
use pmux::CpuList;
use pmux::units::bytes_text;
use serde_json::Value;
use std::fmt::Write as _;

/// Lines of a table that are shown; the rest is a number.
const MOST_LINES: usize = 40;
/// On which side of its column a cell stands.
const L: bool = false;
const R: bool = true;
/// A user who has used so much of a budget is near its limit.
const NEARLY_PERCENT: u128 = 80;

pub(crate) fn page(status: &Value, style: Style) -> String {
    page_of(status, style, MOST_LINES)
}

/// The page on a terminal of so many lines, in the place of what was there before: with as much of each table as there is room for.
pub(crate) fn screen(status: &Value, style: Style, lines: usize) -> String {
    let plain = Style { color: Color::Off, ..style };
    let columns = style.width.unwrap_or(usize::MAX).max(1);
    let taken = |page: &str| page.lines().map(|line| line.chars().count().div_ceil(columns).max(1)).sum::<usize>();
    let fits = |most: usize| taken(&page_of(status, plain, most)) <= lines;
    // Whatever has more room has longer tables.
    let all: Vec<usize> = (1..=MOST_LINES).collect();
    let most = all.partition_point(|&most| fits(most)).max(1);
    let page = page_of(status, style, most);
    // Each line over the one before, so that nothing flickers; and none behind the last one, so that nothing scrolls.
    let shown: Vec<_> = page.lines().take(lines.max(1)).map(|line| format!("{line}\u{1b}[K")).collect();
    format!("\u{1b}[H{}\u{1b}[J", shown.join("\n"))
}

fn page_of(status: &Value, style: Style, most_lines: usize) -> String {
    let mut page = StatusPage { out: String::new(), style, most_lines };
    let has_service = !status["service"].is_null() || status["others"].is_null();
    if has_service {
        page.head(status);
        page.clients(status);
        page.shared_counters(status);
        page.counters(status);
        page.records(status);
        page.recorders(status);
    }
    page.others(&status["others"]);
    page.out
}

struct StatusPage {
    out: String,
    style: Style,
    most_lines: usize,
}

/// Who holds a debug register, and with what.
pub(crate) fn holds(holder: &Value) -> String {
    let times = match number(&holder["times"]) {
        0 | 1 => String::new(),
        times => format!(" ({times} times)"),
    };
    let (command, event, of) = (words(&holder["command"]), words(&holder["event"]), words(&holder["of"]));
    let process = holder["process"].as_i64().unwrap_or_default();
    format!("{command} (process {process}, client {}) holds {event} of {of}{times}", number(&holder["client"]))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn words(value: &Value) -> String {
    visible(value.as_str().unwrap_or("?"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl StatusPage {
    fn paint(&mut self, ink: Ink, text: &str) {
        self.style.paint(&mut self.out, ink, text);
    }

    fn line(&mut self, label: &str, text: &str) {
        self.paint(Ink::Faint, &format!("{label:>12}  "));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn recorders(&mut self, status: &Value) {
        let recorders = list(&status["recorders"]);
        if recorders.is_empty() {
            return;
        }
        self.title("recorders");
        for recorder in recorders {
            let name = words(&recorder["name"]);
            match recorder["why"].as_str() {
                Some(why) => self.line(&name, &format!("can't start, and is tried again: {}", visible(why))),
                None if recorder["held"].is_null() => self.line(&name, &words(&recorder["state"])),
                None => self.line(&name, &visible(&crate::flight::in_a_line(recorder))),
            }
        }
    }

    fn title(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.paint(Ink::Strong, text);
        self.out.push('\n');
    }

    fn head(&mut self, status: &Value) {
        let service = &status["service"];
        let seconds = number(&service["up_ms"]) / 1000;
        let place = service["socket"].as_str().map_or("a socket of systemd's".to_owned(), visible);
        let up = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        self.line("service", &format!("process {}, up {up}, {place}", number(&service["process"])));
        let metrics = &status["metrics"];
        if let Some(place) = metrics["at"].as_str() {
            let way = metrics["cgroups_are_counted"].as_str().map(|way| format!("; cgroups are counted {way}"));
            self.line("metrics", &visible(&format!("{place}{}", way.unwrap_or_default())));
        }
        if let Some(place) = status["containers"]["at"].as_str() {
            self.line("containers", &visible(&format!("are taken in at {place}")));
        }
        let events = &status["events"];
        let (asked, kernel) = (number(&events["asked"]), number(&events["kernel"]));
        self.line("events", &format!("{asked} requested, {kernel} open in the kernel"));
        let saved = &status["saved"];
        let events = several(number(&saved["events"]), "kernel event");
        let memory = bytes_text(number(&saved["kernel_bytes"]));
        self.line("saved", &format!("{events}, {memory} of kernel memory ({})", words(&saved["how"])));
        let turns = match service["turns"].as_str() {
            Some("engine") => "all CPUs in step",
            _ => "by the kernel, CPU by CPU",
        };
        self.line("turns", turns);
        let since = &status["since_start"];
        let [clients, requests, opened] = [("clients", "client"), ("requests", "request"), ("opened", "event")]
            .map(|(key, what)| several(number(&since[key]), what));
        let (refused, cut_off) = (number(&since["refused"]), number(&since["cut_off"]));
        self.line("since start", &format!("{clients}, {requests} ({refused} refused), {opened}, {cut_off} cut off"));
        self.limits(status);
    }

    /// Which users have little or nothing left of their budgets.
    fn limits(&mut self, status: &Value) {
        let near = |user: &Value| Some((number(&user["user"]), near_limits(user, &status["budget"])?));
        let users: Vec<_> = list(&status["users"]).iter().filter_map(near).collect();
        for (user, parts) in users.iter().take(self.most_lines) {
            self.line("near limits", &format!("user {user}: {parts}"));
        }
        if let more @ 1.. = users.len().saturating_sub(self.most_lines) {
            self.line("", &format!("and {more} more users (all with --json)"));
        }
    }

    fn clients(&mut self, status: &Value) {
        let clients = &status["clients"];
        self.title(&format!("clients: {}", number(&clients["connected"])));
        let row = |client: &Value| {
            [
                number(&client["id"]).to_string(),
                number(&client["user"]).to_string(),
                client["process"].as_i64().unwrap_or_default().to_string(),
                words(&client["command"]),
                number(&client["events"]).to_string(),
                requests_of(client),
            ]
        };
        let rows: Vec<_> = list(&clients["list"]).iter().map(row).collect();
        self.table(["client", "user", "process", "command", "events", "requests"], [R, R, R, L, R, L], &rows);
        let hidden = number(&clients["hidden"]);
        if hidden > 0 {
            self.paint(Ink::Faint, &format!("  and {hidden} of other users\n"));
        }
    }

    fn shared_counters(&mut self, status: &Value) {
        let questions = &status["questions"];
        let (masters, views) = (number(&questions["masters"]), number(&questions["views"]));
        self.title(&format!("shared counters: {masters}, for {}", several(views, "request")));
        // Those that differ in their CPU are one line.
        let mut places: Places<QuestionUse> = Places::default();
        for question in list(&questions["list"]) {
            let events: Vec<_> = list(&question["events"]).iter().map(|event| words(&event["event"])).collect();
            let ran = list(&question["events"]).iter().filter_map(|event| event["ran"].as_f64());
            let shared = places.of(question, events.join(", "), words(&question["for"]).replace("everybody", "all"));
            shared.ran = ran.chain(shared.ran).reduce(f64::min);
            shared.times = shared.times.max(number(&question["views"]));
        }
        let rows: Vec<[String; 5]> = places
            .rows()
            .map(|(events, of, for_user, shared)| {
                let ran = shared.ran.map_or("-".to_owned(), |ran| format!("{:.0} %", ran * 100.0));
                [events, of, shared.times.to_string(), ran, for_user]
            })
            .collect();
        self.table(["events", "of", "requests", "ran", "for"], [L, L, R, R, L], &rows);
        let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
        for event in list(&questions["list"]).iter().flat_map(|question| list(&question["events"])) {
            let Some(why) = event["why"].as_str().map(visible) else { continue };
            let (names, name) = (entry(&mut reasons, why), words(&event["event"]));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for (why, events) in reasons {
            self.paint(Ink::Notice, &format!("  {}: {why}\n", some_of(&events)));
        }
    }

    fn counters(&mut self, status: &Value) {
        let counters = list(&status["counters"]);
        if !counters.is_empty() {
            self.title("counters in use");
        }
        let row = |line: &Value| {
            let place = line["cpu"].as_u64().map_or("tasks".to_owned(), |cpu| format!("CPU {cpu}"));
            let [wanted, used, turns] = ["wanted", "in_use", "multiplexed"].map(|name| number(&line[name]).to_string());
            let free = line["free"].as_u64().map_or("-".to_owned(), |free| free.to_string());
            [words(&line["pmu"]), place, wanted, used, free, turns]
        };
        let rows: Vec<_> = counters.iter().map(row).collect();
        self.table(["PMU", "on", "wanted", "in use", "free", "take turns"], [L, L, R, R, R, R], &rows);
        for registers in list(&status["breakpoints"]) {
            let [used, total, cpu] = ["in_use", "total", "cpu"].map(|name| number(&registers[name]));
            let kind = words(&registers["kind"]);
            let text = format!("{used} of {total} registers for {kind} in use, on CPU {cpu}, where most are");
            self.line("breakpoints", &text);
        }
        for holder in list(&status["breakpoint_holders"]).iter().take(self.most_lines) {
            self.line("", &holds(holder));
        }
    }

    /// Who reads records, and who was too slow.
    fn records(&mut self, status: &Value) {
        let records = &status["records"];
        let (subscribers, sources) = (number(&records["subscriptions"]), number(&records["kernel_events"]));
        if subscribers == 0 {
            return;
        }
        let events = several(sources, "event");
        self.title(&format!("subscriptions: {subscribers}, with {events} in the kernel"));
        let (bytes, most) = (number(&records["ring_bytes"]), number(&records["ring_bytes_most"]));
        let (taken, lost) = (number(&records["taken"]), number(&records["lost_in_kernel"]));
        self.line("rings", &format!("{} of at most {}", bytes_text(bytes), bytes_text(most)));
        self.line("records", &format!("{taken} taken from the kernel; {lost} were lost there"));
        let of_client = |client: &Value| {
            let id = number(&client["id"]).to_string();
            let row = |held: &Value| {
                [
                    id.clone(),
                    words(&held["events"]),
                    words(&held["of"]),
                    bytes_text(number(&held["ring_bytes"])),
                    number(&held["records"]).to_string(),
                    number(&held["lost"]).to_string(),
                ]
            };
            list(&client["subscriptions"]).iter().map(row).collect::<Vec<_>>()
        };
        let rows: Vec<_> = list(&status["clients"]["list"]).iter().flat_map(of_client).collect();
        self.table(["client", "records of", "where", "ring", "records", "lost"], [R, L, L, R, R, R], &rows);
    }

    fn table<const N: usize>(&mut self, titles: [&str; N], right: [bool; N], rows: &[[String; N]]) {
        if rows.is_empty() {
            return;
        }
        let mut widths = titles.map(|title| title.chars().count());
        for row in rows.iter().take(self.most_lines) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &[&str; N]| {
            let mut line = String::new();
            for ((cell, width), right) in cells.iter().zip(widths).zip(right) {
                // Writing into a string can't fail.
                let _ = if right { write!(line, "  {cell:>width$}") } else { write!(line, "  {cell:<width$}") };
            }
            let text = line.trim_end();
            // Long lists of events don't wrap.
            match self.style.width {
                Some(columns) if text.chars().count() > columns => {
                    text.chars().take(columns.max(1) - 1).chain(['…']).collect()
                }
                _ => text.to_owned(),
            }
        };
        let head = line(&titles);
        let lines: Vec<String> =
            rows.iter().take(self.most_lines).map(|row| line(&row.each_ref().map(String::as_str))).collect();
        self.paint(Ink::Faint, &head);
        self.out.push('\n');
        for line in lines {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        if let more @ 1.. = rows.len().saturating_sub(self.most_lines) {
            self.paint(Ink::Faint, &format!("  and {more} more (all with --json)\n"));
        }
    }
}

/// What belongs to a key; what is new comes last.
fn entry<K: PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K) -> &mut V {
    let at = list.iter().position(|(known, _)| *known == key).unwrap_or(list.len());
    if at == list.len() {
        list.push((key, V::default()));
    }
    &mut list[at].1
}

/// What is the same but for its CPU, together, with the CPUs; in the order in which it came.
#[derive(Default)]
struct Places<T> {
    lines: Vec<(PlaceLine, (Vec<u32>, T))>,
}

#[derive(PartialEq, Eq)]
struct PlaceLine {
    events: String,
    /// The place without its CPU.
    place: String,
    for_user: String,
    has_cpus: bool,
}

/// How a question is answered.
#[derive(Default)]
struct QuestionUse {
    times: u64,
    /// Where it ran least.
    ran: Option<f64>,
}

impl<T: Default> Places<T> {
    fn of(&mut self, question: &Value, events: String, for_user: String) -> &mut T {
        let of = words(&question["of"]);
        let cpu = question["cpu"].as_u64().and_then(|cpu| u32::try_from(cpu).ok());
        let place = cpu.and_then(|cpu| of.strip_suffix(&format!("CPU {cpu}"))).map(str::to_owned);
        let (place, cpu) = place.map_or((of, None), |place| (place, cpu));
        let line = PlaceLine { events, place, for_user, has_cpus: cpu.is_some() };
        let (cpus, value) = entry(&mut self.lines, line);
        cpus.extend(cpu);
        value
    }

    /// The events, the place, the users that it is for, and what was added up.
    fn rows(self) -> impl Iterator<Item = (String, String, String, T)> {
        self.lines.into_iter().map(|(line, (cpus, value))| {
            let PlaceLine { events, place, for_user, .. } = line;
            let cpus = match &cpus[..] {
                [] => String::new(),
                [one] => format!("CPU {one}"),
                _ => format!("CPUs {}", cpus.into_iter().collect::<CpuList>()),
            };
            (events, format!("{place}{cpus}"), for_user, value)
        })
    }
}

/// What a user has used up, or [`NEARLY_PERCENT`] of; `None` where that is nothing.
fn near_limits(user: &Value, budget: &Value) -> Option<String> {
    if user["bound"] != true {
        return None;
    }
    let closing = number(&user["closing"]);
    let parts = [("clients", 0), ("events", closing), ("files", closing), ("ring_bytes", 0)];
    let near = parts.into_iter().filter_map(|(key, more)| {
        let (held, most) = (number(&user[key]).saturating_add(more), budget[key].as_u64()?);
        let is_near = u128::from(held) * 100 >= u128::from(most) * NEARLY_PERCENT;
        is_near.then(|| match key {
            "ring_bytes" => format!("{} of {} of rings", bytes_text(held), bytes_text(most)),
            _ => format!("{held} of {most} {key}"),
        })
    });
    let waits = user["requests_wait"] == true;
    let requests =
        waits.then(|| format!("more than {} requests/s, which wait", number(&budget["requests_per_second"])));
    let all: Vec<_> = near.chain(requests).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn several(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A few names, and how many more there are.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn requests_of(client: &Value) -> String {
    let mut places: Places<u64> = Places::default();
    for question in list(&client["questions"]) {
        let times = places.of(question, words(&question["events"]), String::new());
        *times = number(&question["times"]).max(*times);
    }
    // And those of one place.
    let mut asked: Vec<((String, u64), Vec<String>)> = Vec::new();
    for (events, of, _, times) in places.rows() {
        entry(&mut asked, (of, times)).push(events);
    }
    let text = |((of, times), events): &((String, u64), Vec<String>)| {
        let times = if *times > 1 { format!(" ({times} times)") } else { String::new() };
        format!("{} of {of}{times}", some_of(events))
    };
    let texts: Vec<_> = asked.iter().map(text).collect();
    let mut text = texts.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("; ");
    if let more @ 1.. = texts.len().saturating_sub(3) {
        // Writing into a string can't fail.
        let _ = write!(text, "; and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::Grouping;
    use serde_json::json;

    #[test]
    fn a_screen_is_never_left() {
        let client = |id: u64| json!({ "id": id, "user": 0, "process": 1, "command": "agent", "events": 2 });
        let questions: Vec<_> =
            (0..90).map(|at| json!({ "of": format!("task {at}"), "views": 1, "events": [{ "event": "e" }] })).collect();
        let status = json!({
            "clients": { "connected": 1000, "list": (0..1000).map(client).collect::<Vec<_>>() },
            "questions": { "masters": 90, "views": 90, "list": questions },
        });
        for (columns, lines) in [(80, 24), (200, 60), (80, 5), (20, 1)] {
            let style = Style { color: Color::On, width: Some(columns), grouping: Grouping::None };
            let text = screen(&status, style, lines);
            assert!(text.lines().count() <= lines, "{columns}x{lines}:\n{text}");
            let fills = text.lines().count() + 6 > lines;
            assert!(fills, "{columns}x{lines}: as much as there is room for:\n{text}");
        }
        let text = screen(&status, Style { color: Color::Off, width: Some(80), grouping: Grouping::None }, 24);
        assert!(
            text.contains("since start") && text.contains("shared counters: 90") && text.contains(" more (all"),
            "{text}"
        );
        assert!(text.starts_with("\u{1b}[H") && text.ends_with("\u{1b}[J") && !text.contains("[2J"), "{text}");
    }

    #[test]
    fn a_page_shows_the_requests_of_each_client() {
        let status = json!({
            "service": { "process": 7, "up_ms": 3_661_000, "socket": "/run/pmux/pmux.sock", "turns": "kernel" },
            "metrics": { "at": "http://127.0.0.1:9464/metrics", "cgroups_are_counted": "by a program" },
            "clients": { "connected": 2, "hidden": 1, "list": [{
                "id": 3, "user": 1000, "process": 42, "command": "ag\u{1b}ent", "events": 8,
                "subscriptions": [
                    { "events": "cpu-clock", "of": "all CPUs", "ring_bytes": 8192, "records": 70, "lost": 5 },
                ],
                "questions": [
                    { "events": "cycles", "of": "CPU 0", "cpu": 0, "times": 2 },
                    { "events": "cycles", "of": "CPU 1", "cpu": 1, "times": 2 },
                    { "events": "faults", "of": "CPU 0", "cpu": 0, "times": 2 },
                    { "events": "faults", "of": "CPU 1", "cpu": 1, "times": 2 },
                    { "events": "faults", "of": "task 9 on CPU 1", "cpu": null, "times": 1 },
                ],
            }] },
            "events": { "asked": 8, "kernel": 2 },
            "saved": { "events": 6, "kernel_bytes": 16_200, "how": "8 less 2" },
            "since_start": { "clients": 5 },
            "records": { "subscriptions": 1, "kernel_events": 2, "ring_bytes": 8192, "ring_bytes_most": 1 << 30, "taken": 90, "lost_in_kernel": 4 },
            "questions": { "masters": 4, "views": 4, "list": [
                { "of": "CPU 0", "cpu": 0, "views": 4, "for": "everybody",
                  "events": [{ "event": "cycles", "ran": 0.5, "why": "too few counters" }] },
                { "of": "CPU 2", "cpu": 2, "views": 3, "for": "everybody",
                  "events": [{ "event": "cycles", "ran": 0.4, "why": "too few counters" }] },
                { "of": "CPU 2", "cpu": 2, "views": 3, "for": "user 7", "events": [{ "event": "cycles" }] },
                { "of": "cgroup /a on CPU 0", "cpu": 0, "views": 1, "for": "everybody",
                  "events": [{ "event": "r1", "why": "too few counters" }] },
            ] },
            "counters": [{ "pmu": "cpu", "cpu": 0, "wanted": 5, "in_use": 4, "free": 0, "multiplexed": 1 }],
            "breakpoint_holders": [{
                "client": 3, "process": 42, "command": "agent", "event": "mem:0x10/4:w", "of": "task 9", "times": 2,
            }],
            "breakpoints": [{ "kind": "data", "cpu": 1, "in_use": 1, "total": 4 }],
        });
        let text = page(&status, Style { color: Color::Off, width: None, grouping: Grouping::None });
        for part in [
            "process 7, up 1:01:01, /run/pmux/pmux.sock",
            "metrics  http://127.0.0.1:9464/metrics; cgroups are counted by a program",
            "8 requested, 2 open in the kernel",
            "6 kernel events, 15.8 KiB of kernel memory (8 less 2)",
            "ag\\u{1b}ent",
            "cycles, faults of CPUs 0-1 (2 times); faults of task 9 on CPU 1\n",
            "and 1 of other users",
            "shared counters: 4, for 4 requests",
            "cycles, r1: too few counters\n",
            "agent (process 42, client 3) holds mem:0x10/4:w of task 9 (2 times)\n",
            "1 of 4 registers for data in use, on CPU 1",
            "subscriptions: 1, with 2 events in the kernel",
            "8 KiB of at most 1 GiB",
            "90 taken from the kernel; 4 were lost there",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        for line in [
            "3 1000 42 ag\\u{1b}ent 8 cycles, faults of CPUs 0-1 (2 times); faults of task 9 on CPU 1",
            "cycles CPUs 0,2 4 40 % all",
            "cycles CPU 2 3 - user 7",
            "r1 cgroup /a on CPU 0 1 - all",
            "cpu CPU 0 5 4 0 1",
            "3 cpu-clock all CPUs 8 KiB 70 5",
        ] {
            assert!(text.lines().any(|said| said.split_whitespace().eq(line.split(' '))), "{line}:\n{text}");
        }
    }

    #[test]
    fn users_near_their_limits_are_named() {
        let user = |number: u32, clients: u32, events: u32, closing: u32| json!({ "user": number, "clients": clients, "events": events, "closing": closing, "files": 5, "ring_bytes": 0, "bound": true });
        let mut users = vec![user(1, 9, 79, 0), user(2, 10, 60, 20), user(3, 1, 0, 0), user(4, 1, 99, 0)];
        users[2]["ring_bytes"] = json!(4096);
        users[2]["requests_wait"] = json!(true);
        // Root has no budget.
        users[3]["bound"] = json!(false);
        let budget =
            json!({ "clients": 10, "events": 100, "files": 100, "ring_bytes": 4096, "requests_per_second": 7000 });
        let status = json!({ "users": users, "budget": budget });
        let text = page(&status, Style { color: Color::Off, width: None, grouping: Grouping::None });
        let near: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(" near limits  ")).collect();
        let expected = [
            "user 1: 9 of 10 clients",
            "user 2: 10 of 10 clients, 80 of 100 events",
            "user 3: 4 KiB of 4 KiB of rings, more than 7000 requests/s, which wait",
        ];
        assert_eq!(near, expected, "{text}");
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let text = page(&json!({}), Style { color: Color::Off, width: Some(40), grouping: Grouping::None });
        assert!(text.contains("clients: 0") && text.contains("shared counters: 0"), "{text}");
        let long = json!({ "questions": { "list": [{ "events": [{ "event": "e".repeat(99) }], "of": "x" }] } });
        let narrow = page(&long, Style { color: Color::Off, width: Some(40), grouping: Grouping::None });
        assert!(narrow.lines().any(|line| line.ends_with('…') && line.chars().count() == 40), "{narrow}");
    }
}
