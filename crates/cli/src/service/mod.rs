//! `pmux serve` and `pmux status`: the sharing service, and what it is doing.
//!
//! **Invariant:** glue; the service is the crate `pmux-daemon`.

mod page;
mod status;
mod web;

pub(crate) use status::{breakpoint_holders, status};

use crate::options::exit_status;
use crate::options::serve::ServeOptions;
use crate::stderr::{report_error, write_stderr};
use pmux_daemon::config::{Config, DEFAULT_FILE};
use pmux_daemon::server::{Server, ServerExit, Start};
use std::path::Path;

/// A socket of systemd's starts the service with its first client, which may never come.
const AT_BOOT: &str = "pmux: metrics, recorders and containers are served only while the service runs; with systemd, `systemctl enable \
                       --now pmux.service` starts it at boot, and pmux.socket alone with the first client";

/// Runs `pmux serve` and returns the exit status: 1 where there is no service.
pub(crate) fn serve(options: &ServeOptions) -> u8 {
    if options.check {
        return check(options);
    }
    let ServeOptions { config, socket, metrics, containers, .. } = options.clone();
    let start = Start { config, socket, metrics, containers };
    match Server::start(start) {
        Ok(server) => match server.run() {
            ServerExit::Stopped => exit_status::SUCCESS,
            ServerExit::Failed => exit_status::NO_SERVICE,
        },
        Err(error) => report_error(&format!("the service can't start: {error}"), exit_status::NO_SERVICE),
    }
}

fn check(options: &ServeOptions) -> u8 {
    let named = options.config.as_deref();
    let (config, faults) = Config::examine(named, options.metrics.as_ref());
    for fault in &faults {
        report_error(&fault.to_string(), exit_status::NO_SERVICE);
    }
    if !faults.is_empty() {
        return exit_status::NO_SERVICE;
    }
    if named.is_none() && !Path::new(DEFAULT_FILE).exists() {
        write_stderr(&format!("pmux: there is no {DEFAULT_FILE}; the defaults hold"));
    } else {
        write_stderr(&format!("pmux: {} is right", named.unwrap_or(Path::new(DEFAULT_FILE)).display()));
    }
    if config.works_without_clients() {
        write_stderr(AT_BOOT);
    }
    exit_status::SUCCESS
}
