//! Why something that was typed has no address.
//!
//! **Invariant:** each is a sentence that says what was looked for, where, and what to do next.

use crate::event::error::{printable, write_suggestions};
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
    /// A variable that each thread has for itself.
    PerThread {
        /// Its name.
        name: String,
    },
    /// A variable of the kernel that each CPU has for itself.
    PerCpu {
        /// Its name.
        name: String,
    },
    /// The offset, or offset and length, go beyond the end of the symbol.
    Beyond {
        /// Its name.
        name: String,
        /// Its size in bytes.
        size: u64,
        /// The first byte that is too far.
        end: u64,
    },
    /// A length was given for code.
    CodeLength {
        /// The function's name.
        name: String,
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
    /// The program or library has no such address.
    OutsideModule {
        /// Its name.
        module: String,
        /// The address.
        address: u64,
    },
    /// Nothing is mapped at an address, and nothing will be.
    Nowhere {
        /// The address.
        address: u64,
        /// In which process.
        place: String,
        /// Below this one nothing is mapped.
        lowest: u64,
        /// What to write where it is an address of the program's file.
        in_file: Option<String>,
    },
    /// The file of a program or library can't be read.
    Unreadable {
        /// Its path.
        module: String,
        /// Why.
        reason: String,
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
    /// Several source files have this name.
    AmbiguousFile {
        /// The name.
        file: String,
        /// Their paths.
        paths: Vec<String>,
    },
    /// There is no code at or behind that line.
    NoCode {
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// The last one that has code.
        last: u32,
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
    /// Something of a program, where no process was named.
    NeedsProcess {
        /// The target as it was typed.
        target: String,
    },
}

/// A file that was stripped of most of its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// Its name.
    pub module: String,
    /// Which ones it kept, in words.
    pub kept: &'static str,
}

/// Whether there may be programs in which nobody has looked.
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
const LISTED: usize = 20;

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
            Self::PerThread { name } => write!(
                f,
                "each thread has its own '{}', at an address of its own: give the address of one (0xADDR/LEN), which the \
                 program can print",
                printable(name)
            ),
            Self::PerCpu { name } => write!(
                f,
                "each CPU has its own '{}', at an address of its own, which the kernel's list doesn't give",
                printable(name)
            ),
            Self::Beyond { name, size, end } => {
                write!(f, "'{}' has {size} bytes: byte {end} is beyond its end", printable(name))
            }
            Self::CodeLength { name } => {
                write!(
                    f,
                    "'{}' is a function, which has no length to watch: leave out /LEN, or say :w",
                    printable(name)
                )
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
            Self::OutsideModule { module, address } => write!(
                f,
                "{} has no address {address:#x}: its own addresses are meant, as nm and objdump show them",
                printable(module)
            ),
            Self::Nowhere { address, place, lowest, in_file } => {
                write!(
                    f,
                    "nothing is mapped at {address:#x} of {}, and nothing will be: addresses begin at {lowest:#x} \
                     (vm.mmap_min_addr)",
                    printable(place)
                )?;
                in_file.as_ref().map_or(Ok(()), |target| write!(f, "\n  {}", file_address(target)))
            }
            Self::Unreadable { module, reason } => {
                write!(f, "the symbols of {} can't be read: {}", printable(module), printable(reason))
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
            Self::AmbiguousFile { file, paths } => {
                write!(f, "'{}' is several files; write more of the path:", printable(file))?;
                paths.iter().take(LISTED).try_for_each(|path| write!(f, "\n  {}", printable(path)))
            }
            Self::NoCode { file, line, last: 0 } => {
                write!(f, "line {line} of {} has no code, and neither has any other line", printable(file))
            }
            Self::NoCode { file, line, last } => {
                write!(f, "line {line} of {} has no code, and none behind it has: the last is {last}", printable(file))
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
            Self::NeedsProcess { target } => write!(
                f,
                "'{}' is in a program, and each process has its own addresses: name a command, or a process with -p",
                printable(target)
            ),
        }
    }
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
            Self::Ambiguous { .. }
            | Self::PerThread { .. }
            | Self::PerCpu { .. }
            | Self::Beyond { .. }
            | Self::CodeLength { .. }
            | Self::OutsideModule { .. }
            | Self::Nowhere { .. }
            | Self::Unreadable { .. }
            | Self::AmbiguousFile { .. }
            | Self::NoCode { .. }
            | Self::KernelHidden { .. }
            | Self::NoKernelData { .. }
            | Self::NoKernelNames { .. }
            | Self::NeedsProcess { .. } => false,
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
