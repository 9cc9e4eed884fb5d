//! Where the names of functions come from: the options that all commands have which read a recording.
//!
//! **Invariant:** plain data, and what it means in words of the library. No server on the network is asked unless the option for it
//! was typed.

use clap::Args;
use pmux::profile::Sources;
use std::ffi::OsStr;
use std::path::PathBuf;

// Where names come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct SymbolOptions {
    /// Look for programs and libraries below DIR, as if it were the root of the recorded machine
    #[arg(long, value_name = "DIR", help_heading = "Where names come from")]
    pub(crate) symfs: Option<PathBuf>,

    /// Take the kernel's names and lines from this image of it, if it is the build that was recorded
    #[arg(short = 'k', long, value_name = "FILE", help_heading = "Where names come from")]
    pub(crate) vmlinux: Option<PathBuf>,

    /// Ask debuginfod servers for what is not here: those that are named, or those of DEBUGINFOD_URLS
    #[arg(long, value_name = "URL,…", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(conflicts_with = "no_cache", help_heading = "Where names come from")]
    pub(crate) debuginfod: Option<String>,

    /// Find everything out anew, and keep nothing for the next time
    #[arg(long, help_heading = "Where names come from")]
    pub(crate) no_cache: bool,
}

impl SymbolOptions {
    /// The same for the library. `urls` is what DEBUGINFOD_URLS says.
    pub(crate) fn sources(&self, urls: Option<&OsStr>) -> Result<Sources, String> {
        let Self { symfs, vmlinux, debuginfod, no_cache } = self;
        if let Some(folder) = symfs.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(format!("--symfs {}: there is no such folder", folder.display()));
        }
        let unreadable = vmlinux.as_ref().and_then(|image| Some((image, std::fs::File::open(image).err()?)));
        if let Some((image, error)) = unreadable {
            return Err(format!("--vmlinux {}: it can't be read: {error}", image.display()));
        }
        let servers: Vec<String> = match debuginfod.as_deref() {
            None => Vec::new(),
            Some("") => urls.and_then(OsStr::to_str).unwrap_or("").split_whitespace().map(str::to_owned).collect(),
            Some(typed) => typed.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect(),
        };
        if debuginfod.is_some() && servers.is_empty() {
            return Err("--debuginfod: DEBUGINFOD_URLS names no server: name one, --debuginfod=URL".to_owned());
        }
        if let Some(odd) = servers.iter().find(|url| !(url.starts_with("http://") || url.starts_with("https://"))) {
            return Err(format!("--debuginfod={odd}: the address of a server begins with http:// or https://"));
        }
        let usual = if *no_cache { Sources::default() } else { Sources::usual() };
        if !servers.is_empty() && usual.cache.is_none() {
            return Err(
                "--debuginfod keeps what comes, and there is no place for it: set HOME or XDG_CACHE_HOME".to_owned()
            );
        }
        Ok(Sources { symfs: symfs.clone(), vmlinux: vmlinux.clone(), debuginfod: servers, ..usual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_those_that_were_named() {
        let asked = |debuginfod: Option<&str>, urls: Option<&str>| {
            let options = SymbolOptions { debuginfod: debuginfod.map(str::to_owned), ..SymbolOptions::default() };
            options.sources(urls.map(OsStr::new)).map(|sources| sources.debuginfod)
        };
        // Without the option, no server is asked.
        assert_eq!(asked(None, Some("http://a")), Ok(Vec::new()));
        assert_eq!(asked(Some("http://b,https://c"), Some("http://a")).unwrap(), ["http://b", "https://c"]);
        assert_eq!(asked(Some(""), Some("http://a  http://d ")).unwrap(), ["http://a", "http://d"]);
        assert!(asked(Some(""), None).unwrap_err().contains("DEBUGINFOD_URLS"));
        assert!(asked(Some("ftp://x"), None).unwrap_err().contains("http://"));
        let options = SymbolOptions { symfs: Some("/nonexistent".into()), ..SymbolOptions::default() };
        assert!(options.sources(None).unwrap_err().contains("/nonexistent"));
    }
}
