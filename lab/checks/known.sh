#!/bin/busybox sh
# What pmux counts of a program whose instructions are known: the truth and a constant, to the digit, each time.

# The emulated PMU counts what any CPU executes, so there must not be another one.
others=$(seq 1 63)
for cpu in $others; do
    [ ! -e "/sys/devices/system/cpu/cpu$cpu/online" ] || echo 0 >"/sys/devices/system/cpu/cpu$cpu/online"
done

# Prints the instructions and the cycles.
count() {
    pmux stat -x, -o /tmp/counts -e cycles:u,instructions:u -- known "$1" "$2" >&2
    sed -n 's/^\([0-9]*\),,instructions:u,.*/\1/p' /tmp/counts
    sed -n 's/^\([0-9]*\),,cycles:u,.*/\1/p' /tmp/counts
}

status=0
wrong() {
    echo "wrong: $1"
    status=1
}

printf '%-12s %11s %12s %12s %9s %12s %12s\n' program executes instructions again 'too many' cycles again
for mode in instructions steady; do
    surplus=
    for number in 1000000 11000000 101000000; do
        # shellcheck disable=SC2046 # two numbers each
        set -- $(count $mode $number) $(count $mode $number)
        if [ $# != 4 ]; then
            wrong "not everything was counted: $(cat /tmp/counts)"
            continue
        fi
        first=$1
        printf '%-12s %11s %12s %12s %9s %12s %12s\n' $mode $number "$first" "$3" $((first - number)) "$2" "$4"
        [ "$1 $2" = "$3 $4" ] || wrong "counted twice, it is not the same"
        # An emulated instruction takes two cycles.
        [ $2 = $((2 * first)) ] || wrong "the cycles are not those of the instructions"
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
