/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Pids as netprof has them, and its /proc: those of its own pid namespace. The kernel's are those of the initial one.
 *
 * A process that netprof cannot see has pid 0. What is compiled as UNTYPED translates nothing: without type information
 * netprof records only from the initial namespace.
 */
#ifndef NETPROF_PROCESS_IDS_H
#define NETPROF_PROCESS_IDS_H

#include "kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#ifdef UNTYPED
#define own_pid_namespace 0
#else
#define DEEPEST 32 /* MAX_PID_NS_LEVEL */

/* Set before loading: the inode of netprof's own, or 0 where that is the initial one. */
const volatile u32 own_pid_namespace;

/* The number by which netprof knows what `pid` numbers. The innermost namespace comes first: mostly that is the one. */
static __noinline u32 number_of(u64 pid)
{
	u32 level = BPF_CORE_READ((struct pid *)pid, level);
	u64 numbers = (u64)&((struct pid *)pid)->numbers[0];
	int i;

	for (i = 0; i <= DEEPEST; i++, level--) {
		struct upid *number = (void *)(numbers + (u64)level * bpf_core_type_size(struct upid));
		if (BPF_CORE_READ(number, ns, ns.inum) == own_pid_namespace)
			return BPF_CORE_READ(number, nr);
		if (!level)
			break;
	}
	return 0;
}
#endif

/* The pid of the process that a task is a thread of. */
static __always_inline u32 process_of(struct task_struct *task)
{
#ifndef UNTYPED
	if (own_pid_namespace)
		return number_of((u64)BPF_CORE_READ(task, group_leader, thread_pid));
#endif
	return BPF_CORE_READ(task, tgid);
}

static __always_inline u32 thread_of(struct task_struct *task)
{
#ifndef UNTYPED
	if (own_pid_namespace)
		return number_of((u64)BPF_CORE_READ(task, thread_pid));
#endif
	return BPF_CORE_READ(task, pid);
}

static __always_inline u32 current_process(void)
{
	if (own_pid_namespace)
		return process_of((void *)bpf_get_current_task());
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline u32 current_thread(void)
{
	if (own_pid_namespace)
		return thread_of((void *)bpf_get_current_task());
	return bpf_get_current_pid_tgid();
}

#endif
