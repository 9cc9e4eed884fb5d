//! `/metrics` as Prometheus would ask for it, and as no client should.
//!
//! The text is read by a parser of its own, which accepts only what the format allows.

use crate::common;
use crate::common::service::{Service, faults, on_task, own};
use crate::common::{Cgroup, eventually, kernel, needs, new_file, root, skip_unless};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// One answer of a server: status, head, body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Asks with these bytes.
pub(crate) fn ask(mut stream: impl Read + Write, request: &[u8]) -> Answer {
    // It may have answered and gone before all of it was sent.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A service with these lines about metrics, at a port that the machine chooses.
fn serve(lines: &str) -> (Service, SocketAddr) {
    let service = Service::with(&format!("[metrics]\nlisten = \"127.0.0.1:0\"\n{lines}"));
    let address = address(&service);
    (service, address)
}

pub(crate) fn address(service: &Service) -> SocketAddr {
    eventually("a place for metrics", || {
        let log = service.log();
        let place = log.rsplit("metrics are at http://").next().filter(|_| log.contains("metrics are at http://"))?;
        place.split("/metrics").next()?.parse().ok()
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

type Labels = BTreeMap<String, String>;
/// Each sample by its name and labels.
type Samples = BTreeMap<(String, Labels), f64>;

/// Reads the older text format; panics for what a server must not write.
fn parse(text: &str) -> Samples {
    let mut samples = Samples::new();
    let (mut types, mut helps) = (BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    let mut done = BTreeSet::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').unwrap();
            assert!(!words.is_empty() && helps.insert(name.to_owned()), "{line}");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(matches!(kind, "counter" | "gauge"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(helps.contains(name) && types.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
            assert!(done.insert(std::mem::replace(&mut family, name.to_owned())), "families are in one piece: {line}");
            continue;
        }
        let at = line.find(['{', ' ']).unwrap();
        let name = &line[..at];
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(name.chars().all(is_letter) && name.starts_with("pmux_"), "{line}");
        assert_eq!(name, family, "a sample stands below its TYPE: {line}");
        let (labels, number) = labels(&line[at..]);
        let number: f64 = number.strip_prefix(' ').unwrap().parse().unwrap();
        assert!(number >= 0.0 && samples.insert((name.to_owned(), labels), number).is_none(), "{line}");
    }
    samples
}

/// The labels in braces, and what stands behind them.
fn labels(text: &str) -> (Labels, &str) {
    let mut found = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (found, text) };
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{text}");
        let (mut out, mut chars) = (String::new(), value.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => out.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} in {text}"),
                }),
                (_, c) => out.push(c),
            }
        };
        assert!(found.insert(name.to_owned(), out).is_none(), "{text}");
        rest = &value[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (found, rest.strip_prefix('}').unwrap()),
        }
    }
}

fn scrape(address: SocketAddr) -> Samples {
    let answer = ask(connect(address), GET);
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert!(answer.head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{}", answer.head);
    assert!(answer.head.contains(&format!("Content-Length: {}", answer.body.len())), "{}", answer.head);
    parse(&answer.body)
}

/// A fresh one: younger than what was asked before.
fn scrape_anew(address: SocketAddr) -> Samples {
    std::thread::sleep(Duration::from_millis(120));
    scrape(address)
}

/// The sum of all samples of a name with these labels.
fn value(samples: &Samples, name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
    let fits = |labels: &Labels| wanted.iter().all(|(key, value)| labels.get(*key).is_some_and(|found| found == value));
    let found = samples.iter().filter(|((found, labels), _)| found == name && fits(labels));
    found.map(|(_, value)| *value).reduce(|sum, value| sum + value)
}

#[test]
fn the_service_tells_how_it_is() {
    skip_unless!(kernel());
    let (service, address) = serve("");
    let before = scrape(address);
    assert_eq!(value(&before, "pmux_build_info", &[]), Some(1.0));
    assert_eq!(value(&before, "pmux_cgroup_counting_info", &[]), None);
    let _client = service.client();
    let after = eventually("a client is counted", || {
        let samples = scrape_anew(address);
        (value(&samples, "pmux_clients", &[]) == Some(1.0)).then_some(samples)
    });
    assert!(value(&after, "pmux_clients_connected_total", &[]) > value(&before, "pmux_clients_connected_total", &[]));
    assert!(value(&after, "pmux_requests_total", &[]) > Some(0.0));
    let status = service.status();
    assert!(status["metrics"]["at"].as_str().unwrap().contains(&address.to_string()), "{status}");
}

/// What the service counts for itself is not taken off what sharing saves its clients.
#[test]
fn the_service_s_own_questions_do_not_hide_what_is_saved() {
    skip_unless!(kernel());
    let (service, address) = serve("events = [\"context-switches\", \"cpu-migrations\", \"minor-faults\"]\n");
    scrape(address);
    let mut clients: Vec<_> = (0..3).map(|_| service.client()).collect();
    for client in &mut clients {
        client.open(on_task(own(), &[faults()]));
    }
    assert_eq!(service.status()["saved"]["files"], 2, "{}", service.status());
}

#[test]
fn bad_requests_are_answered_and_closed() {
    skip_unless!(kernel());
    let (service, address) = serve("");
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET /metrics HTTP/9\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 400),
        (b"\0\0\0\0", 400),
        // A page of the web whose name was made to lead here.
        (b"GET /metrics HTTP/1.1\r\nHost: page.example:9464\r\n\r\n", 421),
    ] {
        let answer = ask(connect(address), request);
        assert_eq!(answer.status, status, "{request:?}");
        assert!(!answer.body.is_empty());
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "y".repeat(100_000));
    // A client that sends on after it was told may see the connection torn.
    let mut stream = connect(address);
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    // Some say nothing, some only half, some take nothing; the others are answered.
    let mut idle: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for stream in &mut idle[..10] {
        stream.write_all(b"GET /metr").unwrap();
    }
    let mut deaf = connect(address);
    deaf.write_all(GET).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!(value(&scrape(address), "pmux_cpus", &[]) >= Some(1.0)));
        }
    });
    // More than may: those who have said nothing for longest are sent away, and a client that asks is answered.
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.extend((0..4).map(|_| connect(address)));
        assert_eq!(ask(connect(address), GET).status, 200);
    }
    let mut text = Vec::new();
    let _ = (&idle[15]).read_to_end(&mut text);
    assert!(text.is_empty() || text.starts_with(b"HTTP/1.1 503 "), "{}", String::from_utf8_lossy(&text));
    drop(crowd);
    // The loop has noticed nothing. A client that only looked whether the service listens may not have been seen to go yet.
    eventually("this client is the only one", || (service.status()["clients"]["connected"] == 1).then_some(()));
    // A client that says nothing is cut off.
    let started = Instant::now();
    let _ = connect(address).read_to_end(&mut text);
    assert!(started.elapsed() < Duration::from_secs(60));
    eventually("there is room again", || (ask(connect(address), GET).status == 200).then_some(()));
}

#[test]
fn head_openmetrics_and_unix_sockets() {
    skip_unless!(kernel());
    let (_dir, path) = new_file("m.sock");
    let mut service = Service::with(&format!("[metrics]\nlisten = \"{}\"\n", path.display()));
    let connect = || UnixStream::connect(&path).unwrap();
    assert_eq!(value(&parse(&ask(connect(), GET).body), "pmux_build_info", &[]), Some(1.0));
    let head = ask(connect(), b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((head.status, &head.body[..]), (200, ""));
    let open = ask(connect(), b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n");
    assert!(open.head.contains("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.contains("# TYPE pmux_requests counter\n") && open.body.ends_with("# EOF\n"), "{}", open.body);
    // One that was killed leaves its file behind, and the next one takes the place.
    service.kill();
    assert!(path.exists());
    service.start_again();
    eventually("it answers again", || (ask(connect(), GET).status == 200).then_some(()));
    assert_eq!(service.stop(), 0);
    assert!(!path.exists());
}

#[test]
fn what_is_wrong_is_said_before_it_serves() {
    skip_unless!(kernel());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pmux.toml");
    for (text, what) in [
        ("[metrics]\nlisten = \"0.0.0.0:9464\"\n", "line 2"),
        ("[metrics]\n\ncgroups = [\"a/../b\"]\n", "line 3"),
        ("[metrics]\nlisten = \"127.0.0.1:0\"\nevents = [\"no-such-event\"]\n", "metrics.events"),
    ] {
        std::fs::write(&file, text).unwrap();
        let serve = common::pmux(["serve", "--config"]).args([&file]);
        let ran = serve.args(["--socket".into(), folder.path().join("p.sock")]).run();
        assert!(!ran.status.success() && ran.err.contains(what), "{what}: {}", ran.err);
    }
}

/// Outside of the loopback, and wherever that is said, only who knows the token is answered.
#[test]
fn a_token_opens_the_metrics() {
    skip_unless!(kernel());
    let (_dir, file) = new_file("token");
    let write = |token: &str, mode| {
        std::fs::write(&file, token).unwrap();
        common::set_mode(&file, mode);
    };
    write("the-first-of-three-tokens\n", 0o600);
    let lines = format!("[metrics]\nlisten = \"0.0.0.0:0\"\ntoken_file = \"{}\"\n", file.display());
    let service = Service::with(&lines);
    let with = |token: &str| {
        let address = SocketAddr::from(([127, 0, 0, 1], address(&service).port()));
        let request = format!("GET /metrics HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer {token}\r\n\r\n");
        ask(connect(address), request.as_bytes())
    };
    let none = ask(connect(SocketAddr::from(([127, 0, 0, 1], address(&service).port()))), GET);
    assert!(none.status == 401 && none.head.contains("WWW-Authenticate: Bearer"), "{}", none.head);
    assert_eq!(with("the-first-of-three-token").status, 401);
    let good = with("the-first-of-three-tokens");
    assert!(good.status == 200 && good.body.contains("pmux_clients"), "{}", good.head);
    // Another token is taken in by a reload; a file that others may read leaves all as it was.
    write("the-second-of-three-tokens\n", 0o600);
    service.configure(&lines);
    service.says("the configuration was read anew");
    assert_eq!(with("the-second-of-three-tokens").status, 200);
    assert_eq!(with("the-first-of-three-tokens").status, 401);
    write("the-third-of-three-tokens\n", 0o644);
    service.configure(&lines);
    service.says("the configuration stays as it was");
    assert_eq!(with("the-second-of-three-tokens").status, 200);
    let places = service.log().matches("metrics are at http://").count();
    assert_eq!(places, 1, "the port is never free for others to take");
    assert!(!service.log().contains("of-three-tokens"), "a token is no word for a log");
}

#[test]
fn a_port_that_was_taken_is_tried_again_at_the_next_reload() {
    skip_unless!(kernel());
    let (service, _) = serve("");
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let lines = format!("[metrics]\nlisten = \"{taken}\"\n");
    service.configure(&lines);
    service.says("there are no metrics any more");
    drop(holder);
    service.configure(&lines);
    service.says(&format!("metrics are at http://{taken}"));
    assert!(value(&scrape(taken), "pmux_cpus", &[]) >= Some(1.0));
}

/// Runs a shell line in a cgroup, to the end.
fn run_in(cgroup: &Cgroup, line: &str) {
    let procs = cgroup.path.join("cgroup.procs");
    let line = format!("echo $$ > {} && {line}", procs.display());
    assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
}

#[test]
fn the_machine_and_cgroups_are_counted_and_never_less() {
    skip_unless!(root());
    let Some(cgroup) = Cgroup::make("metrics") else { return };
    let lines = format!(
        "events = [\"page-faults\", \"cpu-clock\"]\ncgroups = [\"{}\", \"{0}/*\"]\ncgroup_events = [\"page-faults\", \"task-clock\"]\n",
        cgroup.name()
    );
    let (service, address) = serve(&lines);
    let of = format!("/{}", cgroup.name());
    let first = scrape(address);
    assert!(value(&first, "pmux_event_total", &[("event", "cpu-clock"), ("cpu", "0")]) > Some(0.0));
    // It has not run: no line says 0.
    assert_eq!(value(&first, "pmux_cgroup_event_total", &[("cgroup", &of)]), None);
    let status = service.status();
    let how = status["metrics"]["cgroups_are_counted"].as_str().unwrap();
    let way = if how.contains("BPF program at each switch") { "bpf" } else { "events" };
    assert_eq!(value(&first, "pmux_cgroup_counting_info", &[("way", way)]), Some(1.0));
    assert!(service.log().contains("cgroups are counted"), "{}", service.log());
    needs("bpf", "BPF programs", way == "bpf");
    run_in(&cgroup, "for i in 1 2 3 4 5; do /bin/true; done");
    let faults = [("event", "page-faults"), ("cgroup", &of[..])];
    let ran = scrape_anew(address);
    let of_cgroup = value(&ran, "pmux_cgroup_event_total", &faults).unwrap();
    assert!(of_cgroup > 100.0, "{of_cgroup}");
    // One that comes and goes.
    let short = cgroup.below("short");
    let named = format!("{of}/short");
    eventually("the new one is looked for", || {
        run_in(&short, "/bin/true");
        value(&scrape_anew(address), "pmux_cgroup_event_total", &[("event", "page-faults"), ("cgroup", &named)])
    });
    drop(short);
    let gone = scrape_anew(address);
    assert_eq!(value(&gone, "pmux_cgroup_event_total", &[("cgroup", &named)]), None, "its series end");
    let with_short = value(&gone, "pmux_cgroup_event_total", &faults).unwrap();
    assert!(with_short > of_cgroup, "what it counted stays with those above it");
    // Another configuration.
    service.configure(&format!("[metrics]\nlisten = \"{address}\"\n{lines}cpus = \"all\"\nmost_cgroups = 5\n"));
    // The new thread begins when the former one has ended.
    eventually("it listens again", || (service.log().matches("metrics are at").count() == 2).then_some(()));
    let anew = scrape_anew(address);
    assert!(
        value(&anew, "pmux_event_total", &[("event", "page-faults")])
            >= value(&gone, "pmux_event_total", &[("event", "page-faults")])
    );
    run_in(&cgroup, "/bin/true");
    let by_cpu = scrape_anew(address);
    let has_cpus = by_cpu.keys().any(|(name, labels)| name == "pmux_cgroup_event_total" && labels.contains_key("cpu"));
    assert!(has_cpus, "{by_cpu:?}");
    drop(service);
}
