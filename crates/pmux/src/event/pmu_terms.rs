//! The terms between the slashes, put into configuration words.
//!
//! What it is: [`Words`] collects what the terms of one event say; a later term overrides an earlier one.
//!
//! **Invariant:** it asks the PMU for its fields and named events, and nothing else of the machine.

use pmux_abi::attr::{Attr, Sampling};
use pmux_linux::catalog::{Alias, AliasExtent, AliasKind, AliasValue, CatalogError, ConfigWord, Format, Pmu};

use super::error::{ParseFault, RAW_TOO_LARGE, needs_number, too_large, unknown_term, unsupported_term};
use super::names::{Hardware, raw, raw_digits};
use super::nearest::nearest;
use super::printable;
use super::syntax::{SyntaxValue, Term};

/// Terms of `perf` that steer recording, and what to say of them.
const NOT_HERE: &str = "call-graph stack-size max-stack time inherit no-inherit overwrite no-overwrite nr branch_type \
                        driver-config percore aux-output aux-action aux-sample-size metric-id cpu ratio-to-prev";

/// The terms that every event takes.
const EVERYWHERE: [&str; 8] = ["config", "config1", "config2", "config3", "config4", "name", "period", "freq"];

#[derive(Default, Debug)]
pub(super) struct Words {
    /// In the order of [`ConfigWord`]; `None` of those that no term has touched.
    words: [Option<u64>; 5],
    fields: Vec<(String, u64)>,
    pub(super) name: Option<String>,
    pub(super) sampling: Sampling,
    pub(super) unit: Option<String>,
    pub(super) scale: Option<f64>,
    pub(super) kind: AliasKind,
    pub(super) extent: AliasExtent,
    aliases: Vec<String>,
    /// Whether the user gave fields beside named events.
    has_fields: bool,
}

impl Words {
    pub(super) fn of_pmu(pmu: &Pmu, terms: &[Term]) -> Result<Self, ParseFault> {
        let mut words = Self::default();
        for term in terms {
            words.pmu_term(pmu, term, terms)?;
        }
        Ok(words)
    }

    /// Reads the terms of a generic event: only those that every event takes.
    pub(super) fn of_generic(terms: &[Term]) -> Result<Self, ParseFault> {
        let mut words = Self::default();
        for term in terms {
            if !words.term_of_every_event(term)? {
                let kind = refusal(term, "");
                let near = nearest(&term.name, EVERYWHERE.map(String::from));
                return Err(ParseFault::new(term.at.start, kind).suggesting(near));
            }
        }
        Ok(words)
    }

    /// Puts the words into an attribute; those that no term touched stay.
    pub(super) fn apply(&self, attr: &mut Attr) {
        let places = [&mut attr.config, &mut attr.config1, &mut attr.config2, &mut attr.config3, &mut attr.config4];
        for (place, word) in places.into_iter().zip(self.words) {
            *place = word.unwrap_or(*place);
        }
    }

    pub(super) fn changes_event(&self) -> bool {
        self.words.iter().any(Option::is_some)
    }

    /// The generic hardware event that this is, if it is nothing but the PMU's own name for it.
    pub(super) fn as_hardware(&self) -> Option<Hardware> {
        let [alias] = self.aliases.as_slice() else { return None };
        let hardware = Hardware::from_name(alias)?;
        // Another term beside the alias would have made it something else.
        (!self.has_fields).then_some(hardware)
    }

    /// The fields, for people: `event=0x3c,umask=0x0`.
    pub(super) fn fields(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(name, value)| format!("{name}={value:#x}")).collect();
        fields.join(",")
    }

    fn pmu_term(&mut self, pmu: &Pmu, term: &Term, all: &[Term]) -> Result<(), ParseFault> {
        let catalog = |error: CatalogError| ParseFault::new(term.at.start, error.to_string());
        if self.term_of_every_event(term)? {
            return Ok(());
        }
        // `event=mem-loads`: the name of an event in place of its number.
        if let (true, Some(SyntaxValue::Text(name))) = (term.name.eq_ignore_ascii_case("event"), &term.value)
            && let Some(alias) = find_alias(pmu, name).map_err(catalog)?
        {
            return self.alias(pmu, &alias, term, all);
        }
        if let Some(format) = pmu.formats().map_err(catalog)?.get(&term.name) {
            let value = match &term.value {
                Some(SyntaxValue::Number(value)) => *value,
                None if format.width() == 1 => 1,
                _ => return Err(ParseFault::new(term.value_at.start, needs_number(&term.name))),
            };
            self.has_fields = true;
            return self.field(&term.name, *format, value).map_err(|kind| ParseFault::new(term.value_at.start, kind));
        }
        if let Some(alias) = find_alias(pmu, &term.name).map_err(catalog)? {
            return match &term.value {
                None | Some(SyntaxValue::Number(1)) => self.alias(pmu, &alias, term, all),
                Some(_) => {
                    let problem = format!("'{}' is a named event and takes no value", printable(&alias.name));
                    Err(ParseFault::new(term.value_at.start, problem))
                }
            };
        }
        if term.value.is_none() && raw_digits(&term.name).is_some() {
            let value = raw(&term.name).ok_or_else(|| ParseFault::new(term.at.start, RAW_TOO_LARGE))?;
            self.has_fields = true;
            self.word(ConfigWord::Config, value);
            return Ok(());
        }
        let known = pmu.formats().map_err(catalog)?.keys().chain(pmu.alias_names().map_err(catalog)?);
        let near = nearest(&term.name, known.cloned().chain(EVERYWHERE.map(String::from)));
        Err(ParseFault::new(term.at.start, refusal(term, pmu.name())).suggesting(near))
    }

    /// Takes a term that all events have. `false` if it is another one.
    fn term_of_every_event(&mut self, term: &Term) -> Result<bool, ParseFault> {
        let number = || match &term.value {
            Some(SyntaxValue::Number(value)) => Ok(*value),
            _ => Err(ParseFault::new(term.value_at.start, needs_number(&term.name))),
        };
        if let Some(word) = ConfigWord::from_name(&term.name) {
            self.has_fields = true;
            self.word(word, number()?);
            return Ok(true);
        }
        match term.name.as_str() {
            "name" => {
                self.name = match &term.value {
                    Some(SyntaxValue::Text(text)) if !text.is_empty() => Some(text.clone()),
                    Some(SyntaxValue::Number(number)) => Some(number.to_string()),
                    _ => {
                        let name = printable(&term.name);
                        let problem = format!("'{name}' needs a text: '{name}=text'");
                        return Err(ParseFault::new(term.value_at.start, problem));
                    }
                }
            }
            "period" => self.sampling = Sampling::Period(number()?),
            "freq" => self.sampling = Sampling::Frequency(number()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn alias(&mut self, pmu: &Pmu, alias: &Alias, term: &Term, all: &[Term]) -> Result<(), ParseFault> {
        let fault = |problem: String| ParseFault::new(term.at.start, problem);
        for (name, value) in &alias.terms {
            let value = match value {
                AliasValue::Number(value) => *value,
                AliasValue::Asked => all
                    .iter()
                    .find_map(|given| match &given.value {
                        Some(SyntaxValue::Number(value)) if given.name == *name => Some(*value),
                        _ => None,
                    })
                    .ok_or_else(|| {
                        fault(format!("the event '{}' also needs '{}=NUMBER'", printable(&alias.name), printable(name)))
                    })?,
            };
            if let Some(word) = ConfigWord::from_name(name) {
                self.word(word, value);
            } else if let Some(format) = pmu.formats().map_err(|e| fault(e.to_string()))?.get(name) {
                self.field(name, *format, value).map_err(fault)?;
            } else {
                return Err(fault(unknown_term(pmu.name(), name)));
            }
        }
        let scaled = alias.unit.is_some() || alias.scale.is_some();
        if scaled && (self.unit.is_some() || self.scale.is_some()) {
            let name = printable(&alias.name);
            return Err(fault(format!(
                "'{name}' has a unit of its own: it cannot be joined to another event with one"
            )));
        }
        if scaled {
            self.unit.clone_from(&alias.unit);
            self.scale = alias.scale;
        }
        if alias.kind == AliasKind::Snapshot {
            self.kind = AliasKind::Snapshot;
        }
        if alias.extent == AliasExtent::Package {
            self.extent = AliasExtent::Package;
        }
        self.aliases.push(alias.name.clone());
        Ok(())
    }

    fn field(&mut self, name: &str, format: Format, value: u64) -> Result<(), String> {
        let bits = format.scatter(value).map_err(|large| too_large(name, value, large.max))?;
        let word = &mut self.words[format.word as usize];
        *word = Some(word.unwrap_or(0) & !format.mask() | bits);
        self.note(name, value);
        Ok(())
    }

    fn word(&mut self, word: ConfigWord, value: u64) {
        self.words[word as usize] = Some(value);
        self.note(word.name(), value);
    }

    /// Keeps a field for people: the last value of each.
    fn note(&mut self, name: &str, value: u64) {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), value));
    }
}

/// Finds a named event. The generic hardware events are found by all their names: a PMU has only one of them.
fn find_alias(pmu: &Pmu, name: &str) -> Result<Option<Alias>, CatalogError> {
    let others = Hardware::from_name(name).map(Hardware::names).unwrap_or_default();
    for name in [name].iter().chain(others) {
        match pmu.alias(name) {
            Err(CatalogError::NoSuchEvent { .. }) => {}
            found => return found.map(Some),
        }
    }
    Ok(None)
}

fn refusal(term: &Term, pmu: &str) -> String {
    if NOT_HERE.split(' ').any(|name| name == term.name) {
        let reason = "it steers how samples are recorded, not what is counted";
        return unsupported_term(&term.name, reason);
    }
    unknown_term(pmu, &term.name)
}
