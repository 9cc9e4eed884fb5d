//! A tree back to text.
//!
//! **Invariant:** what is printed reads back as the same tree.

use std::fmt;

use super::{GroupNode, Item, Node, Term, Value, What, lexer, number};

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}

impl fmt::Display for GroupNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{", self.name.as_deref().unwrap_or_default())?;
        for (i, event) in self.events.iter().enumerate() {
            write!(f, "{}{event}", if i == 0 { "" } else { "," })?;
        }
        write!(f, "}}")?;
        if self.modifiers.is_empty() { Ok(()) } else { write!(f, ":{}", self.modifiers) }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Name(name) => write!(f, "{name}")?,
            What::Number(number) => write!(f, "{number}")?,
            What::Typed { kind, config } => write!(f, "{kind}:{config:#x}")?,
            What::Tracepoint { system, name } => write!(f, "{system}:{name}")?,
            What::Probe { path, place, at } => write!(f, "{}:'{path}':'{place}'", at.word())?,
            What::Memory { address, len, access } => {
                write!(f, "mem:{address:#x}")?;
                if let Some(len) = len {
                    write!(f, "/{len}")?;
                }
                if let Some(access) = access {
                    write!(f, ":{access}")?;
                }
            }
        }
        if let Some(terms) = &self.terms {
            write!(f, "/")?;
            for (i, term) in terms.iter().enumerate() {
                write!(f, "{}{term}", if i == 0 { "" } else { "," })?;
            }
            return write!(f, "/{}", self.modifiers);
        }
        if self.modifiers.is_empty() { Ok(()) } else { write!(f, ":{}", self.modifiers) }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        match &self.value {
            None => Ok(()),
            Some(Value::Number(number)) => write!(f, "={number:#x}"),
            Some(Value::Text(text)) if is_plain(text) => write!(f, "={text}"),
            Some(Value::Text(text)) => write!(f, "='{text}'"),
        }
    }
}

/// Whether a text stays one word, and a text, without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(lexer::is_word) && number(text).is_none()
}
