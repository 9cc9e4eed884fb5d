//! Prometheus itself scrapes the service, knows the alerts, and answers what the dashboard of Grafana asks.
//!
//! What it is: `dist/grafana`, tried with the programs that it is made for; Debian's package `prometheus` has both.

use crate::common::service::Service;
use crate::common::{Killed, eventually, kernel, needs, skip_unless, start};
use crate::metrics;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn grafana() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/grafana").canonicalize().unwrap()
}

/// Whether the programs are there.
fn tools() -> bool {
    let is_there = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    needs("prometheus", "prometheus and promtool", is_there("prometheus") && is_there("promtool"))
}

/// The answer of an HTTP server to a request; a body is a form.
fn http(address: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let form = "Content-Type: application/x-www-form-urlencoded";
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\n{form}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

struct Prometheus {
    _child: Killed,
    address: String,
}

impl Prometheus {
    /// One that scrapes `target` each second, at a port that the machine chooses, with all its files in `folder`.
    fn of(target: &str, folder: &Path) -> Self {
        let rules = grafana().join("pmux.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n  \
             - job_name: pmux\n    static_configs: [{{targets: [\"{target}\"]}}]\n",
            rules.display()
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let log = std::fs::File::create(folder.join("prometheus.log")).unwrap();
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut prometheus = Self { _child: Killed(child), address: String::new() };
        prometheus.address = eventually("Prometheus listens", || {
            let log = std::fs::read_to_string(folder.join("prometheus.log")).unwrap();
            let place = log.split("\"Listening on\" address=").nth(1)?;
            Some(place.split_whitespace().next()?.to_owned())
        });
        eventually("Prometheus is ready", || {
            http(&prometheus.address, "/-/ready", "").filter(|answer| answer.contains("Ready")).map(drop)
        });
        prometheus
    }

    /// What a query gives now.
    fn query(&self, query: &str) -> Value {
        let encoded = query.bytes().fold("query=".to_owned(), |mut text, byte| {
            write!(text, "%{byte:02X}").unwrap();
            text
        });
        let answer = http(&self.address, "/api/v1/query", &encoded);
        let answer = answer.and_then(|answer| serde_json::from_str::<Value>(&answer).ok()).unwrap_or_default();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].clone()
    }
}

fn promtool(arguments: &[&str], input: &str) {
    let mut promtool = start("promtool", arguments).input(input);
    promtool.command.current_dir(grafana());
    let ran = promtool.run();
    assert!(ran.status.success(), "promtool {arguments:?}: {}{}", ran.text(), ran.err);
}

#[test]
fn prometheus_takes_the_numbers_and_the_dashboard_s_queries_have_answers() {
    skip_unless!(kernel() && tools());
    let service = Service::with(
        "[metrics]\nlisten = \"127.0.0.1:0\"\nevents = [\"page-faults\", \"context-switches\"]\nnode_exporter_names = true\n",
    );
    let target = metrics::address(&service).to_string();
    let text = http(&target, "/metrics", "").unwrap();
    promtool(&["check", "metrics"], &text);
    promtool(&["check", "rules", "pmux.rules.yml"], "");
    promtool(&["test", "rules", "pmux.rules.test.yml"], "");
    let names = |part: &str| text.lines().filter(|line| line.starts_with(part)).count();
    assert!(
        names("node_perf_page_faults_total{cpu=") > 0 && names("node_perf_context_switches_total{cpu=") > 0,
        "{text}"
    );

    let folder = tempfile::tempdir().unwrap();
    let prometheus = Prometheus::of(&target, folder.path());
    let is_empty = |result: &Value| result.as_array().is_none_or(Vec::is_empty);
    // A rate needs two scrapes.
    eventually("two scrapes", || (!is_empty(&prometheus.query("rate(pmux_event_total[30s])"))).then_some(()));
    let rules: Value = serde_json::from_str(&http(&prometheus.address, "/api/v1/rules", "").unwrap()).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert_eq!(rules.len(), 7, "{rules:?}");
    assert!(rules.iter().all(|rule| rule["lastError"].is_null()), "{rules:?}");

    let dashboard = std::fs::read_to_string(grafana().join("pmux.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let (mut answered, mut silent) = (0, Vec::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        for wanted in panel["targets"].as_array().into_iter().flatten() {
            let query = wanted["expr"].as_str().unwrap();
            let query =
                query.replace("$__rate_interval", "30s").replace("$instance", ".*").replace("$event", "page-faults");
            if is_empty(&prometheus.query(&query)) {
                silent.push(panel["title"].as_str().unwrap().to_owned());
            } else {
                answered += 1;
            }
        }
    }
    // What needs a PMU, turns, cgroups, or an event that is refused.
    silent.retain(|title| {
        !["Instructions per cycle", "Share of the time", "The ten cgroups", "Cgroups counted", "Refused events"]
            .iter()
            .any(|part| title.starts_with(part))
    });
    assert!(silent.is_empty() && answered >= 12, "{answered}: {silent:?}");
}
