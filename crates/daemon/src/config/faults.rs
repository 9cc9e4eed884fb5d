//! All that is wrong with a text, not only what a parser meets first.
//!
//! What it is: what a fault is about is taken out of the table that was parsed, and the rest is read again.
//!
//! **Invariant:** no fault is made by taking another one out.

use super::check::Wrong;
use super::{Config, in_a_line};
use serde::Deserialize as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// So many are enough to see that it is no configuration.
const MOST: usize = 64;

/// Reads a text: what is understood of it, and a sentence for each fault, in the order of lines.
pub(super) fn read(text: &str) -> (Config, Vec<String>) {
    let (mut table, broken) = DeTable::parse_recoverable(text);
    // Where brackets or quotes don't close, what comes after it means nothing: one sentence for a line, and no further look.
    let mut faults: Vec<(usize, String)> = Vec::new();
    for wrong in &broken {
        let at = line_at(text, wrong.span().map_or(0, |span| span.start));
        if faults.len() < MOST && faults.iter().all(|(known, _)| *known != at) {
            faults.push((at, in_a_line(wrong, text)));
        }
    }
    if broken.iter().any(|wrong| !wrong.message().starts_with("duplicate key")) {
        return (Config::default(), in_order(faults));
    }
    let recorders = begins_of(&table);
    let mut incomplete = Vec::new();
    let config = loop {
        if faults.len() >= MOST {
            faults.push((usize::MAX, "and more: the rest was not read".to_owned()));
            break Config::default();
        }
        let wrong = match Config::deserialize(Deserializer::from(table.clone())) {
            Ok(config) => break config,
            Err(wrong) => wrong,
        };
        let at = wrong.span().map_or(0, |span| span.start);
        // What is missing may have been taken out.
        if !(wrong.message().starts_with("missing field") && incomplete.contains(&at)) {
            faults.push((line_at(text, at), in_a_line(&wrong, text)));
        }
        match take_out(table.get_mut(), at) {
            Some(of) => incomplete.extend(of),
            None => break Config::default(),
        }
    };
    let left = begins_of(&table);
    for wrong in config.check() {
        // A recorder is counted among those of the text, of which some are not in the table any more.
        let begin = left.get(wrong.nth).filter(|_| wrong.key.starts_with("recorder."));
        if wrong.refers_to_another_key && begin.is_some_and(|begin| incomplete.contains(begin)) {
            continue;
        }
        let nth = begin.and_then(|begin| recorders.iter().position(|known| known == begin));
        let wrong = Wrong { nth: nth.unwrap_or(wrong.nth), ..wrong };
        faults.push((wrong.line(text).unwrap_or(usize::MAX - 1), wrong.within(text)));
    }
    (config, in_order(faults))
}

/// The sentences, in the order of their lines.
fn in_order(mut faults: Vec<(usize, String)>) -> Vec<String> {
    pmux::order::sort_by_key(&mut faults, |(line, _)| *line);
    faults.into_iter().map(|(_, fault)| fault).collect()
}

fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count() + 1
}

/// Where the recorders begin that are in a table.
fn begins_of(table: &Spanned<DeTable<'_>>) -> Vec<usize> {
    match table.get_ref().get("recorder").map(Spanned::get_ref) {
        Some(DeValue::Array(all)) => all.iter().map(|one| one.span().start).collect(),
        _ => Vec::new(),
    }
}

/// Takes out what is at a place: a key with its value, or an element that is a table. Returns where the element begins in which it stood,
/// if it stood in one; `None` where there is nothing.
fn take_out<'i>(table: &mut DeTable<'i>, at: usize) -> Option<Option<usize>> {
    let key = table.keys().find(|key| key.span().contains(&at)).cloned();
    if let Some(key) = key {
        table.remove(&key);
        return Some(None);
    }
    for (_, value) in table.iter_mut() {
        match value.get_mut() {
            DeValue::Table(inner) => {
                if let Some(of) = take_out(inner, at) {
                    return Some(of);
                }
            }
            DeValue::Array(elements) => {
                let inner = elements.iter_mut().find_map(|element| {
                    let begin = element.span().start;
                    let DeValue::Table(table) = element.get_mut() else { return None };
                    take_out(table, at).map(|of| of.or(Some(begin)))
                });
                if inner.is_some() {
                    return inner;
                }
                let is_it = |element: &Spanned<DeValue<'i>>| {
                    matches!(element.get_ref(), DeValue::Table(_)) && element.span().contains(&at)
                };
                if elements.iter().any(is_it) {
                    let mut left = toml::de::DeArray::new();
                    let all = std::mem::replace(elements, toml::de::DeArray::new());
                    all.into_iter().filter(|element| !is_it(element)).for_each(|one| left.push(one));
                    *elements = left;
                    return Some(None);
                }
            }
            _ => {}
        }
    }
    let found = table.iter().find(|(_, value)| value.span().contains(&at)).map(|(key, _)| key.clone())?;
    table.remove(&found);
    Some(None)
}
