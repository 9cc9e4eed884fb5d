//! Hits of breakpoints of which the event learns nothing.
//!
//! On some virtual machines a thread may lose its CPU between an access to a watched address and the debug exception for it. When the
//! exception arrives, the kernel finds no event in the register, and takes it for the program's own: the hit is missing in the
//! count, and the program gets SIGTRAP, which ends it unless it handles the signal. See docs/limits.md.

use signal_hook::consts::SIGTRAP;
use signal_hook::low_level::pipe;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// One byte for each SIGTRAP.
static SIGNALS: OnceLock<UnixStream> = OnceLock::new();

fn signals() -> &'static UnixStream {
    SIGNALS.get_or_init(|| {
        let (reader, writer) = UnixStream::pair().unwrap();
        reader.set_nonblocking(true).unwrap();
        pipe::register(SIGTRAP, writer).unwrap();
        reader
    })
}

/// From now on this process lives on where a hit comes late.
pub fn survive_late_hits() {
    signals();
}

/// How many hits came late since this was last called, or since [`survive_late_hits`].
pub fn late_hits() -> u64 {
    let (mut reader, mut bytes, mut late_hits) = (signals(), [0; 64], 0);
    while let Ok(count) = reader.read(&mut bytes) {
        late_hits += count as u64;
    }
    late_hits
}
