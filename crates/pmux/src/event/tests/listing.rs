//! The list of events and its filters.

use super::machine;
use crate::event::list::{EventKind, Filter, Listing, NameForm, list};
use crate::event::*;

fn names(listing: &Listing) -> Vec<&str> {
    listing.events.iter().map(|event| event.name.as_str()).collect()
}

#[test]
fn every_event_that_is_listed_resolves() {
    let (_dir, catalog) = machine();
    let listing = list(&catalog, &Filter::All);
    assert_eq!(listing.gaps, []);
    for event in listing.events.iter().filter(|event| event.form == NameForm::Event) {
        let resolved = Event::parse_with(&event.name, &catalog).unwrap_or_else(|error| panic!("{error}"));
        assert!(!event.description.is_empty());
        for alias in event.aliases.iter().filter(|_| event.kind != EventKind::Pmu) {
            assert_eq!(Event::parse_with(alias, &catalog).unwrap().attr, resolved.attr);
        }
    }
    for kind in [
        EventKind::Hardware,
        EventKind::Software,
        EventKind::Tool,
        EventKind::Cache,
        EventKind::Pmu,
        EventKind::Raw,
        EventKind::Breakpoint,
        EventKind::Probe,
        EventKind::Tracepoint,
    ] {
        assert!(listing.events.iter().any(|event| event.kind == kind), "{kind:?}");
    }
    assert!(listing.events.is_sorted_by_key(|event| event.kind));
}

#[test]
fn filters() {
    let (_dir, catalog) = machine();
    let found = |pattern: &str| list(&catalog, &Filter::parse(pattern));
    assert_eq!(names(&found("sched:*")), ["sched:sched_switch", "sched:sched_wakeup"]);
    assert_eq!(names(&found("FAULTS"))[0], "page-faults");
    assert_eq!(names(&found("cs")), ["context-switches"], "aliases are names too");
    assert_eq!(names(&found("hv/")), ["hv/open,core=?/", "hv/core=0..0xff,event=0..0xff/"]);
    assert!(found("sw").events.iter().all(|event| event.kind == EventKind::Software));
    assert_eq!(names(&found("tracepoint")).len(), 4);
    assert_eq!(names(&found("no such thing")), [""; 0]);
    assert_eq!(found("sched_switch").events[0].encoding, "type 2, config 0x13c");
}

#[test]
fn what_cannot_be_read_is_told() {
    let nowhere = Catalog::at(std::path::Path::new("/nonexistent"));
    let listing = list(&nowhere, &Filter::All);
    assert!(listing.events.iter().any(|event| event.name == "page-faults"));
    assert!(
        matches!(listing.gaps.as_slice(), [CatalogError::NoSysfs { .. }, CatalogError::NoTracefs { .. }]),
        "{:?}",
        listing.gaps
    );
    assert_eq!(list(&nowhere, &Filter::parse("sw")).gaps, [], "what is not asked for is not missing");
}
