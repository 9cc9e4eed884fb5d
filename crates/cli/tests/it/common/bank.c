/* The program that is watched, where there is a compiler; bank.rs does the same, but for forking. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long vault;
volatile long drawers[16];

__attribute__((noinline)) static void pay_in(long amount) { vault = vault + amount; }
__attribute__((noinline)) static void forget(void) { vault = 0; }

static void *teller(void *argument)
{
    long number = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "teller-%ld", number);
    pthread_setname_np(pthread_self(), name);
    for (int payment = 0; payment < 40; payment++)
        pay_in(1);
    if (number == 1)
        forget();
    return NULL;
}

static int tellers(void)
{
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, teller, (void *)i);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(int count, char **words)
{
    const char *role = words[1], *file = count > 2 ? words[2] : "";
    if (!strcmp(role, "tellers"))
        return tellers();
    if (!strcmp(role, "fails")) {
        forget();
        return 3;
    }
    if (!strcmp(role, "counts"))
        for (int number = 0; number < 500; number++)
            pay_in(1);
    if (!strcmp(role, "touches"))
        return fopen(file, "w") == NULL;
    if (!strcmp(role, "forks")) {
        pay_in(1);
        if (fork() == 0) {
            pay_in(1);
            pay_in(1);
            _exit(0);
        }
        int status;
        wait(&status);
        /* The same address, in another program: not watched. */
        execl(words[0], words[0], "fails", (char *)NULL);
        return 1;
    }
    if (!strcmp(role, "becomes")) {
        for (; access(file, F_OK); usleep(1000))
            pay_in(1);
        /* Under another name. */
        execl("/proc/self/exe", words[0], "counts", (char *)NULL);
        return 1;
    }
    if (!strcmp(role, "writes"))
        for (; access(file, F_OK); usleep(1000))
            pay_in(1);
    if (!strcmp(role, "many"))
        while (access(file, F_OK))
            for (int i = 0; i < 16; i++)
                drawers[i]++;
    return 0;
}
