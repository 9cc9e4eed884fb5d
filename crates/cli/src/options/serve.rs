//! `pmux serve` and `pmux status`.
//!
//! **Invariant:** plain data.

use crate::style::ColorChoice;
use clap::Args;
use pmux_daemon::config::Listen;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The budget of a user: keys of `[limits]`, and of what each is the most.
pub(super) const BUDGETS: &[(&str, &str)] = &[
    ("clients_per_user", "connections"),
    ("events_per_user", "events of the kernel, those among them that are still being closed"),
    ("files_per_user", "open files of the service; 0 is a quarter of what it may have"),
    ("rings_kib_per_user", "rings for records"),
    ("requests_per_second_per_user", "requests; more wait"),
];

/// Whose budget that is, and where it shows.
pub(super) const BUDGET_WORDS: &str = "\
All clients of a user together have one budget, other than those of root and of the service's own
user. The keys are in [limits] of the configuration; pmux status names users near their limits.";

fn serve_help() -> String {
    let lines = BUDGETS.iter().map(|(key, what)| format!("  {key:<30} {what}\n")).collect::<String>();
    format!("{SERVE_HELP}\n\n{BUDGET_WORDS}\n{lines}")
}

const SERVE_HELP: &str = "\
Identical requests of several processes share one kernel counter. So do identical recordings
(pmux record --shared): the kernel's event is opened and read once, and each record goes into the
ring of each client. A client that is too slow loses its own records only, and is told how many.

It reads /etc/pmux/pmux.toml where that is there, and listens at /run/pmux/pmux.sock (root) or
$XDG_RUNTIME_DIR/pmux/pmux.sock, or at the socket that systemd hands over. SIGTERM stops it, SIGHUP
has it read its configuration again. It logs to standard error.";

#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(after_help = serve_help())]
pub(crate) struct ServeOptions {
    /// Read this configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Listen at this socket, whatever the configuration says
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Serve numbers for Prometheus here, whatever the configuration says: ADDRESS:PORT, or the path of a Unix socket
    #[arg(long, value_name = "PLACE", value_parser = |text: &str| Listen::try_from(text.to_owned()))]
    pub(crate) metrics: Option<Listen>,

    /// Serve containers at this socket, whatever the configuration says: the one that their seccomp profile names as listenerPath
    #[arg(long, value_name = "PATH")]
    pub(crate) containers: Option<PathBuf>,

    /// Check the configuration, print what is wrong with it, and end
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct StatusOptions {
    /// Print JSON: one object, with --watch one a line
    #[arg(short, long = "json")]
    pub(crate) json: bool,

    /// Also list the other processes of the machine that hold events of the kernel; it needs no service
    #[arg(long)]
    pub(crate) others: bool,

    /// Print it again and again, every second or every TIME: seconds, or 100ms, 2s, 1m
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    pub(crate) watch: Option<Duration>,

    /// Show it in a browser: serve a page at this address of the loopback, and print where, until a signal ends it
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9465", value_parser = place, conflicts_with_all = ["json", "others", "watch"])]
    pub(crate) page: Option<SocketAddr>,

    /// Ask the service at this socket [env: PMUX_SOCKET]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Use colour
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
}

/// Where the page is served.
fn place(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address with a port, as 127.0.0.1:9465 or [::1]:9465".to_owned())
}

/// How long one look is from the next.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    match pmux::units::seconds(text)? {
        time if range.contains(&time) => Ok(time),
        _ => Err("it must be from 100ms to 1h".to_owned()),
    }
}
