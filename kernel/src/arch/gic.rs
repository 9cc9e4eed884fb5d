//! Interrupts: GICv3.

use super::lock::IrqLock;
use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, UniqueMmioPointer};
use core::ptr::NonNull;

/// The virtual timer of a CPU.
pub const TIMER: IntId = IntId::ppi(11);
/// Counters of a CPU have wrapped.
pub const COUNTERS: IntId = IntId::ppi(7);
/// One CPU wants something of another.
pub const CALL: IntId = IntId::sgi(1);

static GIC: IrqLock<Option<GicV3<'static>>> = IrqLock::new(None);

/// Sets up what is for all CPUs. The first CPU calls it once.
pub(super) fn init() {
    let distributor = NonNull::new(0x800_0000 as *mut Gicd);
    let redistributors = NonNull::new(0x80a_0000 as *mut GicrSgi);
    let (Some(distributor), Some(redistributors)) = (distributor, redistributors) else {
        return;
    };
    // SAFETY: (1) These are the registers of the GICv3 of QEMU's `virt`, mapped as a device. (2) Nothing else uses them.
    let gic = unsafe { GicV3::new(UniqueMmioPointer::new(distributor), redistributors, super::CPUS) };
    let mut gic = gic.expect("the GIC");
    gic.setup(0);
    *GIC.lock() = Some(gic);
}

/// Lets a CPU have interrupts. It calls this itself.
pub(super) fn init_cpu(cpu: usize) {
    let mut gic = GIC.lock();
    let gic = gic.as_mut().expect("the first CPU has made it");
    gic.init_cpu(cpu);
    for interrupt in [TIMER, COUNTERS, CALL] {
        gic.set_interrupt_priority(interrupt, Some(cpu), 0x80).expect("an interrupt of a CPU");
        gic.enable_interrupt(interrupt, Some(cpu), true).expect("an interrupt of a CPU");
    }
    GicCpuInterface::set_priority_mask(0xff);
    GicCpuInterface::enable_group1(true);
}

/// This CPU takes no interrupts any more.
pub(super) fn leave_cpu(cpu: usize) {
    GicCpuInterface::enable_group1(false);
    if let Some(gic) = GIC.lock().as_mut() {
        for interrupt in [TIMER, COUNTERS, CALL] {
            gic.enable_interrupt(interrupt, Some(cpu), false).expect("an interrupt of a CPU");
        }
    }
}

/// Hands the interrupt that has come to a closure, and ends it.
pub fn serve(work: impl FnOnce(IntId)) {
    GicCpuInterface::handle_interrupt(InterruptGroup::Group1, work);
}

/// Interrupts another CPU ([`CALL`]).
pub fn call(cpu: usize) {
    let target = SgiTarget::List { affinity3: 0, affinity2: 0, affinity1: 0, target_list: 1 << cpu };
    GicCpuInterface::send_sgi(CALL, target, SgiTargetGroup::CurrentGroup1).expect("an SGI");
}
