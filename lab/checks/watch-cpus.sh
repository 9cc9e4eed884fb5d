#!/bin/busybox sh
# A CPU that comes while `pmux watch -a` watches is watched as well, also one that was there before and comes back. Read first:
# lab/README.md.

switch() { echo "$2" >"/sys/devices/system/cpu/cpu$1/online"; }

# Waits until pmux has more events than $before. The news of a CPU comes late where CPUs are slow.
events() { ls -l "/proc/$PPID/fd" | grep -c 'anon_inode:.*perf_event'; }
has_more() {
    for _ in $(seq 120); do
        [ "$(events)" -le "$before" ] || return 0
        sleep 0.5
    done
    echo "wrong: pmux has $before events, and none for CPU 3" >&2
    exit 1
}

# The command: this program again. What it does on CPUs 2 and 3 is done behind their coming.
if [ "$1" = come ]; then
    before=$(events)
    switch 3 1 || exit 1
    has_more
    switch 2 0 && switch 2 1 || exit 1
    sleep 1
    taskset 4 busybox cat /etc/passwd >/dev/null
    taskset 8 busybox cat /etc/passwd >/dev/null
    exit 0
fi

if [ ! -e /sys/devices/system/cpu/cpu3/online ]; then
    echo "skipped: needs four CPUs"
    exit 0
fi
switch 3 0
for detail in '' '--count-only'; do
    # shellcheck disable=SC2086 # options are words
    pmux watch -v $detail -o /tmp/watched kernel:vfs_open -a -- sh "$0" come || {
        cat /tmp/watched
        echo "wrong: pmux watch $detail failed"
        exit 1
    }
    switch 3 0
    echo "with '$detail': $(grep 'vfs_open (0x' /tmp/watched)"
    [ "$detail" != --count-only ] || continue
    for cpu in 2 3; do
        grep -qE " (busybox|cat) .* $cpu( |\$)" /tmp/watched || {
            cat /tmp/watched
            echo "wrong: with '$detail' nothing was seen on CPU $cpu"
            switch 3 1
            exit 1
        }
    done
done
switch 3 1
