//! What `pmux record` says: how far it is, what was written, what was lost and what helps.
//!
//! **Invariant:** pure.

use pmux::record::Progress;
use pmux_daemon::units::{bytes_text as bytes, number_text as number};
use std::path::Path;

fn samples(count: u64) -> String {
    if count == 1 { "1 sample".to_owned() } else { format!("{} samples", number(count)) }
}

/// How far it is.
pub(super) fn so_far(seconds: u64, progress: &Progress, written_bytes: u64) -> String {
    let lost = if progress.lost > 0 { format!(", {} lost", number(progress.lost)) } else { String::new() };
    format!("recording: {seconds} s, {}{lost}, {}", samples(progress.samples), bytes(written_bytes))
}

/// Which rings are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rings {
    /// One on each of so many CPUs.
    OnCpus(usize),
    /// One that the service writes.
    OfService,
}

/// What was written, and what should be known about it.
pub(super) fn summary(
    progress: &Progress,
    written_bytes: u64,
    to: &Path,
    files: usize,
    (ring_bytes, rings): (u64, Rings),
) -> Vec<String> {
    let place = match files {
        0 | 1 => to.display().to_string(),
        files => format!("{files} files, the last one {}", to.display()),
    };
    let mut lines = vec![format!("wrote {} of {} to {place}", samples(progress.samples), bytes(written_bytes))];
    if progress.lost > 0 {
        let all = progress.records.saturating_add(progress.lost).max(1);
        let share = progress.lost as f64 * 100.0 / all as f64;
        lines.push(format!(
            "lost {} records ({share:.1} %): {} filled up before they were read\n  what helps: \
             larger rings (-m {}), fewer samples (-F, -c), shorter ones (without -g)",
            number(progress.lost),
            match rings {
                Rings::OnCpus(1) => format!("the ring of {} on 1 CPU", bytes(ring_bytes)),
                Rings::OnCpus(cpus) => format!("rings of {} on {cpus} CPUs", bytes(ring_bytes)),
                Rings::OfService =>
                    format!("rings in the kernel, or the one of {} that the service writes,", bytes(ring_bytes)),
            },
            bytes(ring_bytes.saturating_mul(4)).replace(" MiB", "M").replace(" KiB", "K").replace(" GiB", "G"),
        ));
    }
    if progress.throttled > 0 {
        lines.push(format!(
            "the kernel held events back {} times because they came too often: samples are missing there\n  what helps: a \
             lower -F, or a larger kernel.perf_event_max_sample_rate",
            number(progress.throttled)
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_told_with_what_helps() {
        let mut progress = Progress::default();
        (progress.samples, progress.records, progress.lost) = (1, 3, 1);
        let lines = summary(&progress, 100, Path::new("x"), 1, (1 << 20, Rings::OnCpus(2)));
        assert_eq!(lines[0], "wrote 1 sample of 100 bytes to x");
        assert!(lines[1].starts_with("lost 1 records (25.0 %): rings of 1 MiB on 2 CPUs"), "{lines:?}");
        assert!(lines[1].contains("-m 4M"), "{lines:?}");
        let lines = summary(&progress, 100, Path::new("x"), 1, (1 << 20, Rings::OfService));
        assert!(lines[1].contains("or the one of 1 MiB that the service writes, filled up"), "{lines:?}");
    }
}
