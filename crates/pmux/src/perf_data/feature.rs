//! Features: what a file tells beside its records.
//!
//! What it is: an encoder for each feature that is written. Read first: [`Feature`].
//!
//! **Invariant:** pure: what is told comes as arguments.

use super::{EventDesc, FeatureBytes, attr_bytes, encoded, kind, record};
use pmux_linux::machine::{CpuPlace, Machine};

/// The features that are written, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Feature {
    /// What the fields of tracepoints mean.
    TracingData = 1,
    /// Build ids of what was mapped.
    BuildId = 2,
    /// The host.
    HostName = 3,
    /// The kernel.
    OsRelease = 4,
    /// Who wrote the file.
    Version = 5,
    /// The kind of processor.
    Arch = 6,
    /// The number of CPUs.
    NrCpus = 7,
    /// The processor in words.
    CpuDesc = 8,
    /// The processor's identity.
    CpuId = 9,
    /// The memory.
    TotalMem = 10,
    /// The words of the command that recorded.
    CmdLine = 11,
    /// The events, with their names.
    EventDesc = 12,
    /// How CPUs belong together.
    CpuTopology = 13,
    /// The numbers of PMUs.
    PmuMappings = 16,
    /// Groups of events.
    GroupDesc = 17,
    /// When the first and the last sample was taken.
    SampleTime = 21,
    /// The resolution of the clock.
    ClockId = 23,
    /// How records are compressed.
    Compressed = 27,
    /// What time of day it was at a time of the clock.
    ClockData = 29,
    /// When CPUs were away: pmux's own. Who doesn't know it leaves it out.
    Absences = 63,
}

/// Strings of features are padded to so many bytes.
const NAME_ALIGN: usize = 64;

/// Puts numbers and strings one after another.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_ne_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &[u8]) -> Self {
        let padded = (text.len() + 1).next_multiple_of(NAME_ALIGN);
        let mut out = self.u32(padded as u32).bytes(text);
        out.0.resize(out.0.len() + padded - text.len(), 0);
        out
    }

    fn texts<T: AsRef<[u8]>>(self, texts: &[T]) -> Self {
        texts.iter().fold(self.u32(texts.len() as u32), |out, text| out.text(text.as_ref()))
    }
}

/// When CPUs were away: each with its number, from when, and until when, in ns of the clock; `None`: it is away still.
#[must_use]
pub fn absences(all: impl ExactSizeIterator<Item = (u32, u64, Option<u64>)>) -> FeatureBytes {
    let out = Out::default().u64(all.len() as u64);
    let out =
        all.fold(out, |out, (cpu, from_ns, to_ns)| out.u64(u64::from(cpu)).u64(from_ns).u64(to_ns.unwrap_or(u64::MAX)));
    (Feature::Absences, out.0)
}

/// A feature that is one string.
#[must_use]
pub fn text(feature: Feature, text: &str) -> FeatureBytes {
    (feature, Out::default().text(text.as_bytes()).0)
}

/// What a machine tells of itself, over so many CPUs that can be there and so many that are.
#[must_use]
pub fn of_machine(machine: &Machine, present: u32, online: u32) -> Vec<FeatureBytes> {
    let texts = [
        (Feature::HostName, machine.host_name()),
        (Feature::OsRelease, machine.kernel_release()),
        (Feature::Version, Some(concat!("pmux ", env!("CARGO_PKG_VERSION")).to_owned())),
        (Feature::Arch, Some(machine.architecture().to_owned())),
        (Feature::CpuDesc, machine.processor()),
        (Feature::CpuId, machine.processor_id()),
    ];
    let mut features: Vec<_> = texts.into_iter().filter_map(|(feature, found)| Some(text(feature, &found?))).collect();
    features.push((Feature::NrCpus, Out::default().u32(present).u32(online).0));
    features.extend(machine.memory_kib().map(|kib| (Feature::TotalMem, Out::default().u64(kib).0)));
    let places: Option<Vec<_>> = (0..present).map(|cpu| machine.place(cpu)).collect();
    features.extend(places.map(|places| topology(&places)));
    features
}

/// How CPUs belong together; `places` are those of CPU 0 to the last one.
#[must_use]
pub fn topology(places: &[CpuPlace]) -> FeatureBytes {
    let distinct = |of: fn(&CpuPlace) -> &String| {
        let mut lists: Vec<&String> = Vec::new();
        for place in places {
            if !lists.contains(&of(place)) {
                lists.push(of(place));
            }
        }
        lists
    };
    let out = Out::default().texts(&distinct(|place| &place.package_cpus)).texts(&distinct(|place| &place.core_cpus));
    let out = places.iter().fold(out, |out, place| out.u32(place.core).u32(place.package));
    // Readers take what follows for dies, padding too: so they are always told.
    let out = out.texts(&distinct(|place| &place.die_cpus));
    let out = places.iter().fold(out, |out, place| out.u32(place.die));
    (Feature::CpuTopology, out.0)
}

/// The words of the command line; the program first.
#[must_use]
pub fn command_line<T: AsRef<[u8]>>(words: &[T]) -> FeatureBytes {
    (Feature::CmdLine, Out::default().texts(words).0)
}

/// The events.
#[must_use]
pub fn events(events: &[EventDesc]) -> FeatureBytes {
    let bytes = attr_bytes(events);
    let out = Out::default().u32(events.len() as u32).u32(bytes as u32);
    let out = events.iter().fold(out, |out, event| {
        let out = out.bytes(&encoded(&event.attr, bytes)).u32(event.ids.len() as u32).text(event.name.as_bytes());
        event.ids.iter().fold(out, |out, &id| out.u64(id))
    });
    (Feature::EventDesc, out.0)
}

/// PMUs by their numbers.
#[must_use]
pub fn pmus(pmus: &[(u32, String)]) -> FeatureBytes {
    let out = Out::default().u32(pmus.len() as u32);
    (Feature::PmuMappings, pmus.iter().fold(out, |out, (number, name)| out.u32(*number).text(name.as_bytes())).0)
}

/// Groups, each with a name, its leader's place among the events, and how many there are.
#[must_use]
pub fn groups(groups: &[(String, u32, u32)]) -> FeatureBytes {
    let out = Out::default().u32(groups.len() as u32);
    let group =
        |out: Out, (name, leader, events): &(String, u32, u32)| out.text(name.as_bytes()).u32(*leader).u32(*events);
    (Feature::GroupDesc, groups.iter().fold(out, group).0)
}

/// When the first and the last sample was taken, in ns of the clock.
#[must_use]
pub fn sample_time(first_ns: u64, last_ns: u64) -> FeatureBytes {
    (Feature::SampleTime, Out::default().u64(first_ns).u64(last_ns).0)
}

/// The clock: its number, and a moment on it together with the time since 1970, in ns.
#[must_use]
pub fn clock(clock_id: u32, since_1970_ns: u64, clock_ns: u64) -> [FeatureBytes; 2] {
    let data = Out::default().u32(1).u32(clock_id).u64(since_1970_ns).u64(clock_ns).0;
    [(Feature::ClockId, Out::default().u64(1).0), (Feature::ClockData, data)]
}

/// How records are compressed: with zstd, so many times, from so many bytes at a time. The version is 0, as in the files of `perf
/// record`: its format document says 1, and there are readers that refuse that.
#[must_use]
pub fn compressed(ratio: u32, most_bytes: u32) -> FeatureBytes {
    const ZSTD: u32 = 1;
    (Feature::Compressed, Out::default().u32(0).u32(ZSTD).u32(1).u32(ratio).u32(most_bytes).0)
}

/// Whose build id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// Of the kernel or one of its modules.
    Kernel,
    /// Of a program.
    User,
}

/// One build id with its file, as a record. Ids have at most 20 bytes; what is longer is cut.
#[must_use]
pub fn build_id(space: Space, id: &[u8], path: &[u8]) -> Vec<u8> {
    /// The size of the id is told.
    const MISC_SIZE: u16 = 1 << 15;
    let (misc, pid) = match space {
        Space::Kernel => (1, -1),
        Space::User => (2, -1_i32),
    };
    let mut field = [0_u8; 24];
    let bytes = id.len().min(20);
    field[..bytes].copy_from_slice(&id[..bytes]);
    field[20] = bytes as u8;
    let mut name = path.to_vec();
    name.resize((path.len() + 1).next_multiple_of(NAME_ALIGN), 0);
    // The record is whole words, though the number of the process isn't.
    record(kind::HEADER_BUILD_ID, misc | MISC_SIZE, &[&pid.to_ne_bytes(), &field, &name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_padded_and_end() {
        let (_, bytes) = text(Feature::HostName, "h");
        assert_eq!((bytes.len(), &bytes[..6]), (68, &[64, 0, 0, 0, b'h', 0][..]));
        let (_, bytes) = text(Feature::HostName, &"h".repeat(64));
        assert_eq!(bytes.len(), 4 + 128);
    }

    #[test]
    fn each_list_of_cpus_is_told_once() {
        let place = |core, core_cpus: &str| CpuPlace {
            core,
            package: 0,
            package_cpus: "0-1".to_owned(),
            die: 0,
            die_cpus: "0-1".to_owned(),
            core_cpus: core_cpus.to_owned(),
        };
        let (_, bytes) = topology(&[place(0, "0"), place(1, "1")]);
        assert_eq!(bytes.len(), (4 + 68) + (4 + 2 * 68) + 2 * 8 + (4 + 68) + 2 * 4);
    }

    #[test]
    fn a_build_id_is_a_record() {
        let bytes = build_id(Space::User, &[1, 2, 3], b"/bin/x");
        assert_eq!(bytes.len(), (8 + 4 + 24 + 64_usize).next_multiple_of(8));
        assert_eq!((bytes[12], bytes[8 + 4 + 20]), (1, 3));
    }
}
