//! Recorders of the service: what `[[recorder]]` says.
//!
//! Read first: [`RecorderConfig`].
//!
//! **Invariant:** what makes no sense here makes the whole configuration wrong; what is not there on this machine does not.

use super::check::Wrong;
use pmux::flight::Keeping;
use pmux::record::CallChain;
use pmux::trigger::{Action, Rule, SetText, TermSource};
use pmux::units;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::path::PathBuf;
use std::time::Duration;

/// Where recorders write whose configuration says nothing else, each into a folder of its name.
const USUAL_FOLDER: &str = "/var/lib/pmux/flight";
/// Samples a second of a recorder that is always on.
pub const USUAL_FREQUENCY: u64 = 99;

/// One recorder of the service.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of keys")]
pub struct RecorderConfig {
    /// What it is called: letters, digits, `-`, `_` and `.`, and no number alone.
    pub name: String,
    /// What is sampled, as `pmux flight -e` takes it; `cycles`, or where there are no counters `cpu-clock`.
    #[serde(default)]
    pub events: Vec<String>,
    /// Samples a second.
    pub frequency: Option<u64>,
    /// Or one sample after so many occurrences.
    pub period: Option<u64>,
    /// How call chains are found.
    #[serde(default)]
    pub call_chain: CallChainConfig,
    /// Where threads wait, too: each wait that is so long, shorter ones as a sum of each thread. Needs all CPUs.
    #[serde(default, deserialize_with = "some_span")]
    pub off_cpu: Option<Duration>,
    /// Which CPUs; all where nothing is said.
    pub cpus: Option<String>,
    /// The tasks of this control group only.
    pub cgroup: Option<String>,
    /// How much of the past is kept.
    #[serde(default, deserialize_with = "kept")]
    pub keep: Keeping,
    /// When what is done.
    #[serde(default)]
    pub on: Vec<OnConfig>,
    /// Sets of events, as `pmux flight --set` takes them.
    #[serde(default)]
    pub set: Vec<String>,
    /// For how long it goes on after a trigger, before the snapshot is written.
    #[serde(default, deserialize_with = "span")]
    pub after: Duration,
    /// For how long no trigger takes another snapshot.
    #[serde(default = "usual_cool_down", deserialize_with = "span")]
    pub cool_down: Duration,
    /// Where snapshots are written.
    pub directory: Option<PathBuf>,
    /// How many are kept.
    #[serde(default = "usual_snapshots")]
    pub max_snapshots: u32,
    /// How much room they take.
    #[serde(default = "usual_disk", deserialize_with = "size")]
    pub max_disk: u64,
}

/// When what is done.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged)]
pub enum OnConfig {
    /// A snapshot is taken.
    Snapshot(String),
    /// Something else is done.
    Actions {
        /// When.
        trigger: String,
        /// What.
        actions: String,
    },
}

/// How call chains are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallChainConfig {
    /// By frame pointers.
    #[default]
    Fp,
    /// By the hardware's record of branches.
    Lbr,
    /// Not.
    None,
}

impl From<CallChainConfig> for CallChain {
    fn from(config: CallChainConfig) -> Self {
        match config {
            CallChainConfig::Fp => Self::FramePointers,
            CallChainConfig::Lbr => Self::LastBranches,
            CallChainConfig::None => Self::None,
        }
    }
}

/// A text of the configuration, as it is understood on a command line.
fn typed<'de, T, D: Deserializer<'de>>(text: D, parse: fn(&str) -> Result<T, String>) -> Result<T, D::Error> {
    parse(&String::deserialize(text)?).map_err(Error::custom)
}

fn kept<'de, D: Deserializer<'de>>(text: D) -> Result<Keeping, D::Error> {
    typed(text, units::kept)
}

fn span<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    typed(text, units::span)
}

fn some_span<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Duration>, D::Error> {
    span(text).map(Some)
}

fn size<'de, D: Deserializer<'de>>(text: D) -> Result<u64, D::Error> {
    typed(text, units::size_bytes)
}

const fn usual_cool_down() -> Duration {
    Duration::from_secs(10)
}

const fn usual_disk() -> u64 {
    1 << 30
}

const fn usual_snapshots() -> u32 {
    20
}

impl RecorderConfig {
    /// Where its snapshots are written.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.directory.clone().unwrap_or_else(|| PathBuf::from(USUAL_FOLDER).join(&self.name))
    }

    /// Its rules.
    ///
    /// # Errors
    /// A sentence, with a mark where it is wrong.
    pub fn rules(&self) -> Result<Vec<Rule>, String> {
        let parse = |on: &OnConfig| {
            let (trigger, actions) = match on {
                OnConfig::Snapshot(trigger) => (trigger, None),
                OnConfig::Actions { trigger, actions } => (trigger, Some(actions.as_str())),
            };
            let rule = Rule::parse(trigger, actions).map_err(|error| error.to_string())?;
            for term in &rule.trigger.terms {
                match term.source {
                    TermSource::Line(_) => return Err(format!("`{term}`: the service has no standard input")),
                    TermSource::Signal(_) => {
                        return Err(format!("`{term}`: the service's signals are its own; `pmux flight dump` asks it"));
                    }
                    _ => {}
                }
            }
            Ok(rule)
        };
        self.on.iter().map(parse).collect()
    }

    /// Its sets.
    ///
    /// # Errors
    /// A sentence, with a mark where it is wrong.
    pub fn sets(&self) -> Result<Vec<SetText>, String> {
        self.set.iter().map(|text| text.parse::<SetText>().map_err(|error| error.to_string())).collect()
    }

    /// Adds what makes no sense in it, the `nth` recorder.
    pub(super) fn check(&self, nth: usize, found: &mut Vec<Wrong>) {
        let mut wrong = |key: &str, text: String| found.push(Wrong::of(&format!("recorder.{key}"), nth, text));
        let letters = self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let number = self.name.chars().all(|c| c.is_ascii_digit());
        if !letters || number || self.name.starts_with('.') || self.name.len() > 32 {
            let text = format!(
                "`recorder.name` is `{}`; it is at most 32 letters, digits, `-`, `_` and `.`, and no number alone",
                self.name
            );
            wrong("name", text);
        }
        if self.frequency.is_some() && self.period.is_some() {
            wrong("period", "`recorder.frequency` and `recorder.period` exclude each other".to_owned());
        }
        for (key, value) in [("frequency", self.frequency), ("period", self.period)] {
            if value == Some(0) {
                wrong(key, format!("`recorder.{key}` must be at least 1"));
            }
        }
        if self.off_cpu.is_some() && self.cpus.is_some() {
            wrong("off_cpu", "`recorder.off_cpu` is of threads, and does not go with `recorder.cpus`".to_owned());
        }
        if self.max_snapshots == 0 {
            wrong("max_snapshots", "`recorder.max_snapshots` must be at least 1".to_owned());
        }
        if self.directory.as_ref().is_some_and(|path| !path.is_absolute()) {
            wrong("directory", "`recorder.directory` must begin with a /".to_owned());
        }
        if let Some(cpus) = &self.cpus
            && let Err(error) = cpus.parse::<pmux::CpuList>()
        {
            wrong("cpus", format!("`recorder.cpus`: {error}"));
        }
        let (sets, rules) = (self.sets(), self.rules());
        if let Err(text) = &sets {
            wrong("set", format!("`recorder.set`: {text}"));
        }
        if let Err(text) = &rules {
            wrong("on", format!("`recorder.on`: {text}"));
        }
        let (Ok(sets), Ok(rules)) = (sets, rules) else { return };
        for action in rules.iter().flat_map(|rule| &rule.actions) {
            if let Action::Set { name, .. } = action
                && !sets.iter().any(|set| set.name == *name)
            {
                let text = format!("`recorder.on`: there is no set `{name}` in `recorder.set`");
                found.push(Wrong { refers_to_another_key: true, ..Wrong::of("recorder.on", nth, text) });
            }
        }
    }
}
