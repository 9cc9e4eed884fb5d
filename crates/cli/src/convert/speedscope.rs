//! speedscope's own format: the samples of each thread and event, one after another.
//!
//! Source: <https://www.speedscope.app/file-format-schema.json>.

use crate::picture::{Drawn, Unit, unit};
use pmux::profile::{PlaceId, Whole};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

pub(super) fn write(drawn: &Drawn<Whole>, out: &mut dyn Write) -> io::Result<()> {
    let Drawn { profile, places, kept, .. } = drawn;
    let frames: Vec<Value> = places
        .all()
        .iter()
        .map(|place| {
            let mut frame = json!({ "name": &*place.function });
            // A program stands for the file where lines are not known.
            let program = || profile.names.get(profile.modules.get(place.module).short);
            frame["file"] = place.file.as_deref().unwrap_or_else(program).into();
            if let Some(line) = place.line {
                frame["line"] = line.into();
            }
            frame
        })
        .collect();
    let mut profiles: BTreeMap<_, (Vec<Vec<usize>>, Vec<u64>)> = BTreeMap::new();
    for sample in &kept.samples {
        let (stacks, weights) = profiles.entry((sample.event, sample.thread)).or_default();
        let mut stack: Vec<usize> = places.of_stack(profile, sample.stack).map(PlaceId::index).collect();
        stack.reverse();
        stacks.push(stack);
        weights.push(sample.period);
    }
    let mut profiles: Vec<_> = profiles.into_iter().collect();
    // What weighs most is shown first.
    profiles.sort_by_key(|((event, _), (_, weights))| (*event, std::cmp::Reverse(weights.iter().sum::<u64>())));
    let events = drawn.events();
    let profiles: Vec<Value> = profiles
        .into_iter()
        .map(|((event, thread), (samples, weights))| {
            let event = &profile.events[event as usize].name;
            let thread = profile.tasks.thread(thread);
            let mut name = format!("{} (thread {})", profile.names.get(thread.name()), thread.tid);
            if events.len() > 1 {
                name = format!("{event}: {name}");
            }
            let unit = if unit(event) == Unit::Nanoseconds { "nanoseconds" } else { "none" };
            let end = weights.iter().sum::<u64>();
            json!({
                "type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": end,
                "samples": samples, "weights": weights,
            })
        })
        .collect();
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("pmux ", env!("CARGO_PKG_VERSION")),
        "name": drawn.name,
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    serde_json::to_writer(out, &file).map_err(io::Error::from)
}
