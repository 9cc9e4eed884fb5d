#!/bin/busybox sh
# `pmux watch` on the kernel itself: who calls a function, with the way there by the kernel's names; and, where the kernel lists its
# variables, who writes to one. Read first: lab/README.md.

fail() {
    cat /tmp/watched
    echo "wrong: $1"
    exit 1
}

# Two programs open a file each, and pmux says by which way.
pmux watch --max-stack 16 -o /tmp/watched kernel:vfs_open -a -- sh -c 'busybox cat /etc/passwd /lab/plan' >/dev/null 2>&1
grep -q 'vfs_open (0x[0-9a-f]*, executions): [1-9]' /tmp/watched || fail 'vfs_open has no hits'
grep -q 'busybox' /tmp/watched || grep -q 'cat' /tmp/watched || fail 'the thread that opened files is not there'
grep -q 'do_filp_open' /tmp/watched || fail 'the call chain has no names of the kernel'
grep -v '^$' /tmp/watched | head -n 4

pmux watch --trace --rate 5 -o /tmp/watched jiffies:w -a --timeout 200
if grep -q CONFIG_KALLSYMS_ALL /tmp/watched; then
    echo "skipped: needs a kernel that lists its variables (CONFIG_KALLSYMS_ALL)"
    exit 0
fi
# Where a program looks at the hit, there are values: each tick makes it one more.
grep -q 'jiffies (0x[0-9a-f]*, 8 bytes, writes): [1-9]' /tmp/watched || pmux watch jiffies:w -a --timeout 200 -o /tmp/watched
grep -q 'writes): [1-9]' /tmp/watched || fail 'jiffies has no hits'
grep -q 'tick_' /tmp/watched || fail 'nothing says that it is the tick who writes'
grep -v '^$' /tmp/watched | head -n 8
