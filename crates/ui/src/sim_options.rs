//! `pmux sim`: run scenario files.
//!
//! **Invariant:** plain data, and the one rule that clap can't say.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Run scenario files on a simulated machine or on this kernel
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SimOptions {
    /// Scenario files, or folders, of which all *.scn files are run
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Machine to run them on
    #[arg(long, value_name = "MACHINE", value_enum, default_value_t)]
    pub on: On,

    /// Seed of the simulated machine's random numbers; overrides the file's
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print JSON
    #[arg(short, long = "json")]
    pub json: bool,

    /// Print what happened when; it is printed anyway where one file is run on the simulated machine
    #[arg(long, overrides_with = "no_timeline")]
    pub timeline: bool,

    /// Do not print what happened when
    #[arg(long, overrides_with = "timeline")]
    pub no_timeline: bool,

    /// Say more: what would keep a file from running elsewhere, and how long each took
    #[arg(short, long)]
    pub verbose: bool,
}

/// Which machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// A simulated machine
    #[default]
    Sim,
    /// This machine: tasks are real processes, and its kernel counts them
    Kernel,
}

impl SimOptions {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.seed.is_some() && self.on == On::Kernel {
            return Err("--seed is for the simulated machine: on a kernel nothing begins with a seed".to_owned());
        }
        Ok(())
    }

    /// Whether to print what happened when.
    pub fn wants_timeline(&self) -> bool {
        let one = matches!(&self.files[..], [file] if !file.is_dir());
        self.timeline || (!self.no_timeline && !self.json && self.on == On::Sim && one)
    }
}
