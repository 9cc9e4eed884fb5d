//! What the fields of tracepoints mean: the files of tracefs, one after another.
//!
//! What it is: the feature that lets a reader take raw data apart. Read first: [`tracing_data`].
//!
//! **Invariant:** pure: the texts come from [`pmux_linux::catalog::Catalog::formats_of`].
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt`; what `perf record` 6.1 writes.

use super::FeatureBytes;
use super::feature::Feature;
use pmux_linux::catalog::TracingFiles;

fn sized(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_ne_bytes());
    out.extend(text);
}

fn named(out: &mut Vec<u8>, name: &str) {
    out.extend(name.as_bytes());
    out.push(0);
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_ne_bytes());
}

/// The feature, of these files.
#[must_use]
pub fn tracing_data(files: &TracingFiles, page_bytes: u32) -> FeatureBytes {
    let mut out = vec![23, 8, 68];
    out.extend(b"tracing");
    named(&mut out, "0.6");
    out.push(u8::from(cfg!(target_endian = "big")));
    out.push(size_of::<usize>() as u8);
    out.extend(page_bytes.to_ne_bytes());
    for (name, text) in [("header_page", &files.header_page), ("header_event", &files.header_event)] {
        named(&mut out, name);
        sized(&mut out, text);
    }
    // Formats of the function tracer: they are no events.
    count(&mut out, 0);
    count(&mut out, files.systems.len());
    for (system, formats) in &files.systems {
        named(&mut out, system);
        count(&mut out, formats.len());
        formats.iter().for_each(|format| sized(&mut out, format));
    }
    // No symbols: readers don't look at them.
    count(&mut out, 0);
    count(&mut out, files.printk_formats.len());
    out.extend(&files.printk_formats);
    // No names of tasks: the records have them.
    out.extend(0_u64.to_ne_bytes());
    (Feature::TracingData, out)
}
