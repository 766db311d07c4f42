/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Processes of the job that are born, become another program, or end.
 */
#ifndef NETPROF_PROCESS_LIFE_H
#define NETPROF_PROCESS_LIFE_H

#include "../kernel/process_ids.h"
#include "flow_state.h"

#include <bpf/bpf_tracing.h>

static __always_inline void tell(u32 kind, u32 pid, u32 tid, u64 argument)
{
	struct life_record *record = bpf_ringbuf_reserve(&lives, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&lost_events, 1);
		return;
	}
	record->time_ns = bpf_ktime_get_ns();
	record->pid = pid;
	record->tid = tid;
	record->kind = kind;
	record->padding = 0;
	record->arguments[0] = argument;
	record->arguments[1] = record->arguments[2] = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#ifndef TRACEPOINT
#define TRACEPOINT "tp_btf/" /* whose arguments have types */
#endif

/* Values of targets. A process that ends belongs to the job until user space drops it: its sockets are closed last. */
#define ALIVE 1
#define ENDED 2

/* In the argument of LIFE_EXIT: what wait(2) says of the process is in the lower half. */
#define STATUS_KNOWN (1ULL << 32)

/* A process that the job forks belongs to the job. */
SEC(TRACEPOINT "sched_process_fork")
int BPF_PROG(process_forked, struct task_struct *parent, struct task_struct *child)
{
	u32 parent_pid = process_of(parent), child_pid = process_of(child), alive = ALIVE;
	if (parent_pid == child_pid)
		return 0;
	if (!bpf_map_lookup_elem(&targets, &parent_pid)) {
		if (bpf_map_lookup_elem(&targets, &child_pid))
			bpf_map_delete_elem(&targets, &child_pid); /* a stranger with the pid of one that ended */
		return 0;
	}
	bpf_map_update_elem(&targets, &child_pid, &alive, BPF_ANY);
	tell(LIFE_FORK, parent_pid, thread_of(parent), child_pid);
	return 0;
}

SEC(TRACEPOINT "sched_process_exec")
int BPF_PROG(process_executed, struct task_struct *task)
{
	u32 pid = process_of(task);
	if (bpf_map_lookup_elem(&targets, &pid))
		tell(LIFE_EXEC, pid, thread_of(task), 0);
	return 0;
}

SEC(TRACEPOINT "sched_process_exit")
int BPF_PROG(process_exited, struct task_struct *task)
{
	u32 pid = process_of(task);
	u32 *target = bpf_map_lookup_elem(&targets, &pid);
	if (!target || BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	*target = ENDED;
	tell(LIFE_EXIT, pid, thread_of(task), STATUS_KNOWN | (u32)BPF_CORE_READ(task, exit_code));
	return 0;
}

#endif
