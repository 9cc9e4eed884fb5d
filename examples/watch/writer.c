/* Four threads pay into one account. Now and then the balance is wrong: one of them writes to it what it should not.
 * Which thread is it, and where? One command tells:
 *
 *     cc -g -fno-omit-frame-pointer -pthread -o writer examples/watch/writer.c
 *     pmux watch balance:w -- ./writer
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, PAYMENTS = 250 };

long balance;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void pay_in(long amount)
{
	pthread_mutex_lock(&lock);
	balance += amount;
	pthread_mutex_unlock(&lock);
}

/* Meant for a copy of the account, and called with the account itself. */
static void forget(long *copy)
{
	*copy = 0;
}

static void audit(int payment)
{
	if (payment % 100 == 99)
		forget(&balance);
}

static void *teller(void *argument)
{
	long number = (long)argument;
	char name[16];
	snprintf(name, sizeof name, "teller-%ld", number);
	pthread_setname_np(pthread_self(), name);
	for (int payment = 0; payment < PAYMENTS; payment++) {
		pay_in(1);
		if (number == 2)
			audit(payment);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, teller, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("the balance is %ld of %d\n", balance, THREADS * PAYMENTS);
	return 0;
}
