// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A point in a program's life becomes a record: one program for every function of every framework.
 *
 * The attach cookie says which rows of `specs` a function is, and a row says which of its arguments to keep. It is the
 * same program at a function's entry and at its return, where none of the arguments is left.
 */
#include "../kernel/process_ids.h"
#include "../kernel/arguments.h"
#include "../kernel/shared.h"
#include "../kernel/targets.h"

#include "marks.h"

SHARED(mark_record);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MARK_SPECS);
	__type(key, __u32);
	__type(value, struct mark_spec);
} specs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* One number: records that found the ring full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Read 1, 2, 4 or 8 bytes of the job's memory as an unsigned number. Returns 0, or an error where nothing is there. */
static __always_inline long read_number(__u64 *number, __u8 size, const void *address)
{
	union {
		__u8 one;
		__u16 two;
		__u32 four;
		__u64 eight;
	} value = {};
	long error;

	switch (size) {
	case 1:
		error = bpf_probe_read_user(&value.one, 1, address);
		*number = value.one;
		return error;
	case 2:
		error = bpf_probe_read_user(&value.two, 2, address);
		*number = value.two;
		return error;
	case 4:
		error = bpf_probe_read_user(&value.four, 4, address);
		*number = value.four;
		return error;
	}
	error = bpf_probe_read_user(&value.eight, 8, address);
	*number = value.eight;
	return error;
}

/* Keep argument `index` of the function in the record, as the table says. A pointer chain is read here and not by user
 * space, since what it leads to (a string, a buffer) is gone by the time that user space looks.
 */
static __always_inline void keep(const __u64 *parameters, struct mark_record *record,
				 const struct mark_argument *argument, int index)
{
	__u64 number = parameters[argument->number & 15];
	__u8 source = argument->source, size = argument->size, extra = argument->extra;
	long error = 0;

	if (source == MARK_CHAIN) {
		error = read_number(&number, 8, (const void *)(number + argument->offset));
		if (!error)
			error = read_number(&number, size, (const void *)(number + extra));
	} else if (source == MARK_MEMORY) {
		error = read_number(&number, size, (const void *)(number + argument->offset));
	} else if (source == MARK_PAIR) {
		number = (number & 0xff) | parameters[extra & 15] << 8;
	} else {
		if (size && size < 8)
			number &= (1ULL << (size & 7) * 8) - 1;
		if (extra && parameters[extra & 15] == (__u64)(__s64)argument->offset)
			number = ~0ULL;
	}
	if (error) {
		record->unreadable |= 1 << index;
		number = 0;
	}
	record->arguments[index] = number;
}

static __always_inline void keep_arguments(struct pt_regs *ctx, struct mark_record *record,
					   const struct mark_spec *spec)
{
	__u64 parameters[ARGUMENTS] = REGISTER_ARGUMENTS(ctx);

	if (spec->stack && read_stacked(ctx, &parameters[7]))
		record->unreadable |= 1 << 7;
	keep(parameters, record, &spec->arguments[0], 0);
	keep(parameters, record, &spec->arguments[1], 1);
	keep(parameters, record, &spec->arguments[2], 2);
}

static __always_inline void count_lost(void)
{
	__u32 first = 0;
	__u64 *count = bpf_map_lookup_elem(&lost, &first);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void record_row(struct pt_regs *ctx, __u32 pid, __u32 tid, __u32 row)
{
	struct mark_spec *spec = bpf_map_lookup_elem(&specs, &row);

	if (!spec)
		return;
	struct mark_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		count_lost();
		return;
	}
	record->time_ns = bpf_ktime_get_ns();
	record->pid = pid;
	record->tid = tid;
	record->kind = spec->kind;
	record->row = row;
	record->unreadable = 0;
	keep_arguments(ctx, record, spec);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* The cookie holds the numbers of the rows, each plus one: what one event says comes as records one after the other. */
SEC("uprobe")
int mark(struct pt_regs *ctx)
{
	__u64 rows = bpf_get_attach_cookie(ctx);
	__u32 pid = current_process(), tid;

	if (!bpf_map_lookup_elem(&targets, &pid))
		return 0;
	tid = current_thread();
#pragma clang loop unroll(disable)
	for (int i = 0; i < MARKS_A_PLACE; i++, rows >>= 16) {
		if (!(rows & 0xffff))
			break;
		record_row(ctx, pid, tid, (rows & 0xffff) - 1);
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
