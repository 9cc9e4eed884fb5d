//! What `pmux record` says: how far it is, what was written, what was lost and what helps; or the same as JSON.
//!
//! **Invariant:** pure.

use pmux::record::{Absence, Progress};
use pmux::units::{bytes_text as bytes, number_text as number};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn samples(count: u64) -> String {
    if count == 1 { "1 sample".to_owned() } else { format!("{} samples", number(count)) }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", number(count)) }
}

/// How far it is.
pub(super) fn so_far(seconds: u64, progress: &Progress, written_bytes: u64) -> String {
    let lost = if progress.lost > 0 { format!(", {} lost", number(progress.lost)) } else { String::new() };
    format!("recording: {seconds} s, {}{lost}, {}", samples(progress.samples), bytes(written_bytes))
}

/// What was written, and what should be known about it. There is a ring on each of so many CPUs; without a number, one that the service
/// writes.
pub(super) fn summary(
    progress: &Progress,
    written_bytes: u64,
    to: &Path,
    files: usize,
    (ring_bytes, on_cpus): (u64, Option<usize>),
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
            match on_cpus {
                Some(1) => format!("the ring of {} on 1 CPU", bytes(ring_bytes)),
                Some(cpus) => format!("rings of {} on {cpus} CPUs", bytes(ring_bytes)),
                None => format!("rings in the kernel, or the one of {} that the service writes,", bytes(ring_bytes)),
            },
            bytes(ring_bytes.saturating_mul(4)).replace(" MiB", "M").replace(" KiB", "K").replace(" GiB", "G"),
        ));
    }
    if progress.throttled > 0 {
        lines.push(format!(
            "the kernel held events back {} because they came too often: samples are missing there\n  what helps: a \
             lower -F, or a larger kernel.perf_event_max_sample_rate",
            times(progress.throttled)
        ));
    }
    lines
}

/// A recording that has ended, for programs. Times are those of `CLOCK_MONOTONIC`, as in the samples.
pub(super) struct Ended<'a> {
    pub(super) progress: Progress,
    pub(super) written_bytes: u64,
    /// The last file; `None` is standard output.
    pub(super) file: Option<&'a Path>,
    pub(super) files: usize,
    pub(super) ring_bytes: u64,
    /// The socket of the service that recorded.
    pub(super) service: Option<&'a Path>,
    /// How long that was away.
    pub(super) gap: Duration,
    pub(super) absences: &'a [Absence],
    pub(super) notes: &'a [String],
    /// What ended before the recording did.
    pub(super) target_ended: Option<&'a str>,
    pub(super) status: u8,
}

/// One line of JSON, with its end.
pub(super) fn to_json(ended: &Ended<'_>) -> String {
    let Progress { samples, records, lost, throttled, .. } = ended.progress;
    let (first_ns, last_ns) = ended.progress.sampled_ns().unzip();
    let absence = |absence: &Absence| {
        let (from_ns, to_ns) = (absence.from.0, absence.to.map(|to| to.0));
        json!({ "cpu": absence.cpu, "from_ns": from_ns, "to_ns": to_ns })
    };
    let value = json!({
        "file": ended.file.map(Path::to_string_lossy),
        "files": ended.files,
        "bytes": ended.written_bytes,
        "samples": samples,
        "records": records,
        "lost": lost,
        "throttled": throttled,
        "first_ns": first_ns,
        "last_ns": last_ns,
        "ring_bytes": ended.ring_bytes,
        "service": ended.service.map(Path::to_string_lossy),
        "service_away_ns": ended.gap.as_nanos() as u64,
        "offline": ended.absences.iter().map(absence).collect::<Vec<_>>(),
        "notes": ended.notes,
        "target_ended": ended.target_ended,
        "status": ended.status,
    });
    format!("{value}\n")
}

/// Which CPUs were away, and for how long, at the end of the recording.
pub(super) fn away(absences: &[Absence], ended_ns: u64) -> Vec<String> {
    let mut cpus: Vec<u32> = absences.iter().map(|absence| absence.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let line = |cpu: u32| {
        let of = || absences.iter().filter(move |absence| absence.cpu == cpu);
        let span_ns = |absence: &Absence| absence.to.map_or(ended_ns, |to| to.0).saturating_sub(absence.from.0);
        let seconds = Duration::from_nanos(of().map(span_ns).sum()).as_secs_f64();
        let times = times(of().count() as u64);
        let now = if of().any(|absence| absence.to.is_none()) { "is away still" } else { "is recorded again" };
        format!("CPU {cpu} was not recorded for {seconds:.2} s: it was offline {times}, and {now}")
    };
    cpus.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmux::Nanos;

    #[test]
    fn absent_cpus_are_reported_once() {
        let absence = |cpu, from, to: Option<u64>| Absence { cpu, from: Nanos(from), to: to.map(Nanos) };
        let second = 1_000_000_000;
        let absences = [absence(3, 0, None), absence(1, 0, Some(second)), absence(1, second, Some(2 * second))];
        let lines = away(&absences, 3 * second);
        assert_eq!(lines[0], "CPU 1 was not recorded for 2.00 s: it was offline 2 times, and is recorded again");
        assert_eq!(lines[1], "CPU 3 was not recorded for 3.00 s: it was offline once, and is away still");
        assert!(away(&[], 0).is_empty());
    }

    #[test]
    fn json_has_what_the_text_has() {
        let mut progress = Progress::default();
        (progress.samples, progress.records, progress.lost) = (1, 3, 2);
        let absences = [Absence { cpu: 3, from: Nanos(7), to: None }];
        let ended = Ended {
            progress,
            written_bytes: 100,
            file: Some(Path::new("x \" y")),
            files: 1,
            ring_bytes: 4096,
            service: None,
            gap: Duration::from_nanos(5),
            absences: &absences,
            notes: &["a note".to_owned()],
            target_ended: None,
            status: 3,
        };
        let text = to_json(&ended);
        assert_eq!(text.lines().count(), 1, "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let right = json!({
            "file": "x \" y", "files": 1, "bytes": 100, "samples": 1, "records": 3, "lost": 2, "throttled": 0,
            "first_ns": null, "last_ns": null, "ring_bytes": 4096, "service": null, "service_away_ns": 5,
            "offline": [{ "cpu": 3, "from_ns": 7, "to_ns": null }], "notes": ["a note"], "target_ended": null, "status": 3
        });
        assert_eq!(read, right);
        let nowhere = Ended { file: None, ..ended };
        assert!(to_json(&nowhere).contains(r#""file":null"#));
    }

    #[test]
    fn a_loss_is_told_with_what_helps() {
        let mut progress = Progress::default();
        (progress.samples, progress.records, progress.lost) = (1, 3, 1);
        let lines = summary(&progress, 100, Path::new("x"), 1, (1 << 20, Some(2)));
        assert_eq!(lines[0], "wrote 1 sample of 100 bytes to x");
        assert!(lines[1].starts_with("lost 1 records (25.0 %): rings of 1 MiB on 2 CPUs"), "{lines:?}");
        assert!(lines[1].contains("-m 4M"), "{lines:?}");
        let lines = summary(&progress, 100, Path::new("x"), 1, (1 << 20, None));
        assert!(lines[1].contains("or the one of 1 MiB that the service writes, filled up"), "{lines:?}");
    }
}
