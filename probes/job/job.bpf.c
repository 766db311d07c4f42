// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Programs that are started on this machine, whoever starts them: a rank of the job may be among them.
 */
#include "../kernel/process_ids.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

u64 missed;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} starts SEC(".maps");

SEC("raw_tp/sched_process_exec")
int program_started(u64 *context)
{
	u32 process = current_process();
	if (!process)
		return 0; /* of another pid namespace */
	u64 *pid = bpf_ringbuf_reserve(&starts, sizeof(*pid), 0);
	if (!pid) {
		__sync_fetch_and_add(&missed, 1);
		return 0;
	}
	*pid = process;
	bpf_ringbuf_submit(pid, BPF_RB_NO_WAKEUP);
	return 0;
}
