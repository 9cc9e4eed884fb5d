#!/bin/busybox sh
# What pmux counts of a program whose instructions are known: the truth and a constant, to the digit, each time.

# The emulated PMU counts what any CPU executes, so there must not be another one.
others=$(seq 1 63)
for cpu in $others; do
    [ ! -e "/sys/devices/system/cpu/cpu$cpu/online" ] || echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"
done

count() { pmux stat -x, -e instructions:u -- known "$1" "$2" 2>&1 | cut -d, -f1; }

status=0
wrong() {
    echo "wrong: $1"
    status=1
}

printf '%-12s %11s %12s %12s %12s\n' program executes counted again 'too many'
for mode in instructions steady; do
    surplus=
    for number in 1000000 11000000 101000000; do
        first=$(count $mode $number)
        again=$(count $mode $number)
        printf '%-12s %11s %12s %12s %12s\n' $mode $number "$first" "$again" $((first - number))
        [ "$first" = "$again" ] || wrong "counted twice, it is not the same"
        [ -z "$surplus" ] || [ $((first - number)) = "$surplus" ] || wrong "what was counted too much is not constant"
        surplus=$((first - number))
        if [ $surplus -lt 0 ] || [ $surplus -gt 300 ]; then
            wrong "more than what the start and the exit of the program need"
        fi
    done
done

for cpu in $others; do
    [ ! -e "/sys/devices/system/cpu/cpu$cpu/online" ] || echo 1 >"/sys/devices/system/cpu/cpu$cpu/online"
done
exit $status
