// Entry of CPUs, of exceptions, and the switch between kernel stacks.

.section .text.boot, "ax"
.global _start
_start:
    // Only the first CPU runs: QEMU holds the others until PSCI CPU_ON.
    adrp x1, bss_start
    adrp x2, bss_end
1:  cmp x1, x2
    b.hs 2f
    stp xzr, xzr, [x1], #16
    b 1b
2:  // The one table of the kernel: 1 GiB of devices, 1 GiB of memory, each address at itself.
    adrp x1, kernel_l0
    add x1, x1, :lo12:kernel_l0
    adrp x2, kernel_l1
    add x2, x2, :lo12:kernel_l1
    orr x3, x2, #3
    str x3, [x1]
    // Device-nGnRnE (attribute 0), access flag, never executed.
    mov x3, #0x401
    movk x3, #0x60, lsl #48
    str x3, [x2]
    // Normal memory (attribute 1), inner shareable, access flag, not executed by EL0.
    mov x3, #0x705
    movk x3, #0x4000, lsl #16
    movk x3, #0x40, lsl #48
    str x3, [x2, #8]
    mov x0, #0
    b enter

// PSCI CPU_ON: x0 is the number of the CPU.
.global secondary_start
secondary_start:
    b enter

// x0: the number of the CPU.
enter:
    mov x1, #0xff00              // MAIR: attribute 0 device, attribute 1 normal, write back
    msr mair_el1, x1
    ldr x1, =0x200803510         // TCR: 48 bits, 4 KiB pages, cacheable, inner shareable, 40 bits physical, no TTBR1
    msr tcr_el1, x1
    adrp x1, kernel_l0
    add x1, x1, :lo12:kernel_l0
    msr ttbr0_el1, x1
    dsb ish
    tlbi vmalle1
    dsb nsh
    isb
    ldr x1, =0x30d01805          // SCTLR: its fixed ones, MMU, data and instruction cache
    msr sctlr_el1, x1
    isb
    adrp x1, vectors
    add x1, x1, :lo12:vectors
    msr vbar_el1, x1
    msr spsel, #1
    msr tpidr_el1, x0
    adrp x1, boot_stacks
    add x2, x0, #1
    add x1, x1, x2, lsl #15
    mov sp, x1
    mov x29, xzr
    bl start_cpu
3:  wfi
    b 3b

.section .bss.tables, "aw", @nobits
.balign 4096
kernel_l0: .skip 4096
kernel_l1: .skip 4096
.global kernel_l0

.section .text, "ax"

.macro save kind
    sub sp, sp, #272
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x0, sp_el0
    stp x30, x0, [sp, #240]
    mrs x0, elr_el1
    mrs x1, spsr_el1
    stp x0, x1, [sp, #256]
    mov x0, sp
    mov x1, #\kind
    bl exception
    b restore
.endm

restore:
    ldp x0, x1, [sp, #256]
    msr elr_el1, x0
    msr spsr_el1, x1
    ldp x30, x0, [sp, #240]
    msr sp_el0, x0
    ldp x0, x1, [sp, #0]
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x19, [sp, #144]
    ldp x20, x21, [sp, #160]
    ldp x22, x23, [sp, #176]
    ldp x24, x25, [sp, #192]
    ldp x26, x27, [sp, #208]
    ldp x28, x29, [sp, #224]
    add sp, sp, #272
    eret

.macro vector kind
    .balign 128
    b entry_\kind
.endm

.balign 2048
vectors:
    vector 0
    vector 1
    vector 2
    vector 3
    vector 4
    vector 5
    vector 6
    vector 7
    vector 8
    vector 9
    vector 10
    vector 11
    vector 12
    vector 13
    vector 14
    vector 15

.irp kind, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
entry_\kind:
    save \kind
.endr

// switch_stacks(x0: where to keep this stack, x1: the other stack)
.global switch_stacks
switch_stacks:
    sub sp, sp, #96
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    add sp, sp, #96
    ret

// The first switch to a task returns here.
.global first_return
first_return:
    bl task_begins
    b restore
