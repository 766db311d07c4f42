// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * One small program for each thing that a kernel must be able to do: what it loads, it can. None is ever attached.
 * probes/doctor/machine.py says what each is needed for.
 */
#include "../kernel/kernel_types.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOL_TCP 6
#define TCP_NODELAY 1

u64 number;

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, u64);
} storage SEC(".maps");

SEC("tp_btf/tcp_probe")
int typed_tracepoints(u64 *context)
{
	struct sock *sk = (void *)context[0];
	number = sk->__sk_common.skc_num;
	return 0;
}

SEC("tp_btf/tcp_probe")
int socket_storage(u64 *context)
{
	struct sock *sk = (void *)context[0];
	u64 *value = bpf_sk_storage_get(&storage, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (value)
		*value = 1;
	return 0;
}

SEC("tp_btf/tcp_probe")
int atomic_results(u64 *context)
{
	return __sync_fetch_and_add(&number, 1) & 1;
}

SEC("iter/task_file")
int iterator_of_files(struct bpf_iter__task_file *context)
{
	struct file *file = context->file;
	if (file && bpf_sock_from_file(file))
		number = 1;
	return 0;
}

/* Setting an option is only allowed where the iterator holds the socket's lock. */
SEC("iter/tcp")
int iterator_of_locked_sockets(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;
	int on = 1;
	if (common)
		bpf_setsockopt(common, SOL_TCP, TCP_NODELAY, &on, sizeof(on));
	return 0;
}

SEC("uprobe")
int attach_cookies(void *context)
{
	number = bpf_get_attach_cookie(context);
	return 0;
}
