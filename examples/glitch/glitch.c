/* Four workers compute calmly. Every few seconds something happens for 50 ms: a visitor takes the lock that all of them need, and
 * touches fresh memory while it holds it. The workers wait, page faults come in a burst, and then all is calm again. Who was it? By
 * the time that a user looks, it is over: a recorder that was on has it.
 *
 *     cc -g -O1 -fno-omit-frame-pointer -pthread -o glitch examples/glitch/glitch.c
 *     ./glitch                            a glitch of 50 ms every 3 seconds, for ever
 *     ./glitch PERIOD_MS LENGTH_MS COUNT  so many of them, then the end
 *
 * Who it was: a recorder keeps the last seconds, and writes them when the page faults come.
 *
 *     pmux flight -g -e cpu-clock -e page-faults/period=16/ --on 'rate(page-faults) > 50k/s' --after 100ms -- ./glitch
 *     perf report -i pmux-flight/flight-*.data --no-children --sort comm,symbol
 *
 * The report says that all page faults are those of `visitor`, in `main`, where touch_fresh_memory is inlined. The .json beside the
 * file says when the trigger fired and from which number; perf script has the same clock, and shows what each thread did before.
 * With the rights for it, look at which thread waited for which as well, but only around the glitch:
 *
 *     ./glitch &
 *     pmux flight -p $! -g -e cpu-clock --set 'fine={sched:sched_switch,page-faults/period=16/}' \
 *         --on 'rate(page-faults) > 50k/s' 'set fine on for 1s; mark glitch; snapshot; run echo look at {}' --after 1s
 *
 * Each glitch writes one line to the standard output when it is over: its number, how long it was, and how many pages it touched.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, PIECE = 8 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
volatile long visits; /* watch this: it is written at each glitch, and at no other time */
static long done;

static long long now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static void sleep_us(long long us)
{
	struct timespec time = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&time, NULL);
}

/* A little work, then the lock for a moment. */
static void *worker(void *unused)
{
	(void)unused;
	pthread_setname_np(pthread_self(), "worker");
	for (;;) {
		volatile long sum = 0;
		for (int i = 0; i < 20000; i++)
			sum += i;
		pthread_mutex_lock(&lock);
		done++;
		pthread_mutex_unlock(&lock);
		sleep_us(2000);
	}
	return NULL;
}

/* Memory that was not touched before: each page is a fault. Returns how many. */
static long touch_fresh_memory(void)
{
	long size = sysconf(_SC_PAGESIZE), pages = 0;
	char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (piece == MAP_FAILED) {
		perror("glitch: mmap");
		exit(1);
	}
	madvise(piece, PIECE, MADV_NOHUGEPAGE);
	for (long at = 0; at < PIECE; at += size, pages++)
		piece[at] = 1;
	munmap(piece, PIECE);
	return pages;
}

static long visit(long long length_us)
{
	long long end = now_us() + length_us;
	long pages = 0;
	pthread_mutex_lock(&lock);
	visits++;
	do
		pages += touch_fresh_memory();
	while (now_us() < end);
	pthread_mutex_unlock(&lock);
	return pages;
}

static long number(int argc, char **argv, int index, long usual)
{
	char *end;
	if (index >= argc)
		return usual;
	long value = strtol(argv[index], &end, 10);
	if (*end || value < 1) {
		fprintf(stderr, "glitch: '%s' is no number from 1; usage: glitch [PERIOD_MS [LENGTH_MS [COUNT]]]\n", argv[index]);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	long period = number(argc, argv, 1, 3000), length = number(argc, argv, 2, 50), count = number(argc, argv, 3, 0);
	for (int i = 0; i < WORKERS; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, worker, NULL)) {
			perror("glitch: pthread_create");
			return 1;
		}
	}
	pthread_setname_np(pthread_self(), "visitor");
	for (long i = 1; !count || i <= count; i++) {
		sleep_us(period * 1000LL);
		long long begin = now_us();
		long pages = visit(length * 1000LL);
		printf("glitch %ld: %lld ms, %ld pages\n", i, (now_us() - begin) / 1000, pages);
		fflush(stdout);
	}
	return 0;
}
