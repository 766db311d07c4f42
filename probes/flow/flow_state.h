/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the flow programs keep: maps, counters, who owns a socket, and the slot of each flow.
 */
#ifndef NETPROF_FLOW_STATE_H
#define NETPROF_FLOW_STATE_H

#include "../kernel/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define TCP_CHRONO_BUSY 1
#define TCP_CHRONO_RWND_LIMITED 2
#define TCP_CHRONO_SNDBUF_LIMITED 3
#define SOCK_DONE 1 /* of enum sock_flags: a FIN has arrived */
#define MAX_HEALED_BYTES (64 << 20)

/* Values of owner.flow that are not a slot. */
#define NO_FLOW_YET 0
#define UNTRACKED 0xffffffff

/* Set before loading. */
const volatile u64 bin_ns = 1000000;
const volatile u32 max_flows = 1;
const volatile u64 tcp_sample_ns = 20000000;
const volatile u32 tick_us = 1000; /* of a jiffy */

u32 next_slot;
u32 next_flow_id;
u64 merged_bins;
u64 lost_events;
u64 untracked_flows;
u64 healed_bytes;

/* What a socket of the job carries. Children of a listener inherit a copy. */
struct owner {
	u32 flow; /* slot + 1 */
	u32 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

/* Slots that user space gives back. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} bins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} tcp_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} lives SEC(".maps");

/* The processes of the job: a map of the recording (probes/kernel/targets.py), which sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

/* A field of the TCP socket, read safely: from 6.18 on the verifier does not let `skb->sk` become a tcp_sock. */
#define TCP_FIELD(sk, field) BPF_CORE_READ((struct tcp_sock *)(sk), field)

static __always_inline struct flow *flow_at(u32 slot)
{
	return bpf_map_lookup_elem(&flows, &slot);
}

/* Take a free slot. Returns slot + 1, or UNTRACKED. */
static __always_inline u32 take_slot(void)
{
	u32 slot;
	if (bpf_map_pop_elem(&free_slots, &slot) == 0)
		return slot + 1;
	if (next_slot < max_flows) {
		slot = __sync_fetch_and_add(&next_slot, 1);
		if (slot < max_flows)
			return slot + 1;
	}
	__sync_fetch_and_add(&untracked_flows, 1);
	return UNTRACKED;
}

static __always_inline void reset_stream(struct stream *stream)
{
	__builtin_memset(stream, 0, sizeof(*stream));
}

static __always_inline void identify(struct flow *flow, struct sock *sk, u32 pid)
{
	struct sock_common *common = &sk->__sk_common;

	flow->pid = pid;
	flow->family = common->skc_family;
	flow->netns = common->skc_net.net->ns.inum;
	flow->local_port = common->skc_num;
	flow->remote_port = bpf_ntohs(common->skc_dport);
	flow->interface = 0;
	flow->device[0] = 0;
	flow->closed = 0;
	flow->sampled_ns = 0;
	flow->stuck_ends_ns[TRANSMIT] = flow->stuck_ends_ns[RECEIVE] = 0;
	__builtin_memset(flow->local_addr, 0, 16);
	__builtin_memset(flow->remote_addr, 0, 16);
	if (flow->family == AF_INET6) {
		BPF_CORE_READ_INTO(&flow->local_addr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&flow->remote_addr, sk, __sk_common.skc_v6_daddr);
	} else {
		*(u32 *)flow->local_addr = common->skc_rcv_saddr;
		*(u32 *)flow->remote_addr = common->skc_daddr;
	}
	reset_stream(&flow->streams[TRANSMIT]);
	reset_stream(&flow->streams[RECEIVE]);
	flow->id = __sync_fetch_and_add(&next_flow_id, 1) + 1;
}

/* Everything that this connection ever received counts. */
static __always_inline void begin_receive(struct stream *stream, struct sock *sk)
{
	stream->next_sequence = TCP_FIELD(sk, rcv_nxt) - (u32)TCP_FIELD(sk, bytes_received);
	stream->started = 1;
}

/* A flow that was born under our eyes: every byte of its life counts. */
static __always_inline struct flow *new_flow(struct sock *sk, struct owner *owner)
{
	u32 taken = take_slot();
	if (__sync_val_compare_and_swap(&owner->flow, NO_FLOW_YET, taken) != NO_FLOW_YET || taken == UNTRACKED)
		return NULL;
	struct flow *flow = flow_at(taken - 1);
	if (!flow)
		return NULL;
	flow->known_at_attach = 0;
	flow->accepted = sk->__sk_common.skc_state != TCP_SYN_SENT;
	identify(flow, sk, owner->pid);
	begin_receive(&flow->streams[RECEIVE], sk);
	flow->streams[TRANSMIT].next_sequence = TCP_FIELD(sk, snd_una);
	flow->streams[TRANSMIT].started = 1;
	return flow;
}

#endif
