//! speedscope's own format: the samples of each thread and event, one after another.
//!
//! Source: <https://www.speedscope.app/file-format-schema.json>.

use crate::picture::{Drawn, Unit, unit};
use pmux::profile::{SourceLine, SourceLineId, Whole};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

pub(super) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let Drawn { profile, places, kept, .. } = drawn;
    let frame = |place: &SourceLine| {
        let mut frame = json!({ "name": &*place.function });
        // A program stands for the file where lines are not known.
        let program = || profile.names.get(profile.modules.get(place.module).short);
        frame["file"] = place.file.as_deref().unwrap_or_else(program).into();
        if let Some(line) = place.line {
            frame["line"] = line.into();
        }
        frame
    };
    let frames: Vec<Value> = places.all().iter().map(frame).collect();
    // The samples of each profile, by their places: the text of all of them at once would be many times as large.
    let mut profiles: BTreeMap<_, (Vec<u32>, u64)> = BTreeMap::new();
    for (place, sample) in (0..).zip(&kept.samples) {
        let (samples, weight) = profiles.entry((sample.event, sample.thread)).or_default();
        samples.push(place);
        *weight += sample.period;
    }
    let mut profiles: Vec<_> = profiles.into_iter().collect();
    // What weighs most is shown first.
    pmux::order::sort_by_key(&mut profiles, |((event, _), (_, weight))| (*event, Reverse(*weight)));
    let has_many = drawn.events().len() > 1;
    let head = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("pmux ", env!("CARGO_PKG_VERSION")),
        "name": drawn.name,
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
    });
    open_object(&head, "profiles", out)?;
    for (place, ((event, thread), (samples, weight))) in profiles.into_iter().enumerate() {
        let event = &profile.events[event as usize];
        let thread = profile.tasks.thread(thread);
        let mut name = format!("{} (thread {})", profile.names.get(thread.name()), thread.tid);
        if has_many {
            name = format!("{}: {name}", event.name);
        }
        let unit = if unit(event) == Unit::Nanoseconds { "nanoseconds" } else { "none" };
        if place > 0 {
            out.write_all(b",")?;
        }
        let about = json!({ "type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": weight });
        let taken = || samples.iter().map(|&place| &kept.samples[place as usize]);
        open_object(&about, "samples", out)?;
        let mut stack: Vec<usize> = Vec::new();
        for (place, sample) in taken().enumerate() {
            stack.clear();
            stack.extend(places.of_stack(profile, sample.stack).map(SourceLineId::index));
            stack.reverse();
            if place > 0 {
                out.write_all(b",")?;
            }
            serde_json::to_writer(&mut *out, &stack)?;
        }
        out.write_all(b"],\"weights\":[")?;
        for (place, sample) in taken().enumerate() {
            let between = if place > 0 { "," } else { "" };
            write!(out, "{between}{}", sample.period)?;
        }
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}")
}

/// Writes an object up to the beginning of a list, which is its last member.
fn open_object(members: &Value, list: &str, out: &mut dyn Write) -> io::Result<()> {
    let text = members.to_string();
    write!(out, "{},\"{list}\":[", text.strip_suffix('}').unwrap_or(&text))
}
