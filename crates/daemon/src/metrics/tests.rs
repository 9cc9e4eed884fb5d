//! Requests, well and badly formed; and what samples become as text.

use super::collect::{RefusedEvent, Sample, Series};
use super::text::{Format, text};
use super::{Carried, Metrics, MetricsConfig, ends, spawn};
use crate::config::{Level, Listen};
use crate::http::{self, Access, Body, Get, MOST_BYTES, ParsedRequest, Status, answer, refusal};
use crate::log::Log;
use pmux::{BackendChoice, Count, Multiplexing, Nanos, Session};
use proptest::prelude::*;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

fn understand(bytes: &[u8]) -> ParsedRequest {
    http::understand(bytes, &Access::Everyone)
}

fn metrics(openmetrics: bool, body: Body) -> ParsedRequest {
    ParsedRequest::Get(Get { path: "/metrics".to_owned(), body, openmetrics })
}

#[test]
fn only_requests_for_this_host_are_answered() {
    let own = Access::Hosts(vec!["metrics.example".to_owned()]);
    let asked = |host: &str, access: &Access| {
        http::understand(format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes(), access)
    };
    let good = metrics(false, Body::Sent);
    let ours =
        "localhost LOCALHOST.:9464 a.localhost 127.0.0.1 127.0.0.1:9464 10.1.2.3:9 [::1] [::1]:9464 Metrics.Example:1";
    for host in ours.split(' ') {
        assert_eq!(asked(host, &own), good, "{host}");
    }
    let others = "evil.example evil.example:9464 localhost.evil.example notlocalhost 127.0.0.1.evil.example \
                  127.0.0.1@evil.example [::1].evil.example [evil] localhost:x";
    for host in others.split(' ').chain([""]) {
        assert_eq!(asked(host, &own), ParsedRequest::Invalid(Status::Misdirected), "{host}");
        assert_eq!(asked(host, &Access::Everyone), good, "{host}");
    }
    let bearer = Access::Bearer("AbCdEfGhIjKlMnOp+/==".to_owned());
    let authorized = |line: &str| {
        http::understand(format!("GET /metrics HTTP/1.1\r\nHost: any.example\r\n{line}\r\n").as_bytes(), &bearer)
    };
    for line in ["Authorization: Bearer AbCdEfGhIjKlMnOp+/==\r\n", "authorization:bearer  AbCdEfGhIjKlMnOp+/== \r\n"] {
        assert_eq!(authorized(line), good, "{line}");
    }
    for line in [
        "",
        "Authorization: \r\n",
        "Authorization: Bearer\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: AbCdEfGhIjKlMnOp+/==\r\n",
        "Authorization: Basic AbCdEfGhIjKlMnOp+/==\r\n",
        "Authorization: Bearer AbCdEfGhIjKlMnOp+/=\r\n",
        "Authorization: Bearer AbCdEfGhIjKlMnOp+/===\r\n",
        "Authorization: Bearer abCdEfGhIjKlMnOp+/==\r\n",
        "X-Authorization: Bearer AbCdEfGhIjKlMnOp+/==\r\n",
    ] {
        assert_eq!(authorized(line), ParsedRequest::Invalid(Status::Unauthorized), "{line}");
    }
    let twice = "Authorization: Bearer AbCdEfGhIjKlMnOp+/==\r\nAuthorization: Bearer x\r\n";
    assert_eq!(authorized(twice), ParsedRequest::Invalid(Status::BadRequest));
    let refused = String::from_utf8(refusal(Status::Unauthorized, Body::Sent)).unwrap();
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("\r\nWWW-Authenticate: Bearer\r\n"));
    let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(http::understand(twice.as_bytes(), &own), ParsedRequest::Invalid(Status::BadRequest));
}

#[test]
fn requests_are_understood_or_refused() {
    let good = |text: &str, openmetrics| {
        assert_eq!(understand(text.as_bytes()), metrics(openmetrics, Body::Sent), "{text:?}");
    };
    good("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", false);
    good("GET /metrics HTTP/1.0\n\n", false);
    good("GET /metrics?name=x HTTP/1.1\r\nContent-Length: 0\r\n\r\nmore", false);
    good("GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n", true);
    assert_eq!(understand(b"HEAD /metrics HTTP/1.1\r\n\r\n"), metrics(false, Body::LeftOut));
    for path in ["/", "/metricsx", "/a/../b%2f"] {
        let get = Get { path: path.to_owned(), body: Body::Sent, openmetrics: false };
        assert_eq!(understand(format!("GET {path}?x HTTP/1.1\r\n\r\n").as_bytes()), ParsedRequest::Get(get));
    }
    for text in ["", "G", "GET /metr", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
        assert_eq!(understand(text.as_bytes()), ParsedRequest::Incomplete, "{text:?}");
    }
    for (text, status) in [
        ("POST /metrics HTTP/1.1\r\n\r\n", Status::WrongMethod),
        ("GET /metrics HTTP/2.0\r\n\r\n", Status::BadRequest),
        ("GET  /metrics HTTP/1.1\r\n\r\n", Status::BadRequest),
        ("GET http://x/metrics HTTP/1.1\r\n\r\n", Status::BadRequest),
        ("GET /metrics\r\n\r\n", Status::BadRequest),
        ("\r\n\r\n", Status::BadRequest),
        ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", Status::BadRequest),
        ("GET /metrics HTTP/1.1\r\nbad name: x\r\n\r\n", Status::BadRequest),
        ("GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", Status::BadRequest),
        ("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", Status::BadRequest),
        ("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Status::BadRequest),
        ("\u{16}\u{3}\u{1}", Status::BadRequest),
        ("get /metrics", Status::BadRequest),
        ("AAAAAAAAAAAAAAAAAAAAAAAAA", Status::BadRequest),
    ] {
        assert_eq!(understand(text.as_bytes()), ParsedRequest::Invalid(status), "{text:?}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(MOST_BYTES));
    assert_eq!(understand(long.as_bytes()), ParsedRequest::Invalid(Status::BadRequest));
}

proptest! {
    #[test]
    fn no_bytes_do_any_harm(bytes: Vec<u8>, tail in "[ -~\r\n]{0,40}") {
        let _ = understand(&bytes);
        let text = format!("GET /metrics HTTP/1.1{tail}");
        // What was understood stays so, whatever follows.
        if let asked @ ParsedRequest::Get(_) = understand(text.as_bytes()) {
            prop_assert_eq!(understand(format!("{text}more").as_bytes()), asked);
        }
    }
}

#[test]
fn answers_say_how_long_they_are() {
    let text =
        String::from_utf8(answer(Status::Good, "text/plain", "X: y\r\n", "äb\n".as_bytes(), Body::Sent)).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\näb\n"), "{text}");
    assert!(text.contains("Content-Length: 4\r\nX: y\r\n") && text.contains("Connection: close\r\n"), "{text}");
    let head = String::from_utf8(answer(Status::Good, "text/plain", "", b"abc", Body::LeftOut)).unwrap();
    assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 3\r\n"), "{head}");
    assert!(String::from_utf8(refusal(Status::WrongMethod, Body::Sent)).unwrap().contains("Allow: GET, HEAD\r\n"));
}

fn sample() -> Sample {
    let count = |value, enabled, running| Count { value, enabled: Nanos(enabled), running: Nanos(running) };
    let series = |event: &str, cgroup: Option<(&str, u64)>, cpu| Series {
        event: event.to_owned(),
        cgroup: cgroup.map(|(name, inode)| (name.to_owned(), inode)),
        cpu,
    };
    let counts = [
        (series("cycles", None, Some(0)), count(u64::MAX, 2_000_000_000, 500_000_000)),
        (series("page-faults", None, Some(0)), count(5, 9, 9)),
        (series("cycles", Some(("/a \"b\"\\c", 7)), None), count(3, 8, 4)),
    ];
    Sample {
        counts: counts.into(),
        multiplexed: ["cycles".to_owned()].into(),
        refused: vec![RefusedEvent { event: "x".into(), scope: "cpus", reason: "it is\nnot there".into() }],
        way: Some(("bpf", "by a program".to_owned())),
        unattributed: [("cycles".to_owned(), 2)].into(),
        missed: [(1, (1_500_000_000, 2))].into(),
        kernel_events: (9, 2),
        ..Sample::default()
    }
}

#[test]
fn a_sample_becomes_text_in_both_formats() {
    let sample = Arc::new(sample());
    let old = text(&sample, Format::Prometheus);
    for line in [
        "# TYPE pmux_event_total counter\n",
        "pmux_event_total{event=\"cycles\",cpu=\"0\"} 18446744073709551615\n",
        "pmux_event_total{event=\"page-faults\",cpu=\"0\"} 5\n",
        "pmux_event_enabled_seconds_total{event=\"cycles\",cpu=\"0\"} 2.0\n",
        "pmux_event_running_seconds_total{event=\"cycles\",cpu=\"0\"} 0.5\n",
        "pmux_cgroup_event_total{event=\"cycles\",cgroup=\"/a \\\"b\\\"\\\\c\"} 3\n",
        "# TYPE pmux_event_refused_info gauge\n",
        "pmux_event_refused_info{event=\"x\",of=\"cpus\",reason=\"it is\\nnot there\"} 1\n",
        "# TYPE pmux_cgroup_counting_info gauge\npmux_cgroup_counting_info{way=\"bpf\",text=\"by a program\"} 1\n",
        "pmux_cpu_missed_seconds_total{cpu=\"1\"} 1.5\n",
        "pmux_cpu_gaps_total{cpu=\"1\"} 2\n",
        "pmux_cgroup_unattributed_total{event=\"cycles\"} 2\n",
        "# TYPE pmux_kernel_events gauge\npmux_kernel_events 7.0\n",
        "pmux_requests_total 0\n",
    ] {
        assert!(old.contains(line), "{line}\nis not in\n{old}");
    }
    // What always has its counter has no times.
    assert!(!old.contains("seconds_total{event=\"page-faults\"") && !old.contains("# EOF"), "{old}");
    let new = text(&sample, Format::OpenMetrics);
    assert!(new.contains("# TYPE pmux_event counter\npmux_event_total{"), "{new}");
    assert!(new.contains("# TYPE pmux_build info\n") && new.ends_with("# EOF\n"), "{new}");
    let samples =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(samples(&old), samples(&new));
}

#[test]
fn events_have_the_names_of_node_exporter_where_they_mean_the_same() {
    assert!(!text(&Arc::new(sample()), Format::Prometheus).contains("node_perf_"));
    let with_names = Sample { node_exporter_names: true, ..sample() };
    let text = text(&Arc::new(with_names), Format::Prometheus);
    assert!(
        text.contains("# TYPE node_perf_page_faults_total counter\nnode_perf_page_faults_total{cpu=\"0\"} 5\n"),
        "{text}"
    );
    assert!(
        !text.contains("node_perf_cpucycles"),
        "its counter was another's meanwhile, of which node_exporter says nothing"
    );
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_there_are() {
    let text = text(&Arc::new(sample()), Format::Prometheus);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/grafana");
    let mut named = 0;
    for file in ["pmux.json", "pmux.rules.yml", "pmux.rules.test.yml"] {
        let page = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        let words =
            page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("pmux_"));
        for word in words {
            assert!(text.contains(&format!("# TYPE {word} ")), "{file} names {word}, which there is not");
            named += 1;
        }
    }
    assert!(named > 30, "{named}");
}

/// A reload comes from the loop: it does not wait until the former thread has ended, and the new one does.
#[test]
fn a_restart_waits_for_no_thread() {
    const PATIENCE: Duration = Duration::from_secs(300);
    const CARRIED: u64 = 1_000_000_000_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let (path, again) = (folder.path().join("m.sock"), folder.path().join("again.sock"));
    let (go, may_end) = channel();
    let (shared, wake, _woken) = ends(Access::Everyone).unwrap();
    let busy = spawn(move || {
        may_end.recv_timeout(PATIENCE).unwrap();
        let clock = Series { event: "task-clock".to_owned(), cgroup: None, cpu: Some(0) };
        Carried::from([(clock, Count { value: CARRIED, enabled: Nanos(9), running: Nanos(9) })])
    });
    let mut metrics = Some(Metrics { shared, wake: Some(wake), thread: Some(busy.unwrap()) });
    let session = Session::with_backend(BackendChoice::Usage).unwrap();
    let log = Log::to_stderr(Level::Error);
    let (done, restarted) = channel();
    let (listens, to) = (path.clone(), again.clone());
    std::thread::spawn(move || {
        for listen in [Some(listens), None, Some(to)] {
            let (listen, events) = (listen.map(Listen::Unix), vec!["task-clock".to_owned()]);
            let config = MetricsConfig { listen, events, ..MetricsConfig::default() };
            metrics = Metrics::restart(metrics.take(), (config, Multiplexing::Kernel), &session, &log).unwrap();
        }
        done.send(metrics.unwrap())
    });
    let metrics = restarted.recv_timeout(PATIENCE).expect("the restart waits for the thread");
    assert!(metrics.known().is_none() && !path.exists() && !again.exists());
    go.send(()).unwrap();
    let until = std::time::Instant::now() + PATIENCE;
    while metrics.known().is_none() {
        assert!(std::time::Instant::now() < until, "the new thread never listens");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut stream = UnixStream::connect(&again).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.0\n\n").unwrap();
    let said = std::io::read_to_string(stream).unwrap();
    let value = said.lines().find_map(|line| line.strip_prefix("pmux_event_total{event=\"task-clock\",cpu=\"0\"} "));
    let value = value.and_then(|value| value.parse::<u64>().ok());
    assert!(value.is_some_and(|value| value >= CARRIED), "counts go on: {said}");
}
