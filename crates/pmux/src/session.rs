//! A session: this machine, opened for counting.
//!
//! What it is: the owner of the engine, and the choice between the kernel's events and what is left without them.
//! Read first: [`Session`].
//!
//! **Invariant:** whatever a session opens goes through its engine, and is closed when the last handle is dropped.

use crate::error::Error;
use crate::event::Catalog;
use crate::mux::pmus::Mux;
use crate::refusal::{self, Refusal};
use pmux_abi::attr::{Attr, AttrFlags, EventType};
use pmux_engine::engine::{Census, Disagreements};
use pmux_engine::{GroupSpec, OpenError, Sharing, Target as EngineTarget};
use pmux_linux::cpus::{CpuList, CpuSource, Cpus};
use pmux_linux::diagnose::{Facts, Roots, TargetKind, Whose};
use pmux_linux::filter::FilterTrials;
use pmux_linux::host::{KERNEL, LinuxEngine, LinuxHost, SleepLock};
use pmux_linux::shared::client::{Service, SocketPath, Terms};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Which source of counts a session uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The kernel's performance events.
    Kernel,
    /// What the kernel accounts for anyway: `wait4`, `/proc` and cgroup files.
    Usage {
        /// Why there are no performance events.
        why: Box<Refusal>,
    },
}

/// How a session finds its backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackendChoice {
    /// The kernel's events where they can be opened, otherwise usage.
    #[default]
    Auto,
    /// The kernel's events or an error.
    Kernel,
    /// Usage, whatever the kernel could do.
    Usage,
}

/// Whether a session shares counters with other processes, through a service (`pmux serve`) that opens each question once.
///
/// What would gain nothing is opened directly all the same: what samples or writes records, commands that wait for their exec,
/// threads of one's own, and whatever the service doesn't do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SharedChoice {
    /// Where a service is there, when there is something to share; or at once, where the kernel opens nothing for this process.
    #[default]
    Auto,
    /// Through a service, or not at all. With one, events can be counted also where the kernel refuses them to this process.
    Always,
    /// With no other process.
    Never,
}

impl SharedChoice {
    /// What [`SHARED_VARIABLE`] says.
    ///
    /// # Errors
    /// [`Error::SharedChoice`] where it says something else.
    pub fn of_environment() -> Result<Self, Error> {
        match std::env::var(SHARED_VARIABLE).as_deref() {
            Err(_) | Ok("" | "auto") => Ok(Self::Auto),
            Ok("always") => Ok(Self::Always),
            Ok("never") => Ok(Self::Never),
            Ok(other) => Err(Error::SharedChoice(other.to_owned())),
        }
    }
}

impl BackendChoice {
    /// What [`BACKEND_VARIABLE`] says.
    ///
    /// # Errors
    /// [`Error::Backend`] for what it can't say.
    fn from_environment() -> Result<Self, Error> {
        match std::env::var(BACKEND_VARIABLE).as_deref() {
            Err(_) | Ok("" | "auto") => Ok(Self::Auto),
            Ok("kernel") => Ok(Self::Kernel),
            Ok("usage") => Ok(Self::Usage),
            Ok(other) => Err(Error::Backend(other.to_owned())),
        }
    }
}

/// The environment variable for [`SharedChoice`]: `auto`, `always` or `never`.
pub const SHARED_VARIABLE: &str = "PMUX_SHARED";
/// How long one waits for a service that might be there.
const AUTO_PATIENCE: Duration = Duration::from_millis(200);
/// And for one that must be.
const PATIENCE: Duration = Duration::from_secs(5);

/// The environment variable that overrides [`BackendChoice::Auto`]: `auto`, `kernel` or `usage`.
pub const BACKEND_VARIABLE: &str = "PMUX_BACKEND";

/// Who opens the kernel's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventOpener {
    /// This process, or a service for it.
    Own,
    /// A service: this process may open none.
    Service,
}

pub(crate) struct Inner {
    pub(crate) engine: LinuxEngine,
    pub(crate) backend: Backend,
    pub(crate) source: EventOpener,
    pub(crate) catalog: Catalog,
    pub(crate) facts: OnceLock<Facts>,
    /// The part of the facts that tells what the machine has.
    pub(crate) machine: OnceLock<Facts>,
    /// The names of this machine's tracepoints by their numbers, once a caller has asked for one. They are files in tracefs: looked
    /// through once, so one that is younger stays a number.
    #[cfg(feature = "server")]
    pub(crate) tracepoints: OnceLock<std::collections::HashMap<u64, String>>,
    pub(crate) hotplug: SleepLock<Option<crate::hotplug::Hotplug>>,
    pub(crate) mux: Mux,
    pub(crate) filters: FilterTrials,
}

/// This machine, opened for counting. Clones share everything.
///
/// ```
/// use pmux::Session;
/// # fn main() -> Result<(), pmux::Error> {
/// let session = Session::new()?;
/// let (sum, counts) = session.count_closure(&["page-faults", "task-clock"], || (0..1000_u64).sum::<u64>())?;
/// assert_eq!(sum, 499_500);
/// for (event, reading) in counts.totals() {
///     println!("{}: {reading}", event.name);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

/// How it stands with the service that counters are shared through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceTurn {
    /// The waiter waits for it, or there is none in use.
    Waits,
    /// It is away: it is to be asked again soon.
    IsAway,
    /// It is there, and may have been away before.
    IsBack,
}

impl Session {
    /// Opens this machine, with the backend that [`BACKEND_VARIABLE`] names, or the best one; and shares counters as
    /// [`SHARED_VARIABLE`] says.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::SharedChoice`] where a variable has another value; [`Error::Cpus`] where the CPUs can't be
    /// read; [`Error::Refused`] where the kernel's events are demanded and refused; [`Error::Service`] where sharing is demanded
    /// and no service is there.
    pub fn new() -> Result<Self, Error> {
        Self::with_shared(SharedChoice::of_environment()?)
    }

    /// As [`Session::new`], and says itself whether counters are shared with other processes.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_shared(shared: SharedChoice) -> Result<Self, Error> {
        let choice = BackendChoice::from_environment()?;
        let mut session = Self::with_backend(choice)?;
        session.share(choice, shared)?;
        Ok(session)
    }

    /// Opens this machine with a backend, and shares nothing with other processes.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_backend(choice: BackendChoice) -> Result<Self, Error> {
        Self::open_machine(choice, Mux::new(None), Sharing::On)
    }

    /// Opens this machine as [`Session::new`] does, and says whether events of the session that ask the same share one event of
    /// the kernel, as they do otherwise. Each reads, switches and closes its own either way; see [`pmux_engine::share`] for
    /// which events share one.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_sharing(sharing: Sharing) -> Result<Self, Error> {
        Self::with_backend_and_sharing(BackendChoice::from_environment()?, sharing)
    }

    /// As [`Session::with_sharing`], with a backend.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_backend_and_sharing(choice: BackendChoice, sharing: Sharing) -> Result<Self, Error> {
        Self::open_machine(choice, Mux::new(None), sharing)
    }

    /// Finds the service that counters are shared through.
    fn share(&mut self, backend: BackendChoice, shared: SharedChoice) -> Result<(), Error> {
        let kernel = matches!(self.inner.backend, Backend::Kernel);
        match shared {
            SharedChoice::Never => Ok(()),
            _ if backend == BackendChoice::Usage => Ok(()),
            SharedChoice::Auto => {
                let place = SocketPath::of_environment();
                if kernel {
                    self.engine().host().share_if_possible(place, AUTO_PATIENCE);
                } else if let Ok(service) = Service::connect(place, AUTO_PATIENCE)
                    && service.terms().is_some_and(|Terms { rights, .. }| rights.tasks || rights.system_wide)
                {
                    self.share_through(service);
                }
                Ok(())
            }
            SharedChoice::Always => self.share_at(SocketPath::of_environment()),
        }
    }

    fn share_at(&mut self, place: SocketPath) -> Result<(), Error> {
        self.share_through(Service::connect(place, PATIENCE).map_err(Error::Service)?);
        Ok(())
    }

    fn share_through(&mut self, service: Service) {
        // The host is new: no service is asked yet.
        let _ = self.engine().host().share_with(Arc::new(service));
        // The service opens events also for processes to which the kernel refuses all: in a container, say.
        if let Some(inner) = Arc::get_mut(&mut self.inner)
            && matches!(inner.backend, Backend::Usage { .. })
        {
            inner.backend = Backend::Kernel;
            inner.source = EventOpener::Service;
            inner.engine.host().share_all();
        }
    }

    /// As [`Session::new`], and shares counters through the service at this path.
    ///
    /// # Errors
    /// As [`Session::new`]; [`Error::Service`] where no service is there.
    pub fn with_service_at(path: impl Into<std::path::PathBuf>) -> Result<Self, Error> {
        let mut session = Self::with_shared(SharedChoice::Never)?;
        session.share_at(SocketPath::Named(path.into()))?;
        Ok(session)
    }

    /// The path of the service that counters are shared through, as soon as something has been.
    #[must_use]
    pub fn shared_through(&self) -> Option<&std::path::Path> {
        Some(self.engine().host().service()?.place().path())
    }

    /// Whether the kernel opens no event for this process, so that a service counts alone. A command is then counted from the moment
    /// when it is let go, and not from its exec on, which only the kernel sees in time.
    #[must_use]
    pub fn counts_through_service_only(&self) -> bool {
        self.inner.source == EventOpener::Service
    }

    /// For how long something was not counted because the service was away: of all events the longest, added up over all times
    /// when it was.
    #[must_use]
    pub fn service_gap(&self) -> Duration {
        self.engine().host().service().map_or(Duration::ZERO, |service| service.gap())
    }

    /// Has a waiter wait for the service that counters are shared through, under this token and instead of what had it before; without
    /// one in use, for nothing.
    ///
    /// To be called before each wait; `life` is 0 at first. Where the service was away and is back, all events that wait for it are to be
    /// read once, which lets them go on: then the answer is [`ServiceTurn::IsBack`], as at the first call.
    pub fn attend_service(
        &self,
        waiter: &mut crate::wait::Waiter,
        token: crate::wait::Token,
        life: &mut u64,
    ) -> ServiceTurn {
        waiter.forget(token);
        let Some(service) = self.engine().host().service() else { return ServiceTurn::Waits };
        let Some(on) = service.attend() else { return ServiceTurn::IsAway };
        service.with_fd(|fd| fd.into_iter().for_each(|fd| waiter.watch(fd, token)));
        let before = std::mem::replace(life, on);
        if before == on { ServiceTurn::Waits } else { ServiceTurn::IsBack }
    }

    /// How many events of the kernel there would be more if equal questions were not shared.
    #[must_use]
    pub fn saved_by_sharing(&self) -> usize {
        self.engine().saved_by_sharing()
    }

    /// What has become of the service that counters are shared through, where it is away now, or began anew and refuses what was open.
    #[must_use]
    pub fn service_away(&self) -> Option<pmux_linux::shared::client::Away> {
        self.engine().host().service()?.why_away()
    }

    /// For tests on machines without counters: with [`crate::Multiplexing::Engine`], software events take turns as if they
    /// needed counters, of which there are so many.
    ///
    /// # Errors
    /// As [`Session::new`].
    #[doc(hidden)]
    pub fn with_scarce_software(counters: u8) -> Result<Self, Error> {
        Self::open_machine(BackendChoice::Auto, Mux::new(Some(counters)), Sharing::On)
    }

    fn open_machine(choice: BackendChoice, mux: Mux, sharing: Sharing) -> Result<Self, Error> {
        let online = Cpus::system().online().map_err(Error::Cpus)?;
        let engine = LinuxHost::engine(online.iter()).with_sharing(sharing);
        let facts = OnceLock::new();
        let backend = match (choice, probe(&engine)) {
            (BackendChoice::Usage, _) => Backend::Usage { why: Box::new(Refusal::by_choice()) },
            (_, Ok(())) => Backend::Kernel,
            (choice, Err(error)) => {
                let facts = facts.get_or_init(|| Facts::gather(&Roots::system()));
                let why = refusal::of_kernel(error, &probe_attr(), TargetKind::Task(Whose::Own), facts);
                match choice {
                    BackendChoice::Kernel => return Err(Error::Refused(vec![why])),
                    _ => Backend::Usage { why: Box::new(why) },
                }
            }
        };
        let catalog = Catalog::system();
        Ok(Self {
            inner: Arc::new(Inner {
                engine,
                backend,
                source: EventOpener::Own,
                catalog,
                facts,
                machine: OnceLock::new(),
                #[cfg(feature = "server")]
                tracepoints: OnceLock::new(),
                hotplug: pmux_engine::LockCell::new(None),
                mux,
                filters: FilterTrials::default(),
            }),
        })
    }

    /// Where its counts come from.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.inner.backend
    }

    /// What this machine's sysfs and tracefs say.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// The CPUs that are online, as the engine follows them.
    #[must_use]
    pub fn online(&self) -> CpuList {
        self.engine().online().iter().map(|cpu| cpu.0).collect()
    }

    /// Where the list of CPUs comes from. With [`CpuSource::Affinity`] there may be others.
    #[must_use]
    pub fn cpu_source(&self) -> CpuSource {
        Cpus::system().source()
    }

    /// How much is open in this session: all 0 when everything was closed.
    #[must_use]
    pub fn census(&self) -> Census {
        self.engine().census()
    }

    /// How often the kernel has not agreed with this session's account of debug registers: [`Disagreements::refused`] for those
    /// that another holder has, [`Disagreements::inherited`] for those that children may have inherited.
    #[must_use]
    pub fn register_disagreements(&self) -> Disagreements {
        self.engine().ledger_disagreements()
    }

    /// From now on inheriting events of tasks share, too, as long as their task doesn't fork: what is opened later follows only
    /// who is forked later. It costs one more event of the kernel, a tracepoint, for each that is opened. For services: a program
    /// that counts for itself asks everything once.
    ///
    /// # Errors
    /// [`Error::Catalog`] where the tracepoint `sched:sched_process_fork` can't be found.
    pub fn note_forks(&self) -> Result<(), Error> {
        let fork = self.catalog().tracepoint("sched", "sched_process_fork").map_err(Error::Catalog)?;
        self.engine().host().note_forks(fork);
        Ok(())
    }

    pub(crate) fn engine(&self) -> &LinuxEngine {
        &self.inner.engine
    }

    pub(crate) fn facts(&self) -> &Facts {
        self.inner.facts.get_or_init(|| Facts::gather(&Roots::system()))
    }

    /// What is known of the machine, where that is enough; everything, where it is known already.
    pub(crate) fn machine_facts(&self) -> &Facts {
        let some = || self.inner.machine.get_or_init(|| Facts::of_machine(&Roots::system()));
        self.inner.facts.get().unwrap_or_else(some)
    }

    /// Whether it is a clone.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// The least that a process may ask of the kernel: the clock of this thread, in user mode. It is one of the two software events
/// that change no code of the kernel when the first of them is opened (`perf_swevent_enabled`).
fn probe_attr() -> Attr {
    let flags = AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    Attr { kind: EventType::SOFTWARE, config: pmux_abi::attr::sw::TASK_CLOCK, flags, ..Attr::default() }
}

fn probe(engine: &LinuxEngine) -> Result<(), OpenError> {
    let own = EngineTarget::task(LinuxHost::task(pmux_linux::current_tid()));
    let opened = engine.open(&GroupSpec::single(KERNEL, probe_attr()), own)?;
    engine.close(opened.group);
    Ok(())
}
