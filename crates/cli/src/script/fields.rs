//! Which fields are printed.
//!
//! **Invariant:** pure. What is usual for an event is what `perf script` prints of it.

use pmux::profile::EventInfo;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Field {
    Comm = 1,
    Pid = 1 << 1,
    Tid = 1 << 2,
    Cpu = 1 << 3,
    Time = 1 << 4,
    Event = 1 << 5,
    Period = 1 << 6,
    Ip = 1 << 7,
    Symbol = 1 << 8,
    Offset = 1 << 9,
    Dso = 1 << 10,
    Address = 1 << 11,
    Trace = 1 << 12,
    Callchain = 1 << 13,
    Cgroup = 1 << 14,
    DataSource = 1 << 15,
    Weight = 1 << 16,
    PhysicalAddress = 1 << 17,
    InterruptRegisters = 1 << 18,
    UserRegisters = 1 << 19,
    SourceLine = 1 << 20,
    Branches = 1 << 21,
}

const NAMES: [(&str, Field); 22] = [
    ("comm", Field::Comm),
    ("pid", Field::Pid),
    ("tid", Field::Tid),
    ("cpu", Field::Cpu),
    ("time", Field::Time),
    ("event", Field::Event),
    ("period", Field::Period),
    ("ip", Field::Ip),
    ("sym", Field::Symbol),
    ("symoff", Field::Offset),
    ("dso", Field::Dso),
    ("addr", Field::Address),
    ("trace", Field::Trace),
    ("callchain", Field::Callchain),
    ("cgroup", Field::Cgroup),
    ("brstack", Field::Branches),
    ("data_src", Field::DataSource),
    ("weight", Field::Weight),
    ("phys_addr", Field::PhysicalAddress),
    ("iregs", Field::InterruptRegisters),
    ("uregs", Field::UserRegisters),
    ("srcline", Field::SourceLine),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Fields(u32);

impl Fields {
    fn of(fields: &[Field]) -> Self {
        Self(fields.iter().fold(0, |all, field| all | *field as u32))
    }

    pub(super) fn has(self, field: Field) -> bool {
        self.0 & field as u32 != 0
    }

    /// What is usual for an event.
    pub(super) fn usual(event: &EventInfo) -> Self {
        use Field as F;
        let all = Self::of(&[F::Comm, F::Tid, F::Cpu, F::Time, F::Event]);
        let place = Self::of(&[F::Ip, F::Symbol, F::Offset, F::Dso, F::Callchain]);
        let more = match (event.is_tracepoint(), event.has_call_chains()) {
            (true, true) => Self(Field::Trace as u32 | place.0),
            (true, false) => Self(Field::Trace as u32),
            (false, _) => Self(Field::Period as u32 | place.0),
        };
        let address = if event.has_addresses() && !event.is_tracepoint() { Field::Address as u32 } else { 0 };
        Self(all.0 | more.0 | address)
    }
}

/// What `-F` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FieldSelection {
    /// These.
    These(Fields),
    /// What is usual with these and without those.
    Changed { with: Fields, without: Fields },
}

impl FieldSelection {
    const USUAL: Self = Self::Changed { with: Fields(0), without: Fields(0) };

    /// Reads what was typed.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::USUAL) };
        let named = |word: &str| {
            let found = NAMES.iter().find(|(name, _)| *name == word).map(|(_, field)| Fields(*field as u32));
            found.ok_or_else(|| {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                format!("-F: there is no field {word:?}; fields are {}", names.join(", "))
            })
        };
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return Err("-F needs a field, such as comm".to_owned());
        }
        let (mut with, mut without, mut plain) = (0, 0, 0);
        for word in &words {
            if let Some(word) = word.strip_prefix('+') {
                with |= named(word)?.0;
            } else if let Some(word) = word.strip_prefix('-') {
                without |= named(word)?.0;
            } else {
                plain |= named(word)?.0;
            }
        }
        match (plain, with | without) {
            (0, _) => Ok(Self::Changed { with: Fields(with), without: Fields(without) }),
            // Where it was met, its chain belongs to it.
            (_, 0) if plain & Field::Ip as u32 != 0 => Ok(Self::These(Fields(plain | Field::Callchain as u32))),
            (_, 0) => Ok(Self::These(Fields(plain))),
            _ => Err("-F: either a list of fields, or changes with + and -, not both".to_owned()),
        }
    }

    /// The fields of an event; without those that were not recorded and would be a number all the same.
    pub(super) fn of(self, event: &EventInfo) -> Fields {
        let fields = match self {
            Self::These(fields) => fields,
            Self::Changed { with, without } => Fields((Fields::usual(event).0 | with.0) & !without.0),
        };
        if event.has_times() { fields } else { Fields(fields.0 & !(Field::Time as u32)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let parse = FieldSelection::parse;
        let these = |fields: &[Field]| Ok(FieldSelection::These(Fields::of(fields)));
        assert_eq!(parse(None), Ok(FieldSelection::USUAL));
        assert_eq!(parse(Some("comm, tid")), these(&[Field::Comm, Field::Tid]));
        assert!(parse(Some("comm,nope")).is_err_and(|error| error.contains("\"nope\"") && error.contains("symoff")));
        assert!(parse(Some("comm,+ip")).is_err());
        assert!(parse(Some(",")).is_err());
        let changed = parse(Some("+addr,-comm"));
        assert!(matches!(changed, Ok(FieldSelection::Changed { with, .. }) if with.has(Field::Address)));
        assert_eq!(parse(Some("brstack,srcline")), these(&[Field::Branches, Field::SourceLine]));
    }
}
