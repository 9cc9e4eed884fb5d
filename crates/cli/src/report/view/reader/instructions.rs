//! The instructions of a function, as `objdump` prints them.
//!
//! What it is: [`of`] asks for the part of the file that the function is in. Read first: [`of`].
//!
//! **Invariant:** the file is the one that names came from, so its build id is the recorded one. What can't be had is said.

use crate::stderr::visible;
use pmux::profile::{CodeRange, FunctionId, Profile, Symbols};
use std::process::{Command, Stdio};

/// Of larger functions the first bytes are shown.
const MOST_BYTES: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    /// How many bytes behind the beginning of the function it stands.
    pub(super) offset: u64,
    pub(super) text: String,
}

/// The instructions of a function, in order.
pub(super) fn of(profile: &Profile, symbols: &mut Symbols, id: FunctionId) -> Result<Vec<Instruction>, String> {
    let range = symbols.code_range(profile, id).ok_or(
        "instructions are shown of functions that a program or library has in its symbol table, and whose file is here",
    )?;
    let CodeRange { path, start, bytes } = &range;
    let end = start.saturating_add((*bytes).min(MOST_BYTES));
    let printed = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn", "--wide"])
        .arg(format!("--start-address={start:#x}"))
        .arg(format!("--stop-address={end:#x}"))
        .arg("--")
        .arg(path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            format!("instructions are shown by objdump, which can't be started: {error} (install binutils)")
        })?;
    let found = parsed(&String::from_utf8_lossy(&printed.stdout), *start);
    if found.is_empty() {
        let why = String::from_utf8_lossy(&printed.stderr);
        let why = why.lines().next().unwrap_or("it printed none");
        return Err(format!("objdump shows no instructions of {}: {}", path.display(), visible(why)));
    }
    Ok(found)
}

/// What objdump printed: lines with an address, a colon and an instruction.
fn parsed(text: &str, start: u64) -> Vec<Instruction> {
    let one = |line: &str| {
        let (address, text) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some(Instruction { offset: address.checked_sub(start)?, text: visible(&text.replace('\t', " ")) })
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_addresses_are_instructions() {
        let text = "\n./t:     file format elf64-x86-64\n\nDisassembly of section .text:\n\n0000000000001149 <leaf>:\n    \
                    1149:\tpush   %rbp\n    114a:\tcall   1139 <f(int)>\n";
        let instruction = |offset, text: &str| Instruction { offset, text: text.to_owned() };
        assert_eq!(parsed(text, 0x1149), [instruction(0, "push   %rbp"), instruction(1, "call   1139 <f(int)>")]);
        assert_eq!(parsed("objdump: no\n", 0), []);
    }
}
