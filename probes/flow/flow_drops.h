/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Packets of the job's flows that this host drops, and why.
 */
#ifndef NETPROF_FLOW_DROPS_H
#define NETPROF_FLOW_DROPS_H

#include "flow_count.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} drops SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
/* The arguments of the tracepoint, by which kernels differ: the reason is from 5.17 on, the receiver from 6.11 on. */
struct trace_event_raw_kfree_skb {
	int reason;
	void *rx_sk;
};
#pragma clang attribute pop

/* Note a drop. A full ring is one of thousands of drops, which need no more of them. */
static __always_inline int note_drop(struct sk_buff *skb, struct sock *sk, u32 direction, u32 reason)
{
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	struct flow *flow = owner ? flow_of(owner) : NULL;
	struct drop_record *record = flow ? bpf_ringbuf_reserve(&drops, sizeof(*record), 0) : NULL;

	if (!record)
		return 0;
	record->time_ns = bpf_ktime_get_ns();
	record->flow_id = flow->id;
	record->bytes = skb->len;
	record->direction = direction;
	record->reason = reason;
	__builtin_memset(record->device, 0, sizeof(record->device));
	struct net_device *device = BPF_CORE_READ(skb, dev);
	if (BPF_CORE_READ(device, nd_net.net) == sk->__sk_common.skc_net.net) /* else it is no device: TCP keeps a tree there */
		BPF_CORE_READ_STR_INTO(&record->device, device, name);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/kfree_skb")
int packet_dropped(u64 *context)
{
	struct trace_event_raw_kfree_skb *has = NULL;
	struct sk_buff *skb = (struct sk_buff *)context[0];
	struct sock *sk = skb->sk;

	if (!bpf_core_field_exists(has->reason))
		return 0;
	if (sk)
		return note_drop(skb, sk, skb->skb_iif ? RECEIVE : TRANSMIT, (u32)context[2]);
	if (!bpf_core_field_exists(has->rx_sk))
		return 0;
	sk = (struct sock *)context[3];
	return sk ? note_drop(skb, sk, RECEIVE, (u32)context[2]) : 0;
}

#endif
