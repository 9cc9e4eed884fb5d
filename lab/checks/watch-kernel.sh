#!/bin/busybox sh
# `pmux watch` on the kernel itself: who calls a function, with the way there by the kernel's names; and, where the kernel lists its
# variables, who writes to one. Read first: lab/README.md.

fail() {
    cat /tmp/watched
    echo "wrong: $1"
    exit 1
}

pmux watch --max-stack 16 -o /tmp/watched kernel:vfs_open -a -- busybox cat /etc/passwd /lab/plan >/dev/null
grep -q 'vfs_open (0x[0-9a-f]*, executions): [1-9]' /tmp/watched || fail 'vfs_open has no hits'
grep -q ' busybox ' /tmp/watched || fail 'the thread that opened files is not there'
grep -q 'do_sys_openat2' /tmp/watched || fail 'the call chain has no names of the kernel'

# Each of them once: a machine that reports an access in front steps over it, and must not be kept from that.
pmux watch --trace --rate 0 -o /tmp/watched kernel:vfs_open -a -- busybox cat /etc/passwd /lab/plan >/dev/null
grep -q 'vfs_open (0x[0-9a-f]*, executions): [1-9][0-9]\{0,2\} hits\? ' /tmp/watched || fail 'vfs_open has no hits, or far too many'

if pmux watch --trace --rate 5 -o /tmp/watched jiffies:w -a --timeout 200 2>/tmp/why; then
    grep -q 'jiffies:w (0x[0-9a-f]*, 8 bytes, writes): [1-9]' /tmp/watched || fail 'jiffies has no hits'
    grep -q 'tick_' /tmp/watched || fail 'nothing says that it is the tick that writes'
    # Where a program looks at the hit, it sees what the tick found; what that left can be read only after the next one.
    if grep -q 'seen by a BPF program' /tmp/watched; then
        grep -q '   [0-9a-fx][0-9a-fx]* → .*  kernel tick_' /tmp/watched || fail 'jiffies has no values'
    fi
elif grep -q CONFIG_KALLSYMS_ALL /tmp/why; then
    echo "skipped: needs a kernel that lists its variables"
else
    cat /tmp/why
    exit 1
fi
