//! The names of the kernel and its modules.
//!
//! What it is: the kernel's own list, sorted by address, names found by reading through it. Read first: [`Kernel::find`].
//!
//! **Invariant:** an address of 0 is one that the kernel hides, and names nothing.
//!
//! Source: `proc_pid_kallsyms`, `kernel/kallsyms.c`: the letters are those of `nm(1)`.

use super::elf::Kind;
use super::names::{Fit, NameMatcher};
use pmux_linux::procfs::{Proc, ProcError};

/// The lowest address that a kernel has for itself, on all 64-bit machines.
pub(super) const LOWEST: u64 = 1 << 63;

#[derive(Debug)]
pub(super) struct Kernel {
    text: String,
    /// Address and place of the line, by address.
    lines: Vec<(u64, u32)>,
    /// `kernel.kptr_restrict`, where all addresses are hidden.
    pub(super) hidden: Option<Option<u32>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KernelSymbol<'k> {
    pub(super) address: u64,
    /// Up to the next symbol: the kernel doesn't say more. 0 for the last one.
    pub(super) room: u64,
    pub(super) kind: Kind,
    pub(super) name: &'k str,
    pub(super) module: Option<&'k str>,
}

impl Kernel {
    pub(super) fn read(proc: &Proc) -> Result<Self, ProcError> {
        let mut kernel = Self::parse(proc.kernel_symbols()?);
        if kernel.hidden.is_some() {
            kernel.hidden = Some(proc.pointer_restriction());
        }
        Ok(kernel)
    }

    pub(super) fn parse(text: Vec<u8>) -> Self {
        let text =
            String::from_utf8(text).unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned());
        let mut lines = Vec::new();
        let mut at = 0;
        for line in text.as_bytes().split(|&byte| byte == b'\n') {
            if let (Some((address, ..)), Ok(place)) = (head(line), u32::try_from(at)) {
                lines.push((address, place));
            }
            at += line.len() + 1;
        }
        lines.sort_unstable();
        let hidden = lines.iter().all(|(address, _)| *address == 0).then_some(None);
        Self { text, lines, hidden }
    }

    /// Where a symbol of the kernel itself is.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        let mut own = self.symbols().filter(|symbol| symbol.module.is_none());
        own.find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    pub(super) fn at(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let after = self.lines.partition_point(|(begin, _)| *begin <= address);
        let begin = self.lines[..after].last()?.0;
        // Of several names the first in the list is the one that the source has; marks of sections are no names.
        let first = self.lines.partition_point(|(other, _)| *other < begin);
        let all = || self.lines[first..after].iter().filter_map(|(_, place)| self.symbol(*place));
        let found = all().find(|symbol| !symbol.name.starts_with('_')).or_else(|| all().next())?;
        // Behind the last symbol of the kernel or of a module comes nothing for a long way.
        const FARTHEST: u64 = 1 << 24;
        (address >= LOWEST && address - found.address < FARTHEST).then_some(found)
    }

    /// The symbols that fit a name best, of all or of one module. Addresses may be hidden.
    pub(super) fn find(&self, name: &str, module: Option<&str>) -> Vec<KernelSymbol<'_>> {
        let matcher = NameMatcher::new(name);
        let module = module.map(|module| module.trim_matches(['[', ']']));
        let among = self.symbols().filter(|symbol| module.is_none() || symbol.module == module);
        let fits = among.filter_map(|symbol| Some((matcher.fit(symbol.name.as_bytes())?, symbol)));
        let mut found: Vec<(Fit, KernelSymbol<'_>)> = fits.collect();
        let best = found.iter().map(|(fit, _)| *fit).min();
        found.retain(|(fit, _)| Some(*fit) == best);
        found.dedup_by_key(|(_, symbol)| (symbol.address, symbol.name));
        found.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// Whether a symbol is called so, and not only a copy of it or one in some path.
    pub(super) fn has(&self, name: &str) -> bool {
        let matcher = NameMatcher::new(name);
        self.names().any(|known| matcher.fit(known.as_bytes()) == Some(Fit::Exact))
    }

    pub(super) fn has_module(&self, name: &str) -> bool {
        let name = name.trim_matches(['[', ']']);
        self.symbols().any(|symbol| symbol.module == Some(name))
    }

    /// Whether variables are in the list, and not only functions and what the linker made up.
    pub(super) fn lists_data(&self) -> bool {
        // Every kernel has thousands, or a handful.
        const HANDFUL: usize = 500;
        let own = self.symbols().filter(|symbol| symbol.kind == Kind::Data && symbol.module.is_none());
        own.filter(|symbol| !symbol.name.starts_with("__")).take(HANDFUL).count() == HANDFUL
    }

    fn symbols(&self) -> impl Iterator<Item = KernelSymbol<'_>> {
        self.lines.iter().filter_map(|(_, place)| self.symbol(*place))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.symbols().map(|symbol| symbol.name)
    }

    /// Whether an address is between two symbols of the kernel itself: which symbol it belongs to is the same each time that this build
    /// runs.
    pub(super) fn is_inside(&self, address: u64) -> bool {
        let after = self.lines.partition_point(|(begin, _)| *begin <= address);
        let is_own = |line: Option<&(u64, u32)>| {
            line.and_then(|(_, place)| self.symbol(*place)).is_some_and(|symbol| symbol.module.is_none())
        };
        is_own(self.lines[..after].last()) && is_own(self.lines.get(after))
    }

    fn symbol(&self, place: u32) -> Option<KernelSymbol<'_>> {
        let line = self.text.get(place as usize..)?.split('\n').next()?;
        let (address, kind, at) = head(line.as_bytes())?;
        let rest = line.get(at..)?;
        let (name, module) = match rest.split_once('\t') {
            Some((name, module)) => (name, Some(module.trim().trim_matches(['[', ']']))),
            None => (rest, None),
        };
        let after = self.lines.partition_point(|(other, _)| *other <= address);
        let room = self.lines.get(after).map_or(0, |(next, _)| next - address);
        Some(KernelSymbol { address, room, kind, name, module })
    }
}

/// The address of a line, its kind, and where its name begins. `None` for what is no symbol: undefined ones, and marks of the assembler.
fn head(line: &[u8]) -> Option<(u64, Kind, usize)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // No address has more; each digit is one character.
    let address = line.get(..digits).filter(|digits| (1..=16).contains(&digits.len()))?;
    let value = |byte: u8| u64::from(if byte <= b'9' { byte - b'0' } else { (byte | 0x20) - b'a' + 10 });
    let address = address.iter().fold(0, |sum, &byte| sum << 4 | value(byte));
    let &[b' ', kind, b' ', first, ..] = line.get(digits..)? else { return None };
    let kind = match kind {
        b't' | b'T' | b'w' | b'W' => Kind::Code,
        b'i' => Kind::Chooser,
        b'U' | b'a' | b'n' | b'N' => return None,
        _ => Kind::Data,
    };
    (!matches!(first, b'$' | b'\t')).then_some((address, kind, digits + 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T start_here
ffffffff81000100 t f.isra.0
ffffffff82000000 D jiffies
ffffffff82000008 d other
0000000000001000 A per_cpu_thing
ffffffffc0000000 t run\t[module_a]
ffffffffc0000040 t run\t[module_b]
nonsense
";

    #[test]
    fn names_and_addresses() {
        let kernel = Kernel::parse(LIST.into());
        assert_eq!(kernel.hidden, None);
        let jiffies = &kernel.find("jiffies", None)[0];
        assert_eq!((jiffies.address, jiffies.room, jiffies.kind), (0xffff_ffff_8200_0000, 8, Kind::Data));
        assert_eq!(kernel.find("f", None)[0].name, "f.isra.0");
        assert_eq!(kernel.find("run", None).len(), 2);
        assert_eq!(kernel.find("run", Some("[module_b]"))[0].address, 0xffff_ffff_c000_0040);
        assert!(kernel.find("runs", None).is_empty());
        assert!(kernel.has_module("module_a") && !kernel.has_module("module_c"));
        assert_eq!(kernel.at(0xffff_ffff_8100_0010).unwrap().name, "start_here");
        assert_eq!(kernel.at(0xffff_ffff_c000_0041).unwrap().module, Some("module_b"));
        assert_eq!(kernel.at(0xffff_ffff_f000_0000), None);
        assert_eq!(kernel.at(0x1004), None);
    }

    #[test]
    fn hidden_addresses_are_noticed() {
        let kernel = Kernel::parse("0000000000000000 T _stext\n0000000000000000 D jiffies\n".into());
        assert_eq!(kernel.hidden, Some(None));
        assert_eq!(kernel.find("jiffies", None)[0].address, 0);
        assert_eq!(Kernel::parse(Vec::new()).hidden, Some(None));
    }
}
