//! `pmux serve` where something runs out: room on a disk, room in files, files, counters.

use crate::common;
use crate::common::service::{Service, ServiceClient, faults, on_task, own};
use crate::common::{eventually, kernel, pmux, root, skip_unless, stat};
use pmux::abi::Attr;
use pmux::server_api::shared::wire::{EventOp, RefusalKind, Request};

/// A client that counts something.
fn counts(mut client: ServiceClient) {
    let opened = client.open(on_task(own(), &[faults()]));
    client.does(opened.handles[0], EventOp::Enable);
    common::role::touch(0, 50);
    assert!(client.read(&opened.handles)[0].totals.running_ns > 0);
    client.close(&opened.handles);
}

#[test]
fn where_files_may_not_grow_there_are_no_pages() {
    skip_unless!(kernel());
    let service = Service::from_shell("ulimit -f 0; exec \"$0\" serve --socket p.sock --config pmux.toml 2>log");
    let client = ServiceClient::greeted(&service.socket());
    let welcome = client.welcome.clone().unwrap();
    assert_eq!((welcome.page, welcome.rights.files), (None, false), "it says so");
    counts(client);
    // Files need a page that says what to take off: everything is asked for.
    let opened = ServiceClient::greeted(&service.socket()).open(on_task(own(), &[faults()]));
    assert!(opened.entries.is_empty() && opened.files.is_empty());
    let socket = service.socket();
    let always =
        stat(["--shared=always", "-x,", "-e", "page-faults:u", "-p", &own().to_string(), "--", "sleep", "0.1"]);
    always.env("PMUX_SOCKET", socket.to_str().unwrap()).run().good().never_says(&["away"]);
    service.is_empty();
}

/// A file system of a few blocks, which its process alone sees, and which goes with it.
fn on_a_small_disk(script: &str) -> Option<(Service, std::path::PathBuf)> {
    if !root() {
        return None;
    }
    let mount = "mount -t tmpfs -o size=8k,nr_inodes=6 none disk";
    let script = format!("mkdir disk; exec unshare -m sh -c '{mount} && cd disk && {{ {script}; }}' \"$0\"");
    let service = Service::from_shell(&script);
    let disk = std::path::PathBuf::from(format!("/proc/{}/root{}/disk", service.pid(), service.folder().display()));
    Some((service, disk))
}

#[test]
fn a_full_disk_does_not_stop_the_service() {
    // The log has some bytes left, and grows with each client.
    let script = "head -c 4000 /dev/zero >log; cat /dev/zero >full 2>/dev/null; echo \"[log]\" >../pmux.toml; \
                  echo \"level = \\\"debug\\\"\" >>../pmux.toml; exec \"$0\" serve --socket p.sock --config ../pmux.toml 2>>log";
    let Some((mut service, disk)) = on_a_small_disk(script) else { return };
    let socket = disk.join("p.sock");
    for _ in 0..20 {
        counts(ServiceClient::greeted(&socket));
    }
    let log = || std::fs::read(disk.join("log")).unwrap();
    assert_eq!(log().len(), 4096, "the disk is full");
    // The disk has room again.
    std::fs::remove_file(disk.join("full")).unwrap();
    eventually("it says what is missing", || {
        counts(ServiceClient::greeted(&socket));
        String::from_utf8_lossy(&log()).contains("lines were left out: they could not be written").then_some(())
    });
    assert_eq!(service.stop(), 0);
}

#[test]
fn where_there_is_no_room_for_a_socket_it_says_so() {
    let script =
        "touch 1 2 3 4 5 6 7 8 2>../touched; \"$0\" serve --socket p.sock 2>../log; echo $? >../status; exec sleep 60";
    let Some((service, _)) = on_a_small_disk(script) else { return };
    let status = eventually("it ends", || {
        std::fs::read_to_string(service.folder().join("status")).ok().filter(|text| !text.is_empty())
    });
    assert_eq!(status, "1\n");
    let log = service.log();
    assert!(
        log.contains("the service can't start") && log.contains("p.sock") && log.contains("no space or slot left"),
        "{log}"
    );
}

#[test]
fn without_files_new_clients_are_told_and_others_are_served() {
    skip_unless!(kernel());
    let service = Service::from_shell("ulimit -n 40; exec \"$0\" serve --socket p.sock --config pmux.toml 2>log");
    let mut first = ServiceClient::greeted(&service.socket());
    let opened = first.open(on_task(own(), &[faults()]));
    first.does(opened.handles[0], EventOp::Enable);
    let others: Vec<_> = (0..60).map(|_| ServiceClient::connect(&service.socket())).collect();
    service.says("new clients are turned away");
    // No client waits for what may never come: one that must have a service is told why not, and any other counts by itself.
    let run = |shared: &str| {
        let socket = service.socket();
        stat([shared, "-x,", "-e", "page-faults:u", "-p", &own().to_string(), "true"]).env("PMUX_SOCKET", socket).run()
    };
    run("--shared=always").bad(125, &["closed the connection: ", "no open file left", "LimitNOFILE="]);
    run("--shared=auto").good();
    pmux(["status"]).env("PMUX_SOCKET", service.socket()).run().bad(1, &["no open file left"]);
    assert_eq!(service.log().matches("turned away").count(), 1, "it is said once: {}", service.log());
    // Each file that is wanted is refused as it would be to anybody, and nothing else changes.
    let more = Attr { config: pmux::abi::sw::CONTEXT_SWITCHES, ..faults() };
    let refusal = first.refused(&Request::Open(on_task(own(), &[more])));
    assert_eq!((refusal.kind(), refusal.errno), (RefusalKind::Kernel, 24), "{}", refusal.text);
    assert!(refusal.text.contains("the service has no open file left"), "{}", refusal.text);
    common::role::touch(0, 50);
    assert!(first.read(&opened.handles)[0].totals.running_ns > 0);
    // When some go, others have their turn.
    drop(others);
    eventually("a client is accepted", || (run("--shared=always").code() == 0).then_some(()));
    counts(ServiceClient::greeted(&service.socket()));
    drop(first);
    service.is_empty();
}
