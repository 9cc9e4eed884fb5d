//! What is to be watched, as it is written.
//!
//! What it is: the text of a target taken apart, without a look at any program: `counter:w`, `main:x`,
//! `libfoo.so:ns::table+8/4:rw`, `writer.rs:120`, `0x7ffd1234/8:w`. Read first: [`AddressSpec`].
//!
//! **Invariant:** pure. The same text gives the same value on every machine, and a value prints as a text that gives
//! it again.

mod parser;
#[cfg(test)]
mod tests;

use crate::event::Access;
use crate::text::TextError;
use std::fmt;
use std::str::FromStr;

/// The module name that means the kernel.
pub const KERNEL: &str = "kernel";

/// What is to be watched.
///
/// ```text
/// 0xADDR[/LEN][:ACCESS]              an address
/// [MODULE:]SYMBOL[+OFF][/LEN][:ACCESS]   a variable or function of the program, a library, or the kernel
/// MODULE:0xADDR[/LEN][:ACCESS]       an address as the file itself counts
/// [MODULE:]FILE:LINE[:x]             code of a source line
/// ```
///
/// `MODULE` is the name of the program or of a library: `libfoo.so`, which `libfoo.so.1` answers to as well, a path, or
/// `kernel`. `ACCESS` is `w` (writes), `r` (reads), `rw` or `x` (executions). Where none is given, data are watched for
/// writes, as debuggers do it, and code for executions. `LEN` is in bytes; where none is given, a variable is watched as
/// a whole. A symbol with the name of an access is written with colons before it: `libfoo.so:::x`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AddressSpec {
    /// Where.
    pub what: AddressForm,
    /// How many bytes; `None` for as many as the variable has.
    pub len: Option<u64>,
    /// Which accesses; `None` for what is usual there.
    pub access: Option<Access>,
}

/// Where something is to be watched.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AddressForm {
    /// An address of a process or of the kernel.
    Address(u64),
    /// An address as the file of a program or library counts them.
    InModule {
        /// The file.
        module: String,
        /// The address in it.
        address: u64,
    },
    /// A variable or a function.
    Symbol {
        /// The program, the library, [`KERNEL`], or the source file of a static variable; `None` for any.
        module: Option<String>,
        /// Its name, as the source has it or as the linker does.
        name: String,
        /// How many bytes behind its beginning.
        offset: u64,
    },
    /// A line of source code.
    Line {
        /// The program or library; `None` for any.
        module: Option<String>,
        /// The end of the file's path: `writer.rs`, `src/writer.rs`.
        file: String,
        /// The line, from 1.
        line: u32,
    },
}

impl FromStr for AddressSpec {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        parser::parse(text).map_err(|parser::SpecFault(at, problem)| TextError::new(text, at, problem))
    }
}

impl fmt::Display for AddressSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = |f: &mut fmt::Formatter<'_>, module: &Option<String>| match module {
            Some(module) => write!(f, "{module}:"),
            None => Ok(()),
        };
        match &self.what {
            AddressForm::Address(address) => write!(f, "{address:#x}")?,
            AddressForm::InModule { module, address } => write!(f, "{module}:{address:#x}")?,
            AddressForm::Symbol { module: of, name, offset } => {
                module(f, of)?;
                // Behind a module, letters of an access alone would be one.
                let plain = *offset == 0 && self.len.is_none() && self.access.is_none();
                if of.is_some() && plain && name.chars().all(|c| matches!(c, 'r' | 'w' | 'x')) {
                    f.write_str("::")?;
                }
                f.write_str(name)?;
                if *offset > 0 {
                    write!(f, "+{offset:#x}")?;
                }
            }
            AddressForm::Line { module: of, file, line } => {
                module(f, of)?;
                write!(f, "{file}:{line}")?;
            }
        }
        if let Some(len) = self.len {
            write!(f, "/{len}")?;
        }
        if let Some(access) = self.access {
            write!(f, ":{access}")?;
        }
        Ok(())
    }
}
