// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What the threads that train are blocked in: from when a thread leaves its CPU until it is back on one for a while.
 *
 * User space puts threads into `threads`; everything else on the machine costs one lookup a context switch.
 */
#include "../kernel/process_ids.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "threads.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___blocked {
	struct files_struct *files;
	unsigned int __state;
};
#pragma clang attribute pop

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before loading: what is shorter is left out. */
const volatile u64 least_ns = 200000;

u64 missed;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct blocked);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Where the kernel keeps the number of the system call that a thread is in, and its first argument. */
#if defined(__TARGET_ARCH_x86)
#define CALL_AT 120
#define FIRST_AT 112
#else
#define CALL_AT 280
#define FIRST_AT 272 /* orig_x0: x0 holds the result later on */
#endif

#define HARDLY_NS 100000
#define STOPPED (4 | 8 | 0x8000) /* __TASK_STOPPED, __TASK_TRACED, and TASK_FROZEN from 6.1 on */

/* The type of the file that a descriptor of the current process is of, as in st_mode; 0 where there is none. */
static __always_inline u16 file_type(u64 descriptor)
{
	struct task_struct___blocked *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if (descriptor >= BPF_CORE_READ(table, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	return file ? BPF_CORE_READ(file, f_inode, i_mode) & 0xf000 : 0;
}

static __always_inline void classify(struct blocked *wait, bool preempted)
{
	struct task_struct___blocked *task = (void *)bpf_get_current_task();
	struct pt_regs *registers = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u32 state = BPF_CORE_READ(task, __state);
	u64 first = 0;
	s32 call = -1, descriptor;

	wait->runnable = preempted || !state ? 1 : state & STOPPED ? 2 : 0;
	wait->call = -1;
	if (wait->runnable)
		return;
	bpf_probe_read_kernel(&call, sizeof(call), (void *)registers + CALL_AT);
	bpf_probe_read_kernel(&first, sizeof(first), (void *)registers + FIRST_AT);
	wait->call = call;
	if (call < 0)
		return;
	/* A select of no descriptors is how programs sleep, Python up to 3.10 among them. */
	if (call == CALL_SELECT || call == CALL_PSELECT) {
		if (!(s32)first)
			wait->call = CALL_SLEEP;
		return;
	}
	/* poll and its like are given an array of descriptors: of one, mostly. */
	if ((call == CALL_POLL || call == CALL_PPOLL) && !bpf_probe_read_user(&descriptor, sizeof(descriptor), (void *)first))
		first = descriptor;
	wait->file_type = file_type(first);
}

static __always_inline void hand_over(struct blocked *thread)
{
	struct blocked *record;

	if (!thread->until_ns || thread->until_ns - thread->since_ns < least_ns)
		return;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&missed, 1);
		return;
	}
	*record = *thread;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/*
 * A thread that hardly ran between two waits of a kind, as one that copies what a socket gives it, has waited once; but
 * not where it ran for more than half as long as it had waited just before.
 */
static __always_inline void leaves(struct blocked *thread, bool preempted)
{
	u64 now_ns = bpf_ktime_get_ns(), ran_ns;
	struct blocked wait = {};

	classify(&wait, preempted);
	ran_ns = now_ns - thread->until_ns;
	if (thread->until_ns && ran_ns < HARDLY_NS && 2 * ran_ns <= thread->until_ns - thread->last_ns &&
	    wait.call == thread->call && wait.file_type == thread->file_type && wait.runnable == thread->runnable) {
		thread->last_ns = now_ns;
		thread->until_ns = 0;
		return;
	}
	hand_over(thread);
	thread->since_ns = thread->last_ns = now_ns;
	thread->until_ns = 0;
	thread->call = wait.call;
	thread->file_type = wait.file_type;
	thread->runnable = wait.runnable;
}

/* On every context switch of the machine: what the program's type tells is read without a helper. */
static __always_inline u32 number(struct task_struct *task)
{
	return own_pid_namespace ? thread_of(task) : task->pid;
}

SEC("tp_btf/sched_switch")
int switches(u64 *context)
{
	struct task_struct *before = (void *)context[1], *after = (void *)context[2];
	u32 tid = number(before);
	struct blocked *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread)
		leaves(thread, context[0] & 1);
	tid = number(after);
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread && thread->since_ns)
		thread->until_ns = bpf_ktime_get_ns();
	return 0;
}
