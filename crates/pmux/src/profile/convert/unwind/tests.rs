//! Registers and stacks that are anything.

use super::*;
use crate::profile::convert::Converter;
use crate::profile::head::Head;
use crate::profile::maps::{AddressRule, Mapping};
use crate::profile::{Detail, Sources};
use pmux_abi::Array;
use pmux_abi::record::UserStack;

/// Where this program is said to be mapped.
const START: u64 = 0x1_0000;
const X86_MASK: u64 = 0x00ff_0fff;
const ARM_MASK: u64 = (1 << 33) - 1;

fn any_stacks(architecture: &str, mask: u64, [ip, sp, fp]: [usize; 3]) {
    let me = std::env::current_exe().unwrap();
    let mut converter = Converter::new(Head::default(), (Detail::Stacks, usize::MAX), Sources::default());
    let profile = &mut converter.profile;
    profile.about.architecture = Some(architecture.to_owned());
    let path = profile.names.intern(me.as_os_str().as_encoded_bytes());
    let module = Module { kind: ModuleKind::File, path, short: path, build_id: None, start: 0, pid: None };
    let module = profile.modules.add(module);
    let length = std::fs::metadata(&me).unwrap().len();
    let mut maps = Maps::default();
    maps.add(START, Mapping { end: START + length, module, counting: AddressRule::From(0) });
    let mut rng = fastrand::Rng::with_seed(7);
    let any = |rng: &mut fastrand::Rng| match rng.u8(..8) {
        0 => rng.u64(..),
        1 => rng.u64(..16),
        2 => u64::MAX - rng.u64(..16),
        _ => START + rng.u64(..length),
    };
    let mut longest = 0;
    for _ in 0..3000 {
        let mut words: Vec<u64> = (0..64).map(|_| any(&mut rng)).collect();
        let mut registers: Vec<u64> = (0..mask.count_ones()).map(|_| any(&mut rng)).collect();
        registers[ip] = START + rng.u64(..length);
        if rng.bool() {
            registers[sp] = 0x7fff_0000;
            // What looks like a stack: frame pointers lead upwards, above each is where its function returns to.
            registers[fp] = 0x7fff_0000;
            for (at, pair) in words.chunks_exact_mut(2).enumerate() {
                pair[0] = 0x7fff_0000 + 16 * (at as u64 + 1 + rng.u64(..3));
                pair[1] = START + 1 + rng.u64(..length - 1);
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let regs = Regs { abi: RegsAbi::BITS_64, values: Array::from(&registers[..]) };
        let stack = UserStack { data: &bytes, dyn_size: rng.u64(..600) };
        let fields = Sample { regs_user: Some(regs), stack_user: Some(stack), ..Sample::default() };
        let mut out = Vec::new();
        converter.unwinding.chain(&converter.profile, &maps, &fields, mask, &mut out);
        assert!((1..=MOST_FRAMES).contains(&out.len()), "{}", out.len());
        assert!(out.iter().all(|address| (START..START + length).contains(address)), "{out:x?}");
        longest = longest.max(out.len());
    }
    assert!(longest > 3, "no chain was followed");
    assert!(!converter.unwinding.notes(&converter.profile).is_empty());
}

#[test]
fn any_stacks_of_x86_are_bearable() {
    any_stacks("x86_64", X86_MASK, [8, 7, 6]);
}

#[test]
fn any_stacks_of_arm_are_bearable() {
    any_stacks("aarch64", ARM_MASK, [32, 31, 29]);
}

#[test]
fn other_machines_are_said() {
    let converter = Converter::new(Head::default(), (Detail::Stacks, usize::MAX), Sources::default());
    let mut profile = converter.profile;
    profile.about.architecture = Some("riscv64".to_owned());
    let registers = [0; 24];
    let regs = Regs { abi: RegsAbi::BITS_64, values: Array::from(&registers[..]) };
    let fields = Sample { regs_user: Some(regs), stack_user: Some(UserStack::default()), ..Sample::default() };
    let (mut unwinding, mut out) = (Unwinding::default(), Vec::new());
    unwinding.chain(&profile, &Maps::default(), &fields, X86_MASK, &mut out);
    let narrow = Sample { regs_user: Some(Regs { abi: RegsAbi::BITS_32, ..regs }), ..fields };
    unwinding.chain(&profile, &Maps::default(), &narrow, X86_MASK, &mut out);
    let notes = unwinding.notes(&profile).join("\n");
    assert!(out.is_empty() && notes.contains("riscv64") && notes.contains("32-bit"), "{notes}");
}
