#!/bin/busybox sh
# What `pmux stat -a` counts while CPUs 2 and 3 go off and on ten times: each CPU whenever it was there, and the gaps to the
# millisecond. The truth is what the kernel traces of its own steps: when it took the events of a CPU away, and when it would
# have had some again. Read first: lab/README.md.

times=10
tracing=/sys/kernel/tracing
switch() { echo "$2" >"/sys/devices/system/cpu/cpu$1/online"; }

# The command that is counted: this program again.
if [ "$1" = switch ]; then
    round=0
    sleep 0.1
    while [ $((round += 1)) -le $times ]; do
        # Both are away for a while, one longer than the other, and not equally long each time.
        switch 2 0 && switch 3 0 && sleep 0.0$((round % 5 + 3)) && switch 3 1 && sleep 0.02 && switch 2 1 && sleep 0.05 || exit 1
    done
    exit 0
fi

if [ ! -e /sys/devices/system/cpu/cpu3/online ]; then
    echo "skipped: needs four CPUs"
    exit 0
fi
if [ ! -e $tracing/events/cpuhp/enable ]; then
    echo "skipped: needs the kernel's trace of CPU hotplug"
    exit 0
fi

# The trace has the times of the clock by which pmux measures.
echo mono >$tracing/trace_clock
echo >$tracing/trace
echo 1 >$tracing/events/cpuhp/enable
pmux stat -a -A -e cpu-clock -o /tmp/gaps -- sh "$0" switch
status=$?
echo 0 >$tracing/events/cpuhp/enable
if [ $status != 0 ]; then
    cat /tmp/gaps
    echo "wrong: pmux stat exited with $status"
    exit 1
fi

# The functions with which the kernel takes the events of a CPU away, and allows new ones.
sed -n 's/^.* \([0-9]*\.[0-9]*\): cpuhp_enter: *cpu: 0*\([0-9]\+\) .*(perf_event_\(exit\|init\)_cpu.*$/trace \1 \2 \3/p' $tracing/trace >/tmp/truth
# `CPU2  1,234.56 msec cpu-clock`, and the sentences about gaps.
tr -d , </tmp/gaps | tr '\n' ' ' | tr -s ' ' '\n' >/tmp/words
awk -v times=$times '
    function wrong(what) { print "wrong: " what; failures++ }
    function far(a, b) { return a - b > 0.0011 || b - a > 0.0011 }
    FILENAME == ARGV[1] {
        # Each is called twice: the first farewell and the last welcome count.
        if ($4 == "init" && $3 in since) { away[$3] += $2 - since[$3]; since[$3] = $2; is_away[$3] = 0 }
        if ($4 == "exit" && !is_away[$3]) { since[$3] = $2; is_away[$3] = 1; gone[$3]++ }
        next
    }
    # One word a line, as they follow each other.
    { word[++words] = $1 }
    END {
        for (at = 1; at <= words; at++) {
            if (word[at] ~ /^CPU[0-9]+$/ && word[at + 2] == "msec") clock[substr(word[at], 4)] = word[at + 1] / 1000
            # CPU N was counted for X s of Y s and missed for Z s: it was offline T times
            if (word[at] == "CPU" && word[at + 3] == "counted" && word[at + 9] == "s" && word[at + 10] == "and") {
                cpu = word[at + 1]
                covered[cpu] = word[at + 5]; span = word[at + 8]; missed[cpu] = word[at + 13]; went[cpu] = word[at + 18]
            }
        }
        printf "%-5s %6s %12s %12s %12s %12s\n", "CPU", "times", "away s", "missed s", "counted s", "clock s"
        for (cpu = 0; cpu < 4; cpu++) {
            if (!(cpu in clock)) wrong("CPU " cpu " has no count")
            if (cpu < 2 && cpu in missed) wrong("CPU " cpu " never went, and yet has a gap")
            printf "%-5d %6d %12.3f %12.3f %12.3f %12.3f\n", cpu, gone[cpu], away[cpu], missed[cpu], covered[cpu], clock[cpu]
            if (cpu < 2) continue
            if (gone[cpu] != times || went[cpu] != times)
                wrong("CPU " cpu " went " times " times; the kernel traced " gone[cpu] + 0 ", and pmux says " went[cpu] + 0)
            if (far(covered[cpu] + missed[cpu], span)) wrong("CPU " cpu ": counted and missed are not the whole time")
            if (far(clock[cpu], covered[cpu])) wrong("CPU " cpu ": its clock did not count for the time that is said")
            # Counting begins again when the news has come, and the emulated CPUs take turns of milliseconds.
            if (missed[cpu] < away[cpu] - 0.0011) wrong("CPU " cpu ": less is missed than it was away")
            if (missed[cpu] > away[cpu] + 0.005 * times) wrong("CPU " cpu ": it was there, and not counted")
        }
        exit failures > 0
    }
' /tmp/truth /tmp/words || {
    cat /tmp/gaps
    exit 1
}
