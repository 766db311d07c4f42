/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What Python cannot do fast or at all: keep libbpf's messages, and make the calls that libbpf 1.1 has no function for.
 * libbpf travels beside this library.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

/* libbpf's messages to a thread, kept until it asks: they hold the verifier's log. */
static _Thread_local char log_text[1 << 20];
static _Thread_local size_t log_length;

static int keep_message(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (level == LIBBPF_DEBUG || log_length >= sizeof(log_text) - 1)
		return 0;
	int written = vsnprintf(log_text + log_length, sizeof(log_text) - log_length, format, arguments);
	if (written > 0)
		log_length += (size_t)written;
	if (log_length >= sizeof(log_text))
		log_length = sizeof(log_text) - 1;
	return written;
}

void netprof_log_start(void)
{
	log_length = 0;
	log_text[0] = 0;
	libbpf_set_print(keep_message);
}

const char *netprof_log(void)
{
	return log_text;
}

/* Write to memory that BPF programs read: whoever sees the value also sees what was written before it. */
void netprof_store_32(unsigned int *at, unsigned int value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

void netprof_store_64(unsigned long *at, unsigned long value)
{
	__atomic_store_n(at, value, __ATOMIC_RELEASE);
}

/* BPF_LINK_CREATE for uprobe_multi (kernel 6.6), laid out here because older headers do not know it. */
struct uprobe_multi_attr {
	__u32 prog_fd;
	__u32 target_fd;
	__u32 attach_type;
	__u32 flags;
	__u64 path;
	__u64 offsets;
	__u64 ref_ctr_offsets;
	__u64 cookies;
	__u32 count;
	__u32 multi_flags;
	__u32 pid;
	__u32 padding;
};

#define NETPROF_TRACE_UPROBE_MULTI 48
#define NETPROF_UPROBE_MULTI_RETURN 1

int netprof_uprobe_multi(int program_fd, const char *path, const __u64 *offsets, const __u64 *cookies, __u32 count,
			 __u32 pid, int at_return)
{
	struct uprobe_multi_attr attr = {
		.prog_fd = (__u32)program_fd,
		.attach_type = NETPROF_TRACE_UPROBE_MULTI,
		.path = (__u64)(unsigned long)path,
		.offsets = (__u64)(unsigned long)offsets,
		.cookies = (__u64)(unsigned long)cookies,
		.count = count,
		.multi_flags = at_return ? NETPROF_UPROBE_MULTI_RETURN : 0,
		.pid = pid,
	};
	return (int)syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));
}

/* A program's run time and runs while the kernel's statistics were on, and the runs it missed to recursion. */
int netprof_program_statistics(int program_fd, __u64 *run_time_ns, __u64 *runs, __u64 *missed)
{
	struct bpf_prog_info info = {};
	__u32 length = sizeof(info);
	int error = bpf_obj_get_info_by_fd(program_fd, &info, &length);
	if (error)
		return error;
	*run_time_ns = info.run_time_ns;
	*runs = info.run_cnt;
	*missed = info.recursion_misses;
	return 0;
}
