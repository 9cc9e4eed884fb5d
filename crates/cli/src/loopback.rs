//! Serving a browser on this machine: `pmux view` and `pmux status --page`.
//!
//! What it is: the sockets around a function that makes an answer of the bytes of a request, and the secret that stands in a link.
//! Read first: [`serve`].
//!
//! **Invariant:** any program of this machine may connect, and may send anything, or nothing: a request has a limit in bytes and time, and
//! each is answered by a thread of its own, of which there are at most [`MOST_AT_ONCE`]. A slow peer holds one of these places, and for a
//! shorter time where many are taken.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MOST_AT_ONCE: usize = 32;
/// So long may a request take.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long may it take where half of the places are taken.
const SHORT_PATIENCE: Duration = Duration::from_millis(200);

/// What a peer may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// A request is no longer.
    pub(crate) bytes: usize,
    /// So long may each piece of an answer take.
    pub(crate) write: Duration,
}

/// 128 bits that cannot be guessed, as they may stand in a link.
///
/// # Errors
/// Those of reading `/dev/urandom`.
pub(crate) fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is written: the first, then the second, which may be the same for many.
pub(crate) type Answer = (Vec<u8>, Arc<Vec<u8>>);

/// Serves for ever. `answer` is given what has come of a request; `None` where that is not all of it.
pub(crate) fn serve(
    listener: &TcpListener,
    limits: Limits,
    answer: impl Fn(&[u8]) -> Option<Answer> + Send + Sync + 'static,
) -> ! {
    let answer = Arc::new(answer);
    // A count only: nothing else is ordered by it.
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // No file is free, say: it may be later.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let before = busy.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(&busy));
        if before >= MOST_AT_ONCE {
            continue;
        }
        let patience = if before >= MOST_AT_ONCE / 2 { SHORT_PATIENCE } else { PATIENCE };
        let answer = Arc::clone(&answer);
        // Where there is no thread, the connection is closed.
        let _ = std::thread::Builder::new().spawn(move || {
            let _place = place;
            // A client that hangs up has what it wanted.
            let _ = talk(stream, limits, patience, &*answer);
        });
    }
}

/// One of those that are answered.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn talk(
    mut stream: TcpStream,
    limits: Limits,
    patience: Duration,
    answer: &dyn Fn(&[u8]) -> Option<Answer>,
) -> io::Result<()> {
    let until = Instant::now() + patience;
    let (mut request, mut block) = (Vec::new(), [0; 2048]);
    let answer = loop {
        // A time of zero is refused.
        stream.set_read_timeout(Some(until.saturating_duration_since(Instant::now())))?;
        // One byte more than there may be says that there are more.
        let room = block.len().min(limits.bytes.saturating_sub(request.len()).max(1));
        let read = stream.read(&mut block[..room])?;
        request.extend_from_slice(&block[..read]);
        if let Some(answer) = answer(&request) {
            break answer;
        }
        if read == 0 || request.len() > limits.bytes {
            return Ok(());
        }
    };
    stream.set_write_timeout(Some(limits.write))?;
    stream.write_all(&answer.0)?;
    stream.write_all(&answer.1)
}
