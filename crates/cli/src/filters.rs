//! What `--filter` says, given to the events that it is for.
//!
//! **Invariant:** an event that can't have the filter is an error, and nothing is opened.

use crate::options::filters::EventFilters;
use pmux::{Error, EventList, Session};

/// Events as they were typed, with their filters.
pub(crate) fn parse(session: &Session, texts: &[String], filters: &EventFilters) -> Result<EventList, String> {
    let parsed = |count: usize| EventList::parse(texts.get(..count).unwrap_or(texts), session.catalog());
    let sentence = |error: pmux::event::TextError| Error::Parse(error).to_string();
    let mut list = parsed(texts.len()).map_err(sentence)?;
    for (before, filter) in &filters.0 {
        let groups =
            parsed(before - 1).map_err(sentence)?.groups.len()..parsed(*before).map_err(sentence)?.groups.len();
        for event in list.groups.get_mut(groups).into_iter().flatten().flat_map(|group| &mut group.events) {
            if !event.takes_filter() {
                let name = &event.name;
                return Err(format!(
                    "--filter '{filter}' is for tracepoints, and {name} of the -e before it is none (pmux list tracepoint)"
                ));
            }
            session.filter(event, filter).map_err(|error| format!("--filter for {}: {error}", event.name))?;
        }
    }
    Ok(list)
}
