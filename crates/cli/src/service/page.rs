//! The state of the service as a page.
//!
//! **Invariant:** a pure function from what the service said to text. What is missing there is left out here.

use crate::say::visible;
use crate::style::{Ink, Style};
use serde_json::Value;
use std::fmt::Write as _;

/// Questions that are shown; the rest is a number.
const MOST_LINES: usize = 40;

/// The whole page.
pub(crate) fn page(status: &Value, style: Style) -> String {
    let mut page = Page { out: String::new(), style };
    page.head(status);
    page.clients(status);
    page.questions(status);
    page.counters(status);
    page.out
}

struct Page {
    out: String,
    style: Style,
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

impl Page {
    fn paint(&mut self, ink: Ink, text: &str) {
        self.style.paint(&mut self.out, ink, text);
    }

    fn line(&mut self, label: &str, text: &str) {
        self.paint(Ink::Faint, &format!("{label:>12}  "));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn title(&mut self, text: &str) {
        self.out.push('\n');
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
        let events = &status["events"];
        let (asked, kernel) = (number(&events["asked"]), number(&events["kernel"]));
        self.line("events", &format!("{asked} asked for, {kernel} open in the kernel"));
        let saved = &status["saved"];
        let (files, bytes) = (number(&saved["files"]), number(&saved["kernel_bytes"]));
        self.line("saved", &format!("{files} files, {} of kernel memory ({})", size(bytes), words(&saved["how"])));
        let turns = match service["turns"].as_str() {
            Some("engine") => "all CPUs in step",
            _ => "by the kernel, CPU by CPU",
        };
        self.line("turns", turns);
        let since = &status["since_start"];
        self.line(
            "since start",
            &format!(
                "{} clients, {} requests ({} refused), {} events, {} cut off",
                number(&since["clients"]),
                number(&since["requests"]),
                number(&since["refused"]),
                number(&since["opened"]),
                number(&since["cut_off"]),
            ),
        );
    }

    fn clients(&mut self, status: &Value) {
        let clients = &status["clients"];
        self.title(&format!("clients: {}", number(&clients["connected"])));
        let rows: Vec<[String; 6]> = list(&clients["list"])
            .iter()
            .map(|client| {
                [
                    number(&client["id"]).to_string(),
                    number(&client["user"]).to_string(),
                    client["process"].as_i64().unwrap_or_default().to_string(),
                    words(&client["command"]),
                    number(&client["events"]).to_string(),
                    asks(client),
                ]
            })
            .collect();
        self.table(
            ["client", "user", "process", "command", "events", "asks"],
            [true, true, true, false, true, false],
            &rows,
        );
        let hidden = number(&clients["hidden"]);
        if hidden > 0 {
            self.paint(Ink::Faint, &format!("  and {hidden} of other users\n"));
        }
    }

    fn questions(&mut self, status: &Value) {
        let questions = &status["questions"];
        let (masters, views) = (number(&questions["masters"]), number(&questions["views"]));
        self.title(&format!("questions: {masters}, asked {views} times"));
        let rows: Vec<[String; 5]> = list(&questions["list"])
            .iter()
            .map(|question| {
                let events: Vec<_> = list(&question["events"]).iter().map(|event| words(&event["event"])).collect();
                let ran = list(&question["events"]).iter().filter_map(|event| event["ran"].as_f64());
                let ran = ran.fold(None, |least: Option<f64>, ran| Some(least.map_or(ran, |least| least.min(ran))));
                let ran = ran.map_or("-".to_owned(), |ran| format!("{:.0} %", ran * 100.0));
                let times = number(&question["views"]).to_string();
                [events.join(", "), words(&question["of"]), times, ran, words(&question["for"])]
            })
            .collect();
        self.table(["events", "of", "asked", "ran", "for"], [false, false, true, true, false], &rows);
        let mut told: Vec<String> = Vec::new();
        for event in list(&questions["list"]).iter().flat_map(|question| list(&question["events"])) {
            if let Some(why) = event["why"].as_str() {
                let text = format!("{}: {}", words(&event["event"]), visible(why));
                if !told.contains(&text) && told.len() < MOST_LINES {
                    told.push(text);
                }
            }
        }
        for text in told {
            self.paint(Ink::Notice, &format!("  {text}\n"));
        }
    }

    fn counters(&mut self, status: &Value) {
        let counters = list(&status["counters"]);
        if !counters.is_empty() {
            self.title("counters in use");
        }
        let room = |pmu: &str| {
            let rooms = list(&status["rooms"]).iter();
            rooms.clone().find(|room| room["pmu"] == pmu).map(|room| number(&room["limit"]))
        };
        let rows: Vec<[String; 5]> = counters
            .iter()
            .map(|line| {
                let place = line["cpu"].as_u64().map_or("tasks".to_owned(), |cpu| format!("CPU {cpu}"));
                let (pmu, used) = (words(&line["pmu"]), number(&line["in_use"]));
                let free = room(&pmu).map_or("-".to_owned(), |most| most.saturating_sub(used).to_string());
                [pmu, place, used.to_string(), free, number(&line["multiplexed"]).to_string()]
            })
            .collect();
        self.table(["PMU", "on", "in use", "free", "take turns"], [false, false, true, true, true], &rows);
        for registers in list(&status["breakpoints"]) {
            let (used, total, cpu) =
                (number(&registers["in_use"]), number(&registers["total"]), number(&registers["cpu"]));
            let kind = words(&registers["kind"]);
            self.line(
                "breakpoints",
                &format!("{used} of {total} registers for {kind} in use, on CPU {cpu}, where most are"),
            );
        }
    }

    fn table<const N: usize>(&mut self, titles: [&str; N], right: [bool; N], rows: &[[String; N]]) {
        if rows.is_empty() {
            return;
        }
        let mut widths = titles.map(|title| title.chars().count());
        for row in rows.iter().take(MOST_LINES) {
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
            rows.iter().take(MOST_LINES).map(|row| line(&row.each_ref().map(String::as_str))).collect();
        self.paint(Ink::Faint, &head);
        self.out.push('\n');
        for line in lines {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        if rows.len() > MOST_LINES {
            self.paint(Ink::Faint, &format!("  and {} more (all with --json)\n", rows.len() - MOST_LINES));
        }
    }
}

fn asks(client: &Value) -> String {
    let mut text = String::new();
    for question in list(&client["questions"]).iter().take(3) {
        if !text.is_empty() {
            text.push_str("; ");
        }
        let times = match number(&question["times"]) {
            0 | 1 => String::new(),
            times => format!(" ({times} times)"),
        };
        // As above.
        let _ = write!(text, "{} of {}{times}", words(&question["events"]), words(&question["of"]));
    }
    let more = list(&client["questions"]).len().saturating_sub(3);
    if more > 0 {
        let _ = write!(text, "; and {more} more");
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{Color, Grouping};
    use serde_json::json;

    #[test]
    fn a_page_shows_who_asks_what() {
        let status = json!({
            "service": { "process": 7, "up_ms": 3_661_000, "socket": "/run/pmux/pmux.sock", "turns": "kernel" },
            "metrics": { "at": "http://127.0.0.1:9464/metrics", "cgroups_are_counted": "by a program" },
            "clients": { "connected": 2, "hidden": 1, "list": [{
                "id": 3, "user": 1000, "process": 42, "command": "ag\u{1b}ent", "events": 8,
                "questions": [{ "events": "cycles", "of": "CPU 0", "times": 2 }],
            }] },
            "events": { "asked": 8, "kernel": 2 },
            "saved": { "files": 6, "kernel_bytes": 16_200, "how": "8 less 2" },
            "since_start": { "clients": 5 },
            "questions": { "masters": 1, "views": 4, "list": [{
                "of": "CPU 0", "views": 4, "for": "everybody",
                "events": [{ "event": "cycles", "ran": 0.5, "why": "too few counters" }],
            }] },
            "counters": [{ "pmu": "cpu", "cpu": 0, "in_use": 2, "multiplexed": 1 }],
            "rooms": [{ "pmu": "cpu", "limit": 4 }],
            "breakpoints": [{ "kind": "data", "cpu": 1, "in_use": 1, "total": 4 }],
        });
        let text = page(&status, Style { color: Color::Off, width: None, grouping: Grouping::None });
        for part in [
            "process 7, up 1:01:01, /run/pmux/pmux.sock",
            "metrics  http://127.0.0.1:9464/metrics; cgroups are counted by a program",
            "8 asked for, 2 open in the kernel",
            "6 files, 16.2 KB of kernel memory (8 less 2)",
            "ag\\u{1b}ent",
            "cycles of CPU 0 (2 times)",
            "and 1 of other users",
            "questions: 1, asked 4 times",
            "50 %",
            "cycles: too few counters",
            "1 of 4 registers for data in use, on CPU 1",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(text.lines().any(|line| line.split_whitespace().eq(["cpu", "CPU", "0", "2", "2", "1"])), "{text}");
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let text = page(&json!({}), Style { color: Color::Off, width: Some(40), grouping: Grouping::None });
        assert!(text.contains("clients: 0") && text.contains("questions: 0"), "{text}");
        let long = json!({ "questions": { "list": [{ "events": [{ "event": "e".repeat(99) }], "of": "x" }] } });
        let narrow = page(&long, Style { color: Color::Off, width: Some(40), grouping: Grouping::None });
        assert!(narrow.lines().any(|line| line.ends_with('…') && line.chars().count() == 40), "{narrow}");
    }
}
