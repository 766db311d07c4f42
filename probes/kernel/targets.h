/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The job's processes: a map of the recording (targets.py), which sets its size. The flow programs add forked children.
 */
#ifndef NETPROF_TARGETS_H
#define NETPROF_TARGETS_H

#include "kernel_types.h"

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

#endif
