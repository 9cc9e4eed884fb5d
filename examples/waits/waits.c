/* Where did the time go? The program takes half a second, and a profile of its CPU time shows one function that burns 80 ms.
 *
 *     cc -g -O1 -fno-omit-frame-pointer -pthread -o waits examples/waits/waits.c
 *     ./waits             waits 250 ms for a lock, sleeps 240 ms, burns 80 ms
 *     ./waits all         one thread after another: each waits for something else
 *     ./waits hang        two threads that wait for ever, one for a lock, one for a pipe
 *
 *     pmux record --off-cpu -- ./waits
 *     pmux report --wall --no-children -g none
 *     pmux flame --wall
 *     pmux record --off-cpu -p $(pidof waits) sleep 1     (what it waits for)
 *
 * At its end each thread prints a line: its name, how long it took and how long it had a CPU, in ns, as it measured itself, and how often
 * it left its CPU. What is between the two times it has waited.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
/* The thread that is to wait for the lock. */
static int waiter;
static int there[2], back[2];

static long long ns(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

struct measured {
	const char *name;
	long long wall_ns, cpu_ns, switches;
};

static long long switches(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* From here on its waits are its own. */
static struct measured begin(const char *name)
{
	prctl(PR_SET_NAME, name);
	return (struct measured){ name, ns(CLOCK_MONOTONIC), ns(CLOCK_THREAD_CPUTIME_ID), switches() };
}

static void end(struct measured of)
{
	long long wall_ns = ns(CLOCK_MONOTONIC) - of.wall_ns, cpu_ns = ns(CLOCK_THREAD_CPUTIME_ID) - of.cpu_ns;
	prctl(PR_SET_NAME, "done");
	printf("%s %lld %lld %lld\n", of.name, wall_ns, cpu_ns, switches() - of.switches);
}

APART static void burn(long long ms)
{
	long long until = ns(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000;
	while (ns(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

APART static void nap(void)
{
	for (int i = 0; i < 24; i++)
		usleep(10000);
}

APART static void wait_for_lock(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

/* Until the other thread waits for the lock, however late it is; a while where the kernel does not tell. */
static void until_waited_for(void)
{
	char name[64];
	unsigned long address, of = (unsigned long)&lock;
	snprintf(name, sizeof name, "/proc/self/task/%d/syscall", waiter);
	for (int i = 0; i < 10000; i++) {
		usleep(1000);
		FILE *file = fopen(name, "r");
		if (!file)
			return;
		if (fscanf(file, "%*d %lx", &address) != 1)
			address = 0;
		fclose(file);
		if (address >= of && address < of + sizeof lock)
			return;
	}
}

/* Holds the lock for 250 ms from then on. */
static void *holder(void *unused)
{
	struct measured of = begin("holder");
	pthread_mutex_lock(&lock);
	pthread_barrier_wait(&held);
	until_waited_for();
	usleep(250000);
	pthread_mutex_unlock(&lock);
	end(of);
	return unused;
}

static void *sleeper(void *unused)
{
	struct measured of = begin("sleeper");
	nap();
	end(of);
	return unused;
}

static void *locker(void *unused)
{
	struct measured of = begin("locker");
	wait_for_lock();
	end(of);
	return unused;
}

static void *ping(void *unused)
{
	struct measured of = begin("ping");
	char byte = 1;
	for (int i = 0; i < 5000; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			abort();
	end(of);
	return unused;
}

static void *pong(void *unused)
{
	struct measured of = begin("pong");
	char byte = 1;
	for (int i = 0; i < 5000; i++)
		if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1)
			abort();
	end(of);
	return unused;
}

/* Two of them share a CPU; the nice one waits longer. */
static void *spinner(void *nice)
{
	if (nice)
		setpriority(PRIO_PROCESS, syscall(SYS_gettid), 5);
	struct measured of = begin(nice ? "spins-nice" : "spins");
	burn(150);
	end(of);
	return 0;
}

/* Each of a pool works a little under the one lock. */
static void *pooled(void *unused)
{
	struct measured of = begin("pool");
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		usleep(1000);
		pthread_mutex_unlock(&lock);
	}
	end(of);
	return unused;
}

static void *writer(void *unused)
{
	char name[] = "waits-XXXXXX";
	int file = mkstemp(name);
	struct measured of = begin("writer");
	for (int i = 0; file >= 0 && i < 20; i++)
		if (write(file, name, sizeof name) < 0 || fsync(file) != 0)
			break;
	end(of);
	unlink(name);
	return unused;
}

static void together(void *(*first)(void *), void *(*second)(void *))
{
	pthread_t threads[2];
	pthread_create(&threads[0], 0, first, 0);
	pthread_create(&threads[1], 0, second, &lock);
	pthread_join(threads[0], 0);
	pthread_join(threads[1], 0);
}

static void *holder_and_locker(void *unused)
{
	pthread_t thread;
	waiter = syscall(SYS_gettid);
	pthread_create(&thread, 0, holder, 0);
	pthread_barrier_wait(&held);
	locker(0);
	pthread_join(thread, 0);
	return unused;
}

static void *waits_for_lock(void *unused)
{
	begin("hangs");
	wait_for_lock();
	return unused;
}

APART static int hang(void)
{
	char byte;
	pthread_t thread;
	pthread_mutex_lock(&lock);
	pthread_create(&thread, 0, waits_for_lock, 0);
	return read(there[0], &byte, 1) != 1;
}

static void alone(void *(*what)(void *))
{
	pthread_t thread;
	pthread_create(&thread, 0, what, 0);
	pthread_join(thread, 0);
}

int main(int count, char **words)
{
	cpu_set_t one;
	pthread_t pool[4];
	pthread_barrier_init(&held, 0, 2);
	if (count < 2) {
		waiter = getpid();
		pthread_create(&pool[0], 0, holder, 0);
		pthread_barrier_wait(&held);
		struct measured of = begin("waits");
		wait_for_lock();
		nap();
		burn(80);
		end(of);
		pthread_join(pool[0], 0);
		return 0;
	}
	if (pipe(there) != 0 || pipe(back) != 0)
		return 2;
	if (strcmp(words[1], "hang") == 0)
		return hang();
	if (strcmp(words[1], "all") != 0)
		return 2;
	alone(sleeper);
	alone(holder_and_locker);
	together(ping, pong);
	for (int i = 0; i < 4; i++)
		pthread_create(&pool[i], 0, pooled, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(pool[i], 0);
	alone(writer);
	/* Threads have the CPUs of the one that starts them. */
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	together(spinner, spinner);
	return 0;
}
