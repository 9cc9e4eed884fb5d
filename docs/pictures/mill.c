/* A program to take pictures of: two threads that grind, and children that sift what was ground. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

long flour;
static unsigned char sacks[1 << 22];

__attribute__((noinline)) static unsigned crush(unsigned grain) {
	for (int i = 0; i < 12; i++)
		grain = grain * 1664525u + 1013904223u;
	return grain;
}

__attribute__((noinline)) static void fetch(unsigned char *sack, unsigned seed) {
	for (int i = 0; i < 4096; i++)
		sack[(seed + i * 977u) & (sizeof sacks - 1)] ^= (unsigned char)seed;
}

__attribute__((noinline)) static unsigned grind(unsigned grain, int stones) {
	unsigned dust = grain;
	for (int i = 0; i < stones; i++)
		dust ^= crush(dust + i);
	return dust;
}

__attribute__((noinline)) static void fill(int sack) {
	__atomic_fetch_add(&flour, sack, __ATOMIC_RELAXED);
}

static void *miller(void *rounds) {
	unsigned dust = 1;
	for (long round = 0; round < (long)rounds; round++) {
		dust = grind(dust, STONES);
		fetch(sacks, dust);
		if (round % 64 == 0)
			fill((int)(dust & 7));
	}
	return (void *)(long)dust;
}

__attribute__((noinline)) static int sift(int amount) {
	char *sieve = malloc(1 << 20);
	int kept = 0;
	for (int i = 0; i < amount; i++) {
		memset(sieve, i, 1 << 20);
		kept += sieve[i];
	}
	free(sieve);
	return kept;
}

int main(void) {
	pthread_t millers[2];
	for (int day = 0; day < 3; day++) {
		for (long i = 0; i < 2; i++)
			pthread_create(&millers[i], NULL, miller, (void *)(i ? 1500L : 2500L));
		for (int child = 0; child < 2; child++)
			if (fork() == 0)
				_exit(sift(300 + 300 * child) & 0);
		for (int i = 0; i < 2; i++)
			pthread_join(millers[i], NULL);
		while (wait(NULL) > 0)
			;
		usleep(20000);
	}
	printf("%ld sacks\n", flour);
	return 0;
}
