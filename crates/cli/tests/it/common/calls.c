/* Makes processes and threads in each way that there is, and prints what the calls returned. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
volatile long word;

/* Each process and thread comes here once, and writes once. */
__attribute__((noinline)) void place(void)
{
	word = word + 1;
}

static void ended(const char *call, pid_t pid)
{
	int status = -1;

	if (pid < 0)
		printf("%s: %s\n", call, strerror(errno));
	else if (waitpid(pid, &status, 0) != pid)
		printf("%s: waitpid: %s\n", call, strerror(errno));
	else
		printf("%s: %d\n", call, WEXITSTATUS(status));
	fflush(stdout);
}

static void child(void)
{
	place();
	_exit(7);
}

static void *thread(void *unused)
{
	place();
	return unused;
}

static void threads(const char *call)
{
	pthread_t made[4];
	int error[4];

	for (int i = 0; i < 4; i++)
		error[i] = pthread_create(&made[i], NULL, thread, NULL);
	for (int i = 0; i < 4; i++) {
		if (!error[i])
			error[i] = pthread_join(made[i], NULL);
		printf("%s: %s\n", call, strerror(error[i]));
	}
	fflush(stdout);
}

/* The arguments of clone3 of its first version. */
struct clone3_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

static void *forks(void *unused)
{
	pid_t pid = fork();

	if (pid == 0)
		child();
	ended("fork of a thread", pid);
	return unused;
}

int main(int argc, char **argv)
{
	char *again[] = {argv[0], "again", NULL}, *last[] = {argv[0], "last", NULL};
	struct clone3_args args = {.exit_signal = SIGCHLD};
	pthread_t forker;
	pid_t pid;

	place();
	if (argc > 1 && !strcmp(argv[1], "again"))
		return 8;
	if (argc > 1 && !strcmp(argv[1], "last")) {
		printf("exec: done\n");
		return 9;
	}
	/* With a file: waits until it is there. */
	while (argc > 1 && access(argv[1], F_OK))
		usleep(1000);
	for (int round = 0; round < 3; round++) {
		if (!(pid = fork()))
			child();
		ended("fork", pid);
		if (!(pid = vfork())) {
			execv(argv[0], again);
			_exit(1);
		}
		ended("vfork", pid);
		if (!(pid = syscall(SYS_clone3, &args, sizeof(args))))
			child();
		ended("clone3", pid);
		errno = posix_spawn(&pid, argv[0], NULL, NULL, again, environ);
		ended("posix_spawn", errno ? -1 : pid);
		threads("pthread_create");
		if ((errno = pthread_create(&forker, NULL, forks, NULL)))
			printf("pthread_create: %s\n", strerror(errno));
		else
			pthread_join(forker, NULL);
	}
	execv(argv[0], last);
	printf("exec: %s\n", strerror(errno));
	return 1;
}
