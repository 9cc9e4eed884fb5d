//! Functions of other libraries, as a file calls them: the entries of its procedure linkage table (PLT).
//!
//! What it is: no table of symbols has them. Each jumps to where its slot of the global offset table (GOT) points, and a relocation says
//! which function the linker writes there. Read first: [`entries`].
//!
//! Source: System V ABI, processor supplements for x86-64 and for AArch64.

use object::elf;

/// A relocation: the address of a slot, and the number of the symbol in the dynamic table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) address: u64,
    pub(super) symbol: usize,
}

/// An entry: its address, its length in bytes, and the number of the symbol that it jumps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PltEntry {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) symbol: usize,
}

/// The entries of a section at an address, where the slots are those of all relocations, by address.
pub(super) fn entries(machine: elf::Machine, address: u64, code: &[u8], slots: &[Slot]) -> Vec<PltEntry> {
    let jumps: fn(u64, &[u8]) -> Option<u64> = match machine {
        elf::EM_X86_64 => slot_of_x86_64,
        elf::EM_AARCH64 => slot_of_aarch64,
        _ => return Vec::new(),
    };
    // Some are 8 bytes long, most 16, on arm64 with branch targets 24.
    const STEP: usize = 8;
    let mut found: Vec<PltEntry> = Vec::new();
    for from in (0..code.len()).step_by(STEP) {
        let Some(at) = address.checked_add(from as u64) else { break };
        let Some(slot) = jumps(at, &code[from..]) else { continue };
        let Ok(index) = slots.binary_search_by_key(&slot, |slot| slot.address) else { continue };
        let end = address.saturating_add(code.len() as u64);
        if let Some(last) = found.last_mut() {
            last.size = at - last.address;
        }
        // Up to the next one.
        found.push(PltEntry { address: at, size: end - at, symbol: slots[index].symbol });
    }
    if let Some(last) = found.last_mut() {
        last.size = last.size.min(24);
    }
    found
}

/// `endbr64`, or nothing; `bnd`, or nothing; `jmp *displacement(%rip)`.
fn slot_of_x86_64(address: u64, code: &[u8]) -> Option<u64> {
    let after = |code: &[u8], prefix: &[u8]| code.strip_prefix(prefix).map_or(0, |_| prefix.len());
    let mut at = after(code, &[0xf3, 0x0f, 0x1e, 0xfa]);
    at += after(code.get(at..)?, &[0xf2]);
    let displacement = code.get(at..)?.strip_prefix(&[0xff, 0x25])?.first_chunk()?;
    let displacement = i64::from(i32::from_le_bytes(*displacement));
    Some(address.wrapping_add(at as u64 + 6).wrapping_add_signed(displacement))
}

/// `bti c`, or nothing; `adrp x16, page`; `ldr x17, [x16, offset]`.
fn slot_of_aarch64(address: u64, code: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u32::from_le_bytes(*code.get(at..)?.first_chunk()?));
    let at = if word(0)? == 0xd503_245f { 4 } else { 0 };
    let (adrp, ldr) = (word(at)?, word(at + 4)?);
    if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let pages = u64::from((adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3);
    // 21 bits with a sign.
    let pages = (pages << 43).cast_signed() >> 43;
    let page = address.wrapping_add(at as u64) & !0xfff;
    Some(page.wrapping_add_signed(pages << 12).wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_the_slots_that_they_jump_by() {
        let slots = [0x4000, 0x4008, 0x4010].map(|address| Slot { address, symbol: address as usize & 0xff });
        // `push`, `jmp *` of the first entry by a slot that is no function's, then endbr64 with and without bnd, padded to 16.
        let mut code = vec![0xff, 0x35, 0xe2, 0x2f, 0, 0, 0xff, 0x25, 0xe4, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0];
        code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xe5, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0]);
        code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xe6, 0x2f, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0]);
        // Of 8 bytes, as where all is bound at the start.
        code.extend([0xff, 0x25, 0xd2, 0x2f, 0, 0, 0x66, 0x90]);
        let found = entries(elf::EM_X86_64, 0x1000, &code, &slots);
        let entry = |address, size, symbol| PltEntry { address, size, symbol };
        assert_eq!(found, [entry(0x1010, 16, 0), entry(0x1020, 16, 0x10), entry(0x1030, 8, 8)]);
        assert_eq!(entries(elf::EM_X86_64, u64::MAX - 8, &code, &slots), []);
        for cut in 0..code.len() {
            entries(elf::EM_X86_64, 0x1000, &code[..cut], &slots);
        }
    }

    #[test]
    fn those_of_arm64_have_a_page_and_an_offset() {
        let slots = [Slot { address: 0x1_1fe8, symbol: 3 }];
        // adrp x16, 0x11000; ldr x17, [x16, #0xfe8]; add x16, x16, #0xfe8; br x17, at 0x630.
        let words: [u32; 4] = [0xb000_0090, 0xf947_f611, 0x913f_a210, 0xd61f_0220];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = entries(elf::EM_AARCH64, 0x630, &code, &slots);
        assert_eq!(found, [PltEntry { address: 0x630, size: 16, symbol: 3 }]);
        let with_target: Vec<u8> = [0xd503_245f_u32.to_le_bytes().as_slice(), &code, &[0; 4]].concat();
        let found = entries(elf::EM_AARCH64, 0x630, &with_target, &slots);
        assert_eq!(found, [PltEntry { address: 0x630, size: 24, symbol: 3 }]);
    }
}
