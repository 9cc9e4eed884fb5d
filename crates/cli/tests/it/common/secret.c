/* Holds a known value on its stack: it says so, waits for the end of its input, and goes on for a while, in user mode. */
#include <poll.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static int64_t cpu_time_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int main(void)
{
    volatile uint64_t secret[128];
    struct pollfd input = { .fd = 0, .events = POLLIN };
    int64_t end;

    for (int i = 0; i < 128; i++)
        secret[i] = UINT64_C(0x53ec2e7f9a1bd46c);
    if (write(1, "\n", 1) != 1)
        return 1;
    do {
        for (volatile int i = 0; i < 100000; i++)
            ;
    } while (poll(&input, 1, 0) == 0);
    end = cpu_time_ns() + 20000000;
    while (cpu_time_ns() < end)
        for (volatile int i = 0; i < 100000; i++)
            ;
    return secret[0] == 0;
}
