//! Why something that was typed has no address.
//!
//! **Invariant:** each is a sentence that says what was looked for, where, and what to do next.

use crate::text::{printable, write_suggestions};
use std::fmt;

/// Why something that was typed has no address.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FindError {
    /// No symbol has this name.
    UnknownSymbol {
        /// The name.
        name: String,
        /// Where it was looked for: the program, a library, the kernel.
        place: String,
        /// Files among them that were stripped of most of their names.
        stripped: Vec<Stripped>,
        /// Names that were perhaps meant, best first.
        suggestions: Vec<String>,
        /// Functions of this name that were inlined wherever they are called: the lines where their code begins, as targets.
        inlined: Vec<String>,
        /// Whether programs that the command starts were left out.
        others: Others,
    },
    /// Several symbols have this name.
    Ambiguous {
        /// The name.
        name: String,
        /// All of them.
        candidates: Vec<Candidate>,
    },
    /// No program or library of this name is mapped.
    UnknownModule {
        /// The name.
        module: String,
        /// In which process.
        place: String,
        /// Those that are, the most similar names first.
        mapped: Vec<String>,
        /// What stands behind the name looks like an access, and this letter is none.
        letter: Option<char>,
    },
    /// Nothing that was looked at has lines.
    NoLines {
        /// What was looked at.
        place: String,
    },
    /// No source file of this name was compiled into what was looked at.
    UnknownFile {
        /// The name.
        file: String,
        /// What was looked at.
        place: String,
        /// Names that were perhaps meant, best first.
        suggestions: Vec<String>,
    },
    /// The kernel hides its addresses from this user.
    KernelHidden {
        /// The name that was looked for.
        name: String,
        /// `kernel.kptr_restrict`, where it can be read.
        restriction: Option<u32>,
    },
    /// The kernel has no such function, and doesn't list its variables.
    NoKernelData {
        /// The name that was looked for.
        name: String,
        /// Functions that were perhaps meant, best first.
        suggestions: Vec<String>,
    },
    /// The kernel's list of names can't be read.
    NoKernelNames {
        /// Why.
        reason: String,
    },
    /// It is there, but not as it was asked for: a sentence.
    Other(String),
}

/// A file that was stripped of most of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// Its name.
    pub module: String,
    /// Which ones it kept, in words.
    pub kept: &'static str,
}

/// Whether there may be programs that were not searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// The program may start others.
    MayStart,
    /// None.
    None,
}

/// One of several things that a name may mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its readable name.
    pub name: String,
    /// The source file it is from, where that is known.
    pub source: Option<String>,
    /// What to write for exactly this one.
    pub target: String,
}

/// How many of several things are listed; the rest is a number.
pub(super) const LISTED: usize = 20;

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSymbol { name, place, stripped, suggestions, inlined, others } => {
                write!(f, "no symbol '{}' in {}", printable(name), printable(place))?;
                for Stripped { module, kept } in stripped {
                    write!(
                        f,
                        "\n  {} was stripped of its symbols, but for {kept}: build it without strip or -s, install its debug \
                         symbols, or give an address",
                        printable(module)
                    )?;
                }
                if !inlined.is_empty() {
                    let lines: Vec<String> = inlined.iter().map(|line| printable(line)).collect();
                    let lines = lines.join(" or ");
                    return write!(f, "\n  it was inlined wherever it is called; write its line: {lines}");
                }
                write_suggestions(f, suggestions)?;
                if *others == Others::MayStart && suggestions.is_empty() {
                    write!(f, "\n  if a program that it starts has it, say which: PROGRAM:{}", printable(name))?;
                }
                Ok(())
            }
            Self::Ambiguous { name, candidates } => {
                write!(f, "'{}' means several things; write one of", printable(name))?;
                let width = candidates.iter().take(LISTED).map(|one| one.target.chars().count()).max().unwrap_or(0);
                for one in candidates.iter().take(LISTED) {
                    write!(f, "\n  {:width$}  {}", printable(&one.target), printable(&one.name))?;
                    if let Some(source) = &one.source {
                        write!(f, " in {}", printable(source))?;
                    }
                }
                match candidates.len().saturating_sub(LISTED) {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
            Self::UnknownModule { module, place, mapped, letter } => {
                if let Some(letter) = letter {
                    writeln!(f, "'{letter}' is no access: {}:r, :w, :rw and :x are understood", printable(module))?;
                    write!(f, "  if it is a symbol of a library: ")?;
                }
                write!(f, "no program or library '{}' in {}", printable(module), printable(place))?;
                if mapped.is_empty() {
                    return Ok(());
                }
                let listed: Vec<String> = mapped.iter().take(LISTED).map(|name| printable(name)).collect();
                write!(f, "; it has {}", listed.join(", "))?;
                if mapped.len() > LISTED { write!(f, " and {} more", mapped.len() - LISTED) } else { Ok(()) }
            }
            Self::NoLines { place } => write!(
                f,
                "{} has no line numbers: build it with -g (Rust: debug = \"line-tables-only\"), install its debug \
                 symbols, or name a function",
                printable(place)
            ),
            Self::UnknownFile { file, place, suggestions } => {
                write!(f, "no source file '{}' was compiled into {}", printable(file), printable(place))?;
                write_suggestions(f, suggestions)
            }
            Self::KernelHidden { name, restriction } => {
                write!(f, "the kernel has '{}' but hides its address from this user: ", printable(name))?;
                match restriction {
                    Some(2..) => f.write_str("root can run `sysctl kernel.kptr_restrict=1`, and then watch it"),
                    _ => f.write_str("run as root, or with CAP_SYSLOG"),
                }
            }
            Self::NoKernelData { name, suggestions } => {
                write!(
                    f,
                    "the kernel has no function '{}', and this one doesn't list its variables (CONFIG_KALLSYMS_ALL): give \
                     an address, as its System.map has it",
                    printable(name)
                )?;
                write_suggestions(f, suggestions)
            }
            Self::NoKernelNames { reason } => write!(f, "the kernel's names can't be read: {}", printable(reason)),
            Self::Other(sentence) => f.write_str(sentence),
        }
    }
}

/// The offset, or offset and length, go beyond the end of the symbol.
pub(super) fn beyond(name: &str, size: u64, end: u64) -> FindError {
    FindError::Other(format!("'{}' has {size} bytes: byte {end} is beyond its end", printable(name)))
}

pub(super) fn code_length(name: &str) -> FindError {
    let name = printable(name);
    FindError::Other(format!("'{name}' is a function, which has no length to watch: leave out /LEN, or say :w"))
}

/// What to do with an address that files have, and processes don't.
pub(super) fn file_address(target: &str) -> String {
    format!("if it is one that nm or objdump shows, write {}", printable(target))
}

impl FindError {
    /// Whether a program or library that is loaded later may have it. What is there and is not as it was asked for stays so.
    #[must_use]
    pub fn may_come(&self) -> bool {
        match self {
            Self::UnknownSymbol { inlined, .. } => inlined.is_empty(),
            Self::UnknownModule { .. } | Self::UnknownFile { .. } | Self::NoLines { .. } => true,
            _ => false,
        }
    }

    /// Whether it is something else, more probably, that was meant: then that is what to say first.
    #[must_use]
    pub fn has_better_advice(&self) -> bool {
        match self {
            Self::UnknownSymbol { suggestions, stripped, .. } => !suggestions.is_empty() || !stripped.is_empty(),
            Self::UnknownFile { suggestions, .. } => !suggestions.is_empty(),
            Self::UnknownModule { letter, .. } => letter.is_some(),
            Self::NoLines { .. } => true,
            _ => false,
        }
    }
}

impl std::error::Error for FindError {}
