//! The programs that look at each task: when recording begins, and when it ends.
//!
//! What hangs leaves no CPU while it is recorded, and neither does what runs all the time. So what has a CPU, and what sleeps, is marked when
//! recording begins, and what waits is written when it ends.
//!
//! The memory of a task that waits is not read: what is not there would have to be read in, from a file system that may never answer, and all
//! programs of this kind in the kernel would be held up as long. What its registers say is enough for the function in which it waits.
//!
//! **Invariant:** nothing is written into what is kept of a task, but that it has a CPU, or sleeps, and that only where it has not come or left
//! since.

use super::program::{DEAD, HAS_CPU, Programs, only_value};
use super::{Control, OffCpuRecord, Place, Wait, words};
use crate::bpf::{Alu, Assembler, Bytecode, Compare, Helper, Label, Reg, Size};

// What stands where on the stack, below R10, and below what stands there in `program`: where to write, and the value of the task.
const SEQUENCE: i16 = -104;
const VALUE: i16 = -112;

/// Waits that had not ended when recording did.
#[derive(Debug, Default)]
pub struct UnderWay {
    records: Vec<u8>,
}

impl UnderWay {
    /// The waits.
    pub fn waits(&self) -> impl Iterator<Item = Wait<'_>> {
        let mut rest = &self.records[..];
        let records = std::iter::from_fn(move || {
            let (record, behind) = rest.split_at_checked(record_bytes(rest)?)?;
            rest = behind;
            Some(record)
        });
        records.filter_map(|record| match OffCpuRecord::decode(record)? {
            OffCpuRecord::Wait(wait) => Some(wait),
            OffCpuRecord::Wake(_) => None,
        })
    }

    /// Of what programs wrote, when recording had gone on from a moment to another: fills in when waits began that had begun before
    /// recording did, and when all of them end.
    pub(super) fn of(mut records: Vec<u8>, (since_ns, until_ns): (u64, u64)) -> Self {
        let mut rest = &mut records[..];
        while let Some((record, behind)) = record_bytes(rest).and_then(|bytes| rest.split_at_mut_checked(bytes)) {
            let word = |place: i16| words(record.get(usize::from(place.unsigned_abs())..).unwrap_or_default()).next();
            let born_ns = word(Place::CAME_AT).unwrap_or(0);
            let is_older = word(Place::LEFT_AT) == Some(0);
            let was_woken = word(Place::WOKEN_AT).is_some_and(|woken| woken != 0);
            let mut put = |place: i16, bytes: &[u8]| {
                let at = usize::from(place.unsigned_abs());
                record.get_mut(at..at + bytes.len()).into_iter().for_each(|into| into.copy_from_slice(bytes));
            };
            put(Place::CAME_AT, &until_ns.to_ne_bytes());
            if is_older {
                put(Place::LEFT_AT, &since_ns.max(born_ns).to_ne_bytes());
                // It has slept, although it does not any more.
                was_woken.then(|| put(Place::STATE, &1_u32.to_ne_bytes()));
            }
            rest = behind;
        }
        Self { records }
    }
}

/// How long the record is that these bytes begin with.
fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let word = |place: i16| {
        let bytes = bytes.get(usize::from(place.unsigned_abs())..)?.first_chunk()?;
        usize::try_from(u32::from_ne_bytes(*bytes)).ok()
    };
    Some(usize::from(Place::STACKS.unsigned_abs()) + word(Place::USER_BYTES)? + word(Place::KERNEL_BYTES)?)
}

impl<'m> Programs<'m> {
    /// Runs for each task when recording has begun: what has a CPU is marked as such, and so is what sleeps, by the time in
    /// [`Place::CAME_AT`]: not every wake-up is seen, and what comes back without one had else waited for a CPU.
    pub(super) fn mark(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let (end, away) = (asm.label(), asm.label());
        self.each_task(asm, end);
        self.value(asm, end);
        asm.load(Size::Word, Reg::R1, Reg::R7, self.layout.on_cpu?).jump_if(Reg::R1, Compare::Equal, 0, away);
        // Unless it has come or gone since.
        asm.set(Reg::R0, 0).set(Reg::R1, HAS_CPU).compare_exchange(Reg::R9, Place::LEFT_AT, Reg::R1).jump(end);
        asm.place(away).load(Size::Word, Reg::R1, Reg::R7, self.layout.state_now);
        asm.jump_if(Reg::R1, Compare::Equal, 0, end).call(Helper::KtimeGetNs).set(Reg::R1, Reg::R0);
        asm.load(Size::Double, Reg::R0, Reg::R9, Place::CAME_AT).compare_exchange(Reg::R9, Place::CAME_AT, Reg::R1);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Runs for each task when recording has ended: writes the record of a wait that goes on, with the birth of the task in the place of
    /// [`Place::CAME_AT`].
    pub(super) fn under_way(&self) -> Option<Bytecode<'m>> {
        let mut code = Assembler::new();
        let asm = &mut code;
        let (end, seen, no_kernel, known) = (asm.label(), asm.label(), asm.label(), asm.label());
        let (asleep, on_cpu) = (asm.label(), self.layout.on_cpu?);
        self.each_task(asm, end);
        self.value_if_away(asm, end);
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).jump_if(Reg::R1, Compare::Equal, HAS_CPU, end);
        asm.store(Size::Double, Reg::R10, VALUE, Reg::R9);
        only_value(asm, &self.maps.scratch, end).set(Reg::R9, Reg::R0);
        let bytes = self.layout.task_bytes().cast_signed();
        asm.set(Reg::R1, Reg::R9).set(Reg::R2, bytes).load(Size::Double, Reg::R3, Reg::R10, VALUE);
        asm.call(Helper::ProbeReadKernel).load(Size::Double, Reg::R2, Reg::R10, VALUE);
        // It may have come, and left again, meanwhile.
        asm.load(Size::Double, Reg::R1, Reg::R9, Place::LEFT_AT).load(Size::Double, Reg::R2, Reg::R2, Place::LEFT_AT);
        asm.jump_if(Reg::R1, Compare::Unequal, Reg::R2, end).jump_if(Reg::R1, Compare::Unequal, 0, seen);
        // It was away when recording began, and is so still, unless it had a CPU all the time.
        asm.load(Size::Word, Reg::R2, Reg::R7, on_cpu).jump_if(Reg::R2, Compare::Unequal, 0, end);
        asm.load(Size::Word, Reg::R2, Reg::R7, self.layout.state_now).jump_if(Reg::R2, Compare::Common, DEAD, end);
        asm.store(Size::Word, Reg::R9, Place::STATE, Reg::R2);
        // Or there was no room for it when it came.
        only_value(asm, &self.maps.control, end).load(Size::Double, Reg::R1, Reg::R0, Control::NO_ROOM);
        asm.jump_if(Reg::R1, Compare::Unequal, 0, end);
        self.registers_of_next(asm);
        asm.jump(asleep).place(seen);
        // Of what was woken before it had left, and sleeps, the mark is an old one.
        asm.load(Size::Word, Reg::R2, Reg::R7, self.layout.state_now).jump_if(Reg::R2, Compare::Equal, 0, asleep);
        // That it was back in between was perhaps not seen: it sleeps, and was not preempted.
        asm.store(Size::Word, Reg::R9, Place::STATE, Reg::R2);
        asm.load(Size::Double, Reg::R2, Reg::R9, Place::WOKEN_AT).jump_if(Reg::R2, Compare::Greater, Reg::R1, asleep);
        asm.store(Size::Double, Reg::R9, Place::WOKEN_AT, 0).place(asleep);
        asm.load(Size::Double, Reg::R1, Reg::R7, self.layout.start_time);
        asm.store(Size::Double, Reg::R9, Place::CAME_AT, Reg::R1);
        self.task(asm, Reg::R2);
        asm.store(Size::Double, Reg::R9, Place::TASK, Reg::R2);
        self.priority(asm);
        asm.load(Size::Word, Reg::R8, Reg::R9, Place::USER_BYTES);
        self.no_more_than_there_is(asm, Reg::R8);
        // The stack of what runs by now changes while it is walked.
        asm.set(Reg::R0, 0).load(Size::Word, Reg::R2, Reg::R7, on_cpu);
        asm.jump_if(Reg::R2, Compare::Unequal, 0, known);
        asm.set(Reg::R2, Reg::R9).alu(Alu::Add, Reg::R2, Reg::R8).alu(Alu::Add, Reg::R2, i32::from(Place::STACKS));
        asm.set(Reg::R1, Reg::R7).set(Reg::R3, Place::KERNEL_BYTES_MOST).set(Reg::R4, 0).call(Helper::GetTaskStack);
        asm.jump_if(Reg::R0, Compare::Greater, Place::KERNEL_BYTES_MOST, no_kernel).jump(known);
        asm.place(no_kernel).set(Reg::R0, 0);
        asm.place(known).store(Size::Word, Reg::R9, Place::KERNEL_BYTES, Reg::R0).alu(Alu::Add, Reg::R8, Reg::R0);
        asm.set(Reg::R3, Reg::R8).alu(Alu::Add, Reg::R3, i32::from(Place::STACKS)).set(Reg::R2, Reg::R9);
        asm.load(Size::Double, Reg::R1, Reg::R10, SEQUENCE).call(Helper::SeqWrite);
        asm.place(end).set(Reg::R0, 0).exit();
        code.finish()
    }

    /// Begins a program that runs for each task, which is in `R7`.
    fn each_task(&self, asm: &mut Assembler<'m>, other: Label) {
        asm.set(Reg::R6, Reg::R1).load(Size::Double, Reg::R7, Reg::R6, 8).jump_if(Reg::R7, Compare::Equal, 0, other);
        asm.load(Size::Double, Reg::R1, Reg::R6, 0).load(Size::Double, Reg::R1, Reg::R1, 0);
        asm.store(Size::Double, Reg::R10, SEQUENCE, Reg::R1).set(Reg::R8, 0);
        self.user_task(asm, other);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn what_is_under_way_ends_with_the_recording() {
        // Since before it, asleep; woken since; seen to leave, with its birth in the place of its end.
        let records = [(0, 0, 7, 1), (0, 150, 120, 0), (130, 0, 7, 1)];
        let bytes =
            records.map(|(left, woken, born, state)| record(left, woken, born, state, (&[1], &[2, 3]))).concat();
        let under_way = UnderWay::of(bytes.clone(), (100, 200));
        let waits: Vec<_> = under_way.waits().map(|wait| (wait.left_ns, wait.runnable_ns, wait.came_ns)).collect();
        assert_eq!(waits, [(100, 200, 200), (120, 150, 200), (130, 200, 200)]);
        // What is cut off is no wait, and nothing behind its end is read.
        for length in 0..bytes.len() {
            let cut = UnderWay::of(bytes[..length].to_vec(), (100, 200));
            assert!(cut.waits().count() <= length / (bytes.len() / 3), "{length}");
        }
    }
}
