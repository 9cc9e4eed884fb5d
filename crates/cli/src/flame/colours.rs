//! The colour of a frame: what kind of code it is, a little different for each name.
//!
//! **Invariant:** a name has the same colour in every picture.

use crate::picture::folded::{Marks, frame_text};
use inferno::flamegraph::color::{Color, PaletteMap};
use pmux::profile::{CodeKind, Inlining, SourceLines, WaitKind};

pub(super) fn of(places: &SourceLines) -> PaletteMap {
    let mut map = PaletteMap::default();
    for place in places.all() {
        let name = frame_text(place, Marks::Shown);
        // Where a program and a library have functions of one name the first one met decides.
        if map.get(&name).is_none() {
            let base = match (place.kind, place.inlining) {
                // Cold, and each kind another one: nothing runs there.
                (CodeKind::Wait, _) => {
                    let kind = WaitKind::ALL.into_iter().find(|kind| kind.name() == &*place.function);
                    of_wait(kind.unwrap_or(WaitKind::Other))
                }
                (CodeKind::Kernel, _) => (236, 130, 50),
                (CodeKind::Jit, _) => (90, 190, 90),
                (CodeKind::Unknown, _) => (180, 180, 180),
                (_, Inlining::Inlined) => (90, 195, 195),
                (CodeKind::Library, _) => (235, 205, 80),
                (CodeKind::Program, _) => (235, 100, 85),
            };
            let color = shade(base, &name);
            map.insert(name, color);
        }
    }
    map
}

pub(crate) const fn of_wait(kind: WaitKind) -> (u8, u8, u8) {
    match kind {
        WaitKind::RunQueue => (200, 120, 200),
        WaitKind::Sleep => (150, 190, 235),
        WaitKind::Lock => (120, 110, 225),
        WaitKind::Io => (80, 165, 165),
        WaitKind::PageFault => (110, 200, 190),
        WaitKind::Pipe => (90, 150, 215),
        WaitKind::Poll => (125, 205, 235),
        WaitKind::Child => (165, 175, 205),
        WaitKind::Signal => (175, 165, 225),
        WaitKind::Other => (160, 180, 200),
    }
}

/// The colour of what stands at the bottom.
pub(super) const ROOT: Color = Color { r: 165, g: 160, b: 205 };

fn shade((r, g, b): (u8, u8, u8), name: &str) -> Color {
    // FNV-1a: it is the same tomorrow.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let by = (hash >> 32) as u8 % 32;
    let darker = |value: u8| value.saturating_sub(by);
    Color { r: darker(r), g: darker(g), b: darker(b) }
}
