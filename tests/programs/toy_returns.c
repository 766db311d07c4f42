/* A program and (with -DTOY_LIBRARY) its library, whose functions are left in every way that C knows. Each line of its
 * input is a command, and is answered by a number:
 *
 *   call N      N calls that return                   jump N     N calls that are left by longjmp, and N that return
 *   deep N      a call that calls itself N times      fork       a call that comes back in the parent and in a child
 *   exit        a thread ends inside a call           filter     from now on a system call that only the kernel's
 *   block       a call waits on a thread of its own              trampoline makes would kill the process
 *   signal      it is interrupted by a handler that calls        release, cancel    it goes on, or its thread ends
 */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

uint64_t toy_value(uint64_t value);
uint64_t toy_block(int descriptor);
uint64_t toy_deep(uint64_t more);
uint64_t toy_call(uint64_t (*function)(void));
void toy_jump(jmp_buf environment);

#ifdef TOY_LIBRARY
uint64_t toy_value(uint64_t value)
{
	return value + 1;
}

uint64_t toy_block(int descriptor)
{
	char byte = 0;
	return read(descriptor, &byte, 1) == 1 ? byte : 1000;
}

uint64_t toy_deep(uint64_t more)
{
	return more ? 1 + toy_deep(more - 1) : 0;
}

uint64_t toy_call(uint64_t (*function)(void))
{
	return function();
}

void toy_jump(jmp_buf environment)
{
	longjmp(environment, 1);
}
#else
#define URETPROBE 335 /* x86-64's number of the trampoline's system call */

static int channel[2];
static volatile uint64_t handled;

static void handle(int signal)
{
	(void)signal;
	handled += toy_value(1);
}

static uint64_t both(void)
{
	int status;
	pid_t child = fork();

	if (!child)
		return 7;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

static uint64_t end(void)
{
	syscall(SYS_exit, 0);
	return 0;
}

static void *end_inside(void *unused)
{
	(void)unused;
	return (void *)toy_call(end);
}

static void *block(void *unused)
{
	(void)unused;
	return (void *)toy_block(channel[0]);
}

static uint64_t jump(uint64_t count)
{
	static volatile uint64_t done;
	static jmp_buf environment;

	for (done = 0; done < 2 * count;)
		if (!setjmp(environment))
			toy_jump(environment);
		else
			done += toy_value(1);
	return done / 2;
}

static uint64_t filter(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(rules) / sizeof(rules[0]), rules };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static uint64_t obey(const char *command, uint64_t count)
{
	static pthread_t blocked;
	uint64_t answer = 0;
	void *result = NULL;

	if (!strcmp(command, "call")) {
		for (uint64_t i = 0; i < count; i++)
			answer += toy_value(i) == i + 1;
	} else if (!strcmp(command, "jump")) {
		answer = jump(count);
	} else if (!strcmp(command, "deep")) {
		answer = toy_deep(count);
	} else if (!strcmp(command, "fork")) {
		answer = toy_call(both);
		if (answer == 7)
			_exit(9);
	} else if (!strcmp(command, "exit")) {
		pthread_t thread;
		pthread_create(&thread, NULL, end_inside, NULL);
		answer = !pthread_join(thread, NULL);
	} else if (!strcmp(command, "filter")) {
		answer = filter();
	} else if (!strcmp(command, "block")) {
		answer = !pthread_create(&blocked, NULL, block, NULL);
		usleep(20000);
	} else if (!strcmp(command, "signal")) {
		pthread_kill(blocked, SIGUSR1);
		while (!handled)
			usleep(1000);
		answer = handled;
	} else if (!strcmp(command, "release")) {
		answer = write(channel[1], "*", 1) == 1 && !pthread_join(blocked, &result) && result == (void *)'*';
	} else if (!strcmp(command, "cancel")) {
		pthread_cancel(blocked);
		answer = !pthread_join(blocked, &result) && result == PTHREAD_CANCELED;
	}
	return answer;
}

int main(void)
{
	char line[64], command[32];

	signal(SIGUSR1, handle);
	if (pipe(channel))
		return 1;
	puts("ready");
	do {
		uint64_t count = 0;
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 0;
		sscanf(line, "%31s %lu", command, &count);
		printf("%lu\n", obey(command, count));
	} while (1);
}
#endif
