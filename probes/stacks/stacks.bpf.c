// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Where one thread is while it is on a CPU: native and kernel frames, at each tick of the perf event it is attached to.
 */
#include "../kernel/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../kernel/shared.h"

#include "stacks.h"

SHARED(sample);

#define USER_STACK (1 << 8) /* BPF_F_USER_STACK */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

u64 missed;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} samples SEC(".maps");

SEC("perf_event")
int tick(void *context)
{
	u64 kernel[KERNEL_FRAMES] = {};
	struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	long bytes;

	if (!sample) {
		__sync_fetch_and_add(&missed, 1);
		return 0;
	}
	sample->time_ns = bpf_ktime_get_ns();
	bytes = bpf_get_stack(context, sample->user, sizeof(sample->user), USER_STACK);
	sample->frames = bytes > 0 ? bytes / sizeof(sample->user[0]) : 0;
	bytes = bpf_get_stack(context, kernel, sizeof(kernel), 0);
	sample->kernel[0] = 0;
	if (bytes > 0)
		BPF_SNPRINTF(sample->kernel, sizeof(sample->kernel), "%ps;%ps;%ps", kernel[0], kernel[1], kernel[2]);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}
