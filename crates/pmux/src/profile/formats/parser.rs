//! The description of a tracepoint, read.
//!
//! What it is: the lines of a `format` file, and the expressions behind its `print fmt`, which are C as the preprocessor leaves it.
//! Read first: [`format`].
//!
//! **Invariant:** what is not understood makes the whole `print fmt` not understood; it is never guessed. Nesting is bounded.

use super::expression::Expression as E;
use super::{Field, Format, Storage, print};
use crate::text::Cursor;

/// Parentheses in each other.
const DEEPEST: u32 = 200;

/// Reads a description. `None` where it has no number.
pub(super) fn format(system: &str, text: &str) -> Option<(u64, Format)> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let name = value("name:")?.to_owned();
    let id = value("ID:")?.parse().ok()?;
    let fields = text.lines().filter_map(|line| field(line.trim().strip_prefix("field:")?)).collect();
    let mut format = Format { system: system.to_owned(), name, fields, printing: None };
    let at = text.find("print fmt:")?;
    format.printing = printing(&format, text.get(at + "print fmt:".len()..)?);
    Some((id, format))
}

/// `char prev_comm[16]; offset:8; size:16; signed:0;`
fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declared = parts.next()?;
    // Of two with one key the last one counts.
    let value = |key: &str| parts.clone().rev().find_map(|part| part.strip_prefix(key));
    let (offset, bytes): (usize, usize) = (value("offset:")?.parse().ok()?, value("size:")?.parse().ok()?);
    let is_signed = value("signed:") == Some("1");
    let (kind, name) = declared.rsplit_once(|c: char| c.is_whitespace() || c == '*')?;
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, Some(count.trim_end_matches(']'))),
        None => (name, None),
    };
    let is_text = kind.contains("char") && !kind.contains('*');
    let elsewhere =
        |kind: &str, from| Storage::Elsewhere { from, is_text: kind.starts_with("char"), bytes: element_bytes(kind) };
    let storage = if let Some(kind) = kind.strip_prefix("__data_loc ") {
        elsewhere(kind, 0)
    } else if let Some(kind) = kind.strip_prefix("__rel_loc ") {
        elsewhere(kind, offset.saturating_add(4))
    } else if let Some(count) = count {
        let count: usize = count.parse().unwrap_or(0);
        let width = if count > 0 && bytes % count == 0 { bytes / count } else { usize::from(element_bytes(kind)) };
        if is_text && width == 1 { Storage::Text } else { Storage::Numbers { bytes: width.clamp(1, 8) as u8 } }
    } else {
        Storage::Numbers { bytes: bytes.clamp(1, 8) as u8 }
    };
    Some(Field { name: name.to_owned(), offset, bytes, is_signed, storage })
}

/// How long a number of a type is, as far as its name says it.
fn element_bytes(kind: &str) -> u8 {
    let has = |word: &str| kind.contains(word);
    if has("char") || has("u8") || has("s8") || has("bool") {
        1
    } else if has("short") || has("16") {
        2
    } else if has("long") || has("64") || has("*") || has("size_t") || has("unsigned long") {
        8
    } else {
        4
    }
}

fn printing(format: &Format, text: &str) -> Option<(Vec<print::FormatPiece>, Vec<E>)> {
    let mut parser = Parser { format, cursor: Cursor::new(text.trim()), depth: 0 };
    let template = parser.strings()?;
    let mut arguments = Vec::new();
    while parser.cursor.take(",") {
        arguments.push(parser.choice()?);
    }
    parser.cursor.is_at_end().then_some((print::pieces(&template)?, arguments))
}

struct Parser<'t> {
    format: &'t Format,
    cursor: Cursor<'t>,
    depth: u32,
}

/// Operators by level, from those that bind least, with the longer ones before those that they begin with.
const LEVELS: [&str; 10] = ["||", "&&", "|", "^", "&", "== !=", "<= >= < >", "<< >>", "+ -", "* / %"];

/// How many bytes numbers of these types have, and whether they have a sign.
const TYPES: [(u8, bool, &[&str]); 8] = [
    (8, false, &["unsigned long long", "unsigned long int", "unsigned long", "size_t", "__u64", "u64"]),
    (4, false, &["unsigned int", "unsigned", "__u32", "u32", "gfp_t"]),
    (2, false, &["unsigned short", "__u16", "u16"]),
    (1, false, &["unsigned char", "bool", "__u8", "u8"]),
    (8, true, &["long long", "long int", "long", "s64"]),
    (4, true, &["int", "s32"]),
    (2, true, &["short"]),
    (1, true, &["char"]),
];

impl<'t> Parser<'t> {
    fn need(&mut self, text: &str) -> Option<()> {
        self.cursor.take(text).then_some(())
    }

    /// What comes next, behind blanks or not.
    fn peek(&mut self) -> Option<char> {
        self.cursor.skip_blanks();
        self.cursor.rest().chars().next()
    }

    /// Strings one after another are one.
    fn strings(&mut self) -> Option<String> {
        let mut all = String::new();
        if self.peek() != Some('"') {
            return None;
        }
        while self.cursor.take("\"") {
            let mut characters = self.cursor.rest().char_indices();
            loop {
                match characters.next()? {
                    (at, '"') => {
                        self.cursor.at += at + 1;
                        break;
                    }
                    (_, '\\') => match characters.next()?.1 {
                        'n' => all.push('\n'),
                        't' => all.push('\t'),
                        other => all.push(other),
                    },
                    (_, other) => all.push(other),
                }
            }
        }
        Some(all)
    }

    fn word(&mut self) -> Option<&'t str> {
        self.cursor.skip_blanks();
        let rest = self.cursor.rest();
        let word = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())];
        self.cursor.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    fn choice(&mut self) -> Option<E> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let condition = self.level(0)?;
        let found = if self.cursor.take("?") {
            let yes = self.choice()?;
            self.need(":")?;
            E::Choice(Box::new((condition, yes, self.choice()?)))
        } else {
            condition
        };
        self.depth -= 1;
        Some(found)
    }

    fn level(&mut self, level: usize) -> Option<E> {
        let Some(&operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.level(level + 1)?;
        'next: loop {
            self.cursor.skip_blanks();
            for operator in operators.split(' ') {
                let Some(rest) = self.cursor.rest().strip_prefix(operator) else { continue };
                // `|` is not `||`, `<` is not `<<`.
                let is_other = operator.len() == 1
                    && matches!(operator.chars().next(), Some(c @ ('|' | '&' | '<' | '>')) if rest.starts_with(c));
                if is_other {
                    continue;
                }
                self.cursor.at += operator.len();
                left = E::Binary(operator, Box::new((left, self.level(level + 1)?)));
                continue 'next;
            }
            return Some(left);
        }
    }

    fn unary(&mut self) -> Option<E> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let found = match self.peek()? {
            operator @ ('-' | '~' | '!') => {
                self.cursor.at += 1;
                Some(E::Unary(operator, Box::new(self.unary()?)))
            }
            '"' => self.strings().map(E::Text),
            '(' => {
                self.cursor.at += 1;
                match self.cast() {
                    Some((bytes, is_signed)) => {
                        let of = Box::new(self.unary()?);
                        Some(E::Cast { bytes, is_signed, of })
                    }
                    None => {
                        let inside = self.choice()?;
                        self.need(")")?;
                        self.elements(inside)
                    }
                }
            }
            '0'..='9' => self.number(),
            '\'' => {
                let character = self.cursor.rest().chars().nth(1)?;
                self.cursor.at += 1 + character.len_utf8();
                self.cursor.rest().strip_prefix('\'')?;
                self.cursor.at += 1;
                Some(E::Number(i64::from(u32::from(character))))
            }
            _ => self.named(),
        };
        self.depth -= 1;
        found
    }

    fn number(&mut self) -> Option<E> {
        let word = self.word()?.trim_end_matches(['u', 'U', 'l', 'L']);
        let number = match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8).ok()?,
            None => word.parse().ok()?,
        };
        Some(E::Number(number.cast_signed()))
    }

    /// The rest of `(type)`: how long, and whether with a sign.
    fn cast(&mut self) -> Option<(u8, bool)> {
        let rest = self.cursor.rest();
        let end = rest.find(')')?;
        let inside = rest[..end].trim();
        let plain = inside.trim_start_matches("const ").trim_start_matches("struct ").trim_start_matches("enum ");
        let known = TYPES.iter().find(|(.., names)| names.contains(&plain));
        let known = known.map(|&(bytes, is_signed, _)| (bytes, is_signed));
        let is_name =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ' ');
        let found = match plain.strip_suffix('*').map(|name| name.trim_end_matches([' ', '*'])) {
            Some(name) if is_name(name) => (8, false),
            _ if inside.starts_with("enum ") && is_name(plain) => (4, true),
            // Other names of types end like this.
            _ if is_name(plain) && plain.ends_with("_t") => known.unwrap_or((8, false)),
            _ => known?,
        };
        self.cursor.at += end + 1;
        Some(found)
    }

    fn elements(&mut self, mut of: E) -> Option<E> {
        while self.cursor.take("[") {
            let index = self.choice()?;
            self.need("]")?;
            of = E::Element(Box::new(of), Box::new(index));
        }
        Some(of)
    }

    /// The place of a field that stands in parentheses.
    fn field_inside(&mut self) -> Option<usize> {
        self.need("(")?;
        let field = self.field_named()?;
        self.need(")")?;
        Some(field)
    }

    fn field_named(&mut self) -> Option<usize> {
        let name = self.word()?;
        self.format.fields.iter().position(|field| field.name == name)
    }

    fn named(&mut self) -> Option<E> {
        match self.word()? {
            "REC" => {
                self.need("->")?;
                let field = self.field_named()?;
                self.elements(E::Field(field))
            }
            "__get_str" | "__get_rel_str" => self.field_inside().map(E::FieldText),
            "__get_dynamic_array" | "__get_rel_dynamic_array" => {
                let field = self.field_inside()?;
                self.elements(E::FieldBytes(field))
            }
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => self.field_inside().map(E::FieldLength),
            "__print_flags" | "__print_flags_u64" => {
                let of = self.first_of_several()?;
                let between = self.strings()?;
                // None at all, or a comma and the pairs.
                let names =
                    if self.cursor.take(")") { Vec::new() } else { self.need(",").and_then(|()| self.pairs())? };
                Some(E::Flags { of, between, names })
            }
            "__print_symbolic" | "__print_symbolic_u64" => {
                let of = self.first_of_several()?;
                Some(E::Symbolic { of, names: self.pairs()? })
            }
            "__print_hex" => {
                let of = self.first_of_several()?;
                let length = Box::new(self.choice()?);
                self.need(")")?;
                Some(E::Hex { of, length })
            }
            "__print_array" => {
                let of = self.first_of_several()?;
                let count = Box::new(self.choice()?);
                self.need(",")?;
                let bytes = Box::new(self.choice()?);
                self.need(")")?;
                Some(E::Array { of, count, bytes })
            }
            "sizeof" => {
                self.need("(")?;
                let (bytes, _) = self.cast()?;
                Some(E::Number(bytes.into()))
            }
            "true" => Some(E::Number(1)),
            "false" => Some(E::Number(0)),
            _ => None,
        }
    }

    fn first_of_several(&mut self) -> Option<Box<E>> {
        self.need("(")?;
        let of = self.choice()?;
        self.need(",")?;
        Some(Box::new(of))
    }

    /// `{ 1, "S" }, { 2, "D" })`. A value that is not understood, such as the name of a constant, is left out.
    fn pairs(&mut self) -> Option<Vec<(i64, String)>> {
        let mut found = Vec::new();
        loop {
            self.need("{")?;
            let before = self.cursor;
            let depth = self.depth;
            match self.choice() {
                Some(value) if self.cursor.take(",") => {
                    let value = self.constant(&value);
                    if self.peek() == Some('"') {
                        let name = self.strings()?;
                        found.extend(value.map(|value| (value, name)));
                    } else {
                        // The end of a list: nothing.
                        self.choice()?;
                    }
                    self.need("}")?;
                }
                _ => {
                    (self.depth, self.cursor) = (depth, before);
                    self.cursor.at += self.cursor.rest().find('}')? + 1;
                }
            }
            if !self.cursor.take(",") {
                break;
            }
        }
        self.need(")")?;
        Some(found)
    }

    fn constant(&self, expression: &E) -> Option<i64> {
        super::Eval { format: self.format, raw: &[] }.value(expression)?.number()
    }
}
