//! What who asks for metrics has to know.
//!
//! **Invariant:** a file that others may read holds no secret, and is refused.

use super::{Listen, MetricsConfig};
use crate::payer::own_user;
use pmux::server_api::open_plain_file;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A shorter one can be guessed.
const LEAST: usize = 16;
const MOST: u64 = 1024;

impl MetricsConfig {
    /// The token of `token_file`: its first line; `None` where there is no such file to read.
    ///
    /// # Errors
    /// A sentence: the file can't be read, others may read it, or what it has is no token; or numbers would be served outside of this machine
    /// without one.
    pub(crate) fn token(&self) -> Result<Option<String>, String> {
        if let Some(why) = self.is_open_to_all() {
            return Err(why);
        }
        let Some(path) = self.token_file.as_ref().filter(|_| self.listen.is_some()) else { return Ok(None) };
        read(path).map(Some).map_err(|why| format!("`metrics.token_file`: {} {why}", path.display()))
    }

    /// A sentence, where all would be answered who reach this machine.
    pub(super) fn is_open_to_all(&self) -> Option<String> {
        let Some(Listen::Tcp(address)) = &self.listen else { return None };
        let is_open = self.token_file.is_none() && !address.ip().is_loopback();
        let why = "can be reached from outside: set `metrics.token_file`, or listen on 127.0.0.1, ::1 or a Unix socket";
        is_open.then(|| format!("{address} {why}"))
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cant_be_read = |error: std::io::Error| match error.raw_os_error() {
        // Of what is opened as a plain file only.
        Some(6) => "is no plain file".to_owned(),
        _ => format!("can't be read: {error}"),
    };
    let file = open_plain_file(path).map_err(cant_be_read)?;
    let seen = file.metadata().map_err(cant_be_read)?;
    if seen.mode() & 0o077 != 0 {
        return Err("may be read by others than its owner: `chmod 600` it, and write another token into it".to_owned());
    }
    if ![0, own_user()].contains(&seen.uid()) {
        return Err(format!("belongs to user {}, which is neither root nor the service's own", seen.uid()));
    }
    let mut bytes = Vec::new();
    file.take(MOST + 1).read_to_end(&mut bytes).map_err(cant_be_read)?;
    if bytes.len() as u64 > MOST {
        return Err(format!("is longer than {MOST} bytes"));
    }
    let text = String::from_utf8_lossy(&bytes);
    let token = text.lines().next().unwrap_or_default().trim();
    // What a header may have (RFC 6750).
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.len() < LEAST || !token.bytes().all(is_letter) {
        let as_by = "as `head -c 24 /dev/urandom | base64` writes them";
        return Err(format!("has no token in its first line: at least {LEAST} letters, digits or -._~+/=, {as_by}"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_is_secret_and_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let token = |listen: &str, file: Option<&Path>| {
            let listen = Some(Listen::try_from(listen.to_owned()).unwrap());
            MetricsConfig { listen, token_file: file.map(Path::to_owned), ..MetricsConfig::default() }.token()
        };
        for listen in ["127.0.0.1:1", "[::1]:1", "/run/x.sock"] {
            assert_eq!(token(listen, None), Ok(None), "{listen}");
        }
        for listen in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(token(listen, None).unwrap_err().contains("can be reached from outside"), "{listen}");
        }
        write(" AbCdEfGhIjKlMnOp+/==  \nmore\n", 0o600);
        for listen in ["127.0.0.1:1", "0.0.0.0:1", "/run/x.sock"] {
            assert_eq!(token(listen, Some(&path)), Ok(Some("AbCdEfGhIjKlMnOp+/==".to_owned())), "{listen}");
        }
        for (text, mode, why) in [
            ("AbCdEfGhIjKlMnOp", 0o640, "others than its owner"),
            ("AbCdEfGhIjKlMnOp", 0o604, "others than its owner"),
            ("", 0o600, "no token"),
            ("\nAbCdEfGhIjKlMnOp", 0o600, "no token"),
            ("short", 0o600, "no token"),
            ("AbCdEfGhIjKl MnOp", 0o600, "no token"),
            ("AbCdEfGhIjKlMnOpé", 0o600, "no token"),
            (&"A".repeat(1025), 0o600, "longer than"),
        ] {
            write(text, mode);
            let error = token("0.0.0.0:1", Some(&path)).unwrap_err();
            assert!(error.contains(why) && error.contains("token_file") && !error.contains("AbCd"), "{error}");
        }
        let off = MetricsConfig { token_file: Some(folder.path().join("none")), ..MetricsConfig::default() };
        assert_eq!(off.token(), Ok(None), "there are no metrics");
        assert!(token("0.0.0.0:1", Some(folder.path())).unwrap_err().contains("is no plain file"));
        assert!(token("0.0.0.0:1", Some(&folder.path().join("none"))).unwrap_err().contains("can't be read"));
    }
}
