/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Does a filter of system calls stop a certain one? The kernel may except it. Tried by a process of our own.
 */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/filter.h>
#include <linux/seccomp.h>

#define STOPPED EXDEV /* what our filter answers, and the calls themselves never do */
#define YES 1

static void try_call(unsigned int number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | STOPPED),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

	signal(SIGILL, SIG_DFL);
	prctl(PR_SET_DUMPABLE, 0); /* what comes through may end in SIGILL */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(YES); /* not to be found out */
	_exit(syscall(number) == -1 && errno == STOPPED ? YES : 0);
}

/* 1 where a filter stops system call `number`, or it cannot be tried; 0 where it comes through. */
int netprof_call_is_filtered(unsigned int number)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		try_call(number);
	if (child < 0 || waitpid(child, &status, 0) != child)
		return YES;
	return WIFEXITED(status) && WEXITSTATUS(status) == YES;
}
