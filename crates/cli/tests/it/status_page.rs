//! `pmux status --page`: what a browser is shown, and what is asked of it without the token.

use crate::common::service::Service;
use crate::common::{self, Killed, eventually, kernel, new_file, pmux, program, root, skip_unless, start};
use crate::metrics;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A page that is served until this is dropped.
struct Page {
    served: Killed,
    address: SocketAddr,
    /// `/TOKEN/`.
    path: String,
}

impl Page {
    fn of(service: &Service) -> Self {
        let mut command = Command::new(common::PMUX);
        command.args(["status", "--page", "127.0.0.1:0", "--socket"]).arg(service.socket()).stdout(Stdio::piped());
        let mut served = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(served.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let (address, path) = url.trim_end().strip_prefix("http://").unwrap().split_once('/').unwrap();
        Self { served: Killed(served), address: address.parse().unwrap(), path: format!("/{path}") }
    }

    /// Status and text of the answer to these bytes.
    fn asked(&self, request: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let answer = metrics::ask(stream, request.as_bytes());
        (answer.status, answer.head + "\r\n\r\n" + &answer.body)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.asked(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    fn status(&self) -> Value {
        let (code, text) = self.get(&format!("{}status.json", self.path));
        assert_eq!(code, 200, "{text}");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

#[test]
fn only_who_knows_the_token_is_told_anything() {
    skip_unless!(kernel());
    let service = Service::start();
    let page = Page::of(&service);
    let (code, text) = page.get(&page.path);
    assert!(code == 200 && text.contains("Content-Security-Policy: default-src 'none'"), "{text}");
    assert!(text.contains("<title>pmux: the sharing service</title>"), "{text}");
    assert_eq!(page.status()["page_process"], page.served.0.id());
    let token = page.path.trim_matches('/');
    // The address without its last slash is known to mean the same.
    let (code, text) = page.get(&format!("/{token}"));
    assert!(code == 301 && text.contains(&format!("\r\nLocation: /{token}/\r\n")), "{text}");
    let longer = format!("/{token}0/status.json");
    let shorter = format!("/{}/status.json", &token[1..]);
    let other = format!("/{}/status.json", token.chars().rev().collect::<String>());
    for path in
        ["/", "//", "/status.json", "//status.json", "/x/status.json", &longer, &shorter, &other, &format!("/{token}x")]
    {
        let (code, text) = page.get(path);
        assert!(code == 404 && !text.contains(token), "{path}: {text}");
    }
    let missing = "x timeline timeline/ timeline/x timeline// timeline/x/y timeline/../x timeline/%2e%2e/%zz%";
    for path in missing.split(' ') {
        assert_eq!(page.get(&format!("{}{path}", page.path)).0, 404, "{path}");
    }
    assert_eq!(page.asked(&format!("POST {} HTTP/1.1\r\n\r\n", page.path)).0, 405);
    let (code, text) = page.asked("HEAD / HTTP/1.1\r\n\r\n");
    assert!(code == 404 && text.ends_with("\r\n\r\n"), "a head has no body: {text}");
    assert_eq!(page.asked("nonsense\r\n\r\n").0, 400);
    // Who says nothing keeps no other waiting.
    let silent: Vec<_> = (0..8).map(|_| TcpStream::connect(page.address).unwrap()).collect();
    assert_eq!(page.get(&page.path).0, 200);
    drop(silent);
}

#[test]
fn what_makes_no_page_is_said() {
    skip_unless!(kernel());
    let service = Service::start();
    let page = |place: &str| pmux(["status", "--page", place, "--socket"]).args([service.socket()]).run();
    page("0.0.0.0:0").bad(1, &["can be reached from outside", "ssh -L"]);
    page("here").bad(125, &["--page"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    page(&taken.local_addr().unwrap().to_string()).bad(1, &["the page can't be served at", "--page 127.0.0.1:0"]);
    page("127.0.0.1:0x").bad(125, &["an address with a port"]);
    // Where its address can't be told, it is not served.
    if let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") {
        let mut unheard = pmux(["status", "--page", "127.0.0.1:0", "--socket"]).args([service.socket()]);
        unheard.command.stdout(full);
        assert!(!unheard.command.status().unwrap().success());
    }
    pmux(["status", "--page", "--json"]).run().bad(125, &["--json"]);
    pmux(["status", "--page", "--socket"]).args([service.folder().join("none")]).run().bad(1, &["no sharing service"]);
}

#[test]
fn a_recorder_s_snapshots_lead_to_their_timelines() {
    skip_unless!(root());
    let (_dir, to) = new_file("snap shots");
    let recorder =
        format!("[[recorder]]\nname = \"all\"\nevents = [\"cpu-clock\"]\ndirectory = \"{}\"\n", to.display());
    let service = Service::with(&recorder);
    let page = Page::of(&service);
    eventually("it records", || (page.status()["recorders"][0]["state"] == "on").then_some(()));
    assert_eq!(page.status()["recorders"][0]["files"], serde_json::json!([]));
    pmux(["flight", "dump", "--recorder", "all"]).env("PMUX_SOCKET", service.socket()).run().good();
    // What is no snapshot is not shown, wherever it leads.
    std::fs::write(to.join("secret"), "x").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", to.join("link.data")).unwrap();
    let files = page.status()["recorders"][0]["files"].clone();
    let [file] = &files.as_array().unwrap()[..] else { panic!("{files}") };
    let name = file["name"].as_str().unwrap();
    assert!(name.starts_with("flight-") && file["bytes"].as_u64() > Some(0), "{file}");
    let (code, text) = page.get(&format!("{}timeline/all/{name}", page.path));
    assert!(code == 200 && text.contains("<!DOCTYPE html>") && text.contains(name), "{code}: {text:.300}");
    for path in ["secret", "link.data", "../all.toml", "..%2fsecret", "none.data", ""] {
        assert_eq!(page.get(&format!("{}timeline/all/{path}", page.path)).0, 404, "{path}");
    }
    std::fs::write(to.join("flight-broken.data"), "no recording").unwrap();
    let (code, text) = page.get(&format!("{}timeline/all/flight-broken.data", page.path));
    assert!(code == 503 && text.contains("flight-broken.data"), "{code}: {text}");
}

/// Names come from other users: in a browser they are text.
#[test]
fn a_browser_shows_who_counts_what() {
    skip_unless!(kernel() && program("chromium"));
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start();
    // A program whose name is markup.
    let name = "<b id=x>&'\"";
    std::os::unix::fs::symlink(common::PMUX, folder.path().join(name)).unwrap();
    let target = start("sleep", ["1000"]).spawn();
    let words = ["stat", "--shared=always", "-e", "page-faults:u", "-p", &target.pid().to_string()];
    let _client = start(folder.path().join(name), words).env("PMUX_SOCKET", service.socket()).spawn();
    eventually("it counts", || (service.status()["events"]["asked"] == 1).then_some(()));
    let page = Page::of(&service);
    let browser = common::browser(&folder.path().join("browser"), 3000);
    let shown = browser.args([format!("http://{}{}", page.address, page.path)]).run().good().text();
    assert!(shown.contains("<td class=\"\">&lt;b id=x&gt;&amp;'\"</td>") && !shown.contains("<b id"), "{shown}");
    let of = format!("page-faults:u +children of task {}<", target.pid());
    let counts = shown.split("</tr>").find(|row| row.contains(&of)).unwrap_or_else(|| panic!("{of}: {shown}"));
    assert!(counts.contains("<td class=\"n\">1</td>"), "{counts}");
}
