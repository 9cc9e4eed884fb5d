//! Where the kernel's structures have their members.
//!
//! What it is: the description that the kernel carries of its own types (`/sys/kernel/btf/vmlinux`), as far as it is needed to find a member
//! by its name.
//!
//! **Invariant:** what is no such description has no members; nothing is read beyond its end.
//!
//! Source: `Documentation/bpf/btf.rst`.

use std::path::Path;

/// The description of the kernel that runs.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: usize,
    /// Where each type begins, by its number less one.
    types: Vec<usize>,
}

const MAGIC: u32 = 0xeb9f;
const HEAD_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const PROTOTYPE: u32 = 13;
const FUNCTION: u32 = 12;
/// Members without a name are structures or unions within a structure: seldom more than a few.
const MOST_DEPTH: usize = 8;

impl Btf {
    /// That of this machine; `None` where the kernel was built without one (`CONFIG_DEBUG_INFO_BTF`).
    pub(crate) fn system() -> Option<Self> {
        std::fs::read(Path::new("/sys/kernel/btf/vmlinux")).ok().and_then(Self::parse)
    }

    fn parse(bytes: Vec<u8>) -> Option<Self> {
        let head = |at| word(&bytes, at).map(|word| word as usize);
        if word(&bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let begin = head(4)?;
        let strings = begin.checked_add(head(16)?)?;
        let mut at = begin.checked_add(head(8)?)?;
        let end = at.checked_add(head(12)?)?;
        let mut types = Vec::new();
        while at < end {
            types.push(at);
            let info = word(&bytes, at + 4)?;
            let entries = info as usize & 0xffff;
            at += HEAD_BYTES
                + match info >> 24 & 0x1f {
                    // Numbers, variables and remarks have one word, arrays three.
                    1 | 14 | 17 => 4,
                    3 => 12,
                    STRUCT | UNION | 15 | 19 => entries * MEMBER_BYTES,
                    6 | 13 => entries * 8,
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return None,
                };
        }
        Some(Self { bytes, strings, types })
    }

    /// How many bytes behind the beginning of a structure a member begins; `None` where there is none of that name.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Option<i32> {
        let is_it = |&&at: &&usize| self.kind(at) == Some(STRUCT) && self.name(at) == Some(structure.as_bytes());
        let bits = self.types.iter().filter(is_it).find_map(|&at| self.member(at, member.as_bytes(), MOST_DEPTH))?;
        i32::try_from(bits / 8).ok()
    }

    /// The type of a tracepoint: its number, and how many arguments the tracepoint has.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<(u32, usize)> {
        let name = format!("btf_trace_{name}");
        let is_it = |&at: &usize| self.kind(at) == Some(TYPEDEF) && self.name(at) == Some(name.as_bytes());
        let index = self.types.iter().position(is_it)?;
        let pointer = self.target(*self.types.get(index)?, POINTER)?;
        let function = self.target(pointer, PROTOTYPE)?;
        let arguments = word(&self.bytes, function + 4)? as usize & 0xffff;
        // The first one is the kernel's own.
        Some((u32::try_from(index + 1).ok()?, arguments.checked_sub(1)?))
    }

    /// The number of a function.
    pub(crate) fn function(&self, name: &str) -> Option<u32> {
        let is_it = |&at: &usize| self.kind(at) == Some(FUNCTION) && self.name(at) == Some(name.as_bytes());
        u32::try_from(self.types.iter().position(is_it)? + 1).ok()
    }

    /// What a type is made of, where that is of this kind.
    fn target(&self, at: usize, kind: u32) -> Option<usize> {
        let target = word(&self.bytes, at + 8)? as usize;
        self.types.get(target.checked_sub(1)?).copied().filter(|&at| self.kind(at) == Some(kind))
    }

    fn member(&self, at: usize, name: &[u8], depth: usize) -> Option<u32> {
        let info = word(&self.bytes, at + 4)?;
        let members = (0..info as usize & 0xffff).map(|number| at + HEAD_BYTES + number * MEMBER_BYTES);
        // With the highest bit set, the upper part of an offset is the width of a bit field.
        let mask = if info >> 31 == 1 { 0xff_ffff } else { u32::MAX };
        members.into_iter().find_map(|member| {
            let offset = word(&self.bytes, member + 8)? & mask;
            match self.name(member)? {
                found if found == name => Some(offset),
                b"" => {
                    let kind = word(&self.bytes, member + 4)? as usize;
                    let inner = *self.types.get(kind.checked_sub(1)?)?;
                    let inner =
                        Some(inner).filter(|&inner| depth > 0 && matches!(self.kind(inner), Some(STRUCT | UNION)))?;
                    self.member(inner, name, depth - 1)?.checked_add(offset)
                }
                _ => None,
            }
        })
    }

    fn kind(&self, at: usize) -> Option<u32> {
        Some(word(&self.bytes, at + 4)? >> 24 & 0x1f)
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        let begins = self.strings.checked_add(word(&self.bytes, at)? as usize)?;
        self.bytes.get(begins..)?.split(|&byte| byte == 0).next()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number, and `struct outer { u32 first; struct { u32 x; u32 inner; }; u32 field : 3; }`.
    fn description() -> Vec<u8> {
        let strings = b"\0outer\0first\0inner\0field\0x\0";
        let name = |wanted: &str| {
            strings
                .windows(wanted.len() + 1)
                .position(|at| &at[..wanted.len()] == wanted.as_bytes() && at[wanted.len()] == 0)
                .map_or(0, |at| at as u32)
        };
        let mut types: Vec<u32> = vec![0, 1 << 24, 4, 32];
        types.extend([0, STRUCT << 24 | 2, 8, name("x"), 1, 0, name("inner"), 1, 32]);
        types.extend([name("outer"), 1 << 31 | STRUCT << 24 | 3, 16]);
        types.extend([name("first"), 1, 0, 0, 2, 32, name("field"), 1, 3 << 24 | 96]);
        let type_bytes = types.len() as u32 * 4;
        let head = [MAGIC | 1 << 16, 24, 0, type_bytes, type_bytes, strings.len() as u32];
        let words = head.into_iter().chain(types).flat_map(u32::to_ne_bytes);
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn members_are_found_by_their_names() {
        let Some(btf) = Btf::parse(description()) else { panic!("it is a description") };
        let of = |member| btf.offset("outer", member);
        assert_eq!(
            [of("first"), of("inner"), of("field"), of("x"), of("none")],
            [Some(0), Some(8), Some(12), Some(4), None]
        );
        assert_eq!(btf.offset("none", "first"), None);
    }

    #[test]
    fn what_is_cut_off_is_no_description() {
        let whole = description();
        for length in 0..whole.len() {
            // It may be one with fewer names.
            let _ = Btf::parse(whole[..length].to_vec()).and_then(|btf| btf.offset("outer", "inner"));
        }
        assert!(Btf::parse(vec![0; 64]).is_none());
    }

    #[test]
    fn this_kernel_describes_its_files() {
        let Some(btf) = Btf::system() else { return println!("skipped: needs a kernel with CONFIG_DEBUG_INFO_BTF") };
        assert!(btf.offset("file", "private_data").is_some_and(|at| at > 0));
        assert!(btf.offset("perf_event", "attr").is_some_and(|at| at > 0));
        assert_eq!(btf.offset("file", "no_such_member"), None);
        // preempt, prev, next; the state of `prev` since 5.18.
        assert!(btf.tracepoint("sched_switch").is_some_and(|(id, arguments)| id > 0 && arguments >= 3));
        assert_eq!(btf.tracepoint("no_such_tracepoint"), None);
        assert!(btf.function("bpf_iter_task").is_some() && btf.function("no_such_function").is_none());
    }
}
