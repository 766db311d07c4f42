/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The slot of each flow that moves bytes: taken with a packet, given up while the flow is silent, taken again.
 */
#ifndef NETPROF_FLOW_SLOTS_H
#define NETPROF_FLOW_SLOTS_H

#include "flow_totals.h"

#define TRIES 4

static __always_inline u32 slots_in_use(void)
{
	return next_slot - (u32)(freed_slots - reused_slots);
}

/* Packets without payload may take three quarters of the slots: connections that only exist leave room. */
static __always_inline bool is_room_for(u32 payload)
{
	return slots_in_use() < (payload ? max_flows : max_flows - max_flows / 4);
}

/* Take a free slot. Returns slot + 1, or NO_SLOT. */
static __always_inline u32 take_slot(u32 payload)
{
	if (!is_room_for(payload))
		return NO_SLOT;
	for (int i = 0; i < TRIES; i++) {
		u64 turn = reused_slots;
		if (turn >= freed_slots)
			break;
		if (__sync_val_compare_and_swap(&reused_slots, turn, turn + 1) != turn)
			continue;
		u32 place = turn % max_flows;
		u32 *slot = bpf_map_lookup_elem(&free_slots, &place);
		return slot ? *slot + 1 : NO_SLOT;
	}
	for (int i = 0; i < TRIES; i++) {
		u32 slot = next_slot;
		if (slot >= max_flows)
			break;
		if (__sync_val_compare_and_swap(&next_slot, slot, slot + 1) == slot)
			return slot + 1;
	}
	return NO_SLOT;
}

static __always_inline void identify(struct flow *flow, struct sock *sk, u32 pid)
{
	struct sock_common *common = &sk->__sk_common;
	const struct tcp_congestion_ops *control = TCP_FIELD(sk, inet_conn.icsk_ca_ops);

	BPF_CORE_READ_STR_INTO(&flow->congestion_control, control, name);
	flow->pid = pid;
	flow->family = common->skc_family;
	flow->netns = BPF_CORE_READ(common, skc_net.net, ns.inum);
	flow->local_port = common->skc_num;
	flow->remote_port = bpf_ntohs(common->skc_dport);
	if (flow->family == AF_INET6) {
		BPF_CORE_READ_INTO(&flow->local_addr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&flow->remote_addr, sk, __sk_common.skc_v6_daddr);
	} else {
		*(u32 *)flow->local_addr = common->skc_rcv_saddr;
		*(u32 *)flow->remote_addr = common->skc_daddr;
	}
}

/* Everything that this connection ever received counts. */
static __always_inline void begin_receive(struct stream *stream, struct sock *sk)
{
	stream->next_sequence = TCP_FIELD(sk, rcv_nxt) - (u32)TCP_FIELD(sk, bytes_received);
	stream->started = STARTED;
}

/* A flow that was born under our eyes: every byte of its life counts. */
static __always_inline void begin(struct flow *flow, struct sock *sk)
{
	flow->accepted = sk->__sk_common.skc_state != TCP_SYN_SENT;
	begin_receive(&flow->streams[RECEIVE], sk);
	flow->streams[TRANSMIT].next_sequence = TCP_FIELD(sk, snd_una);
	flow->streams[TRANSMIT].started = STARTED;
}

/* Go on where the flow stood in the slot that it gave up, if that is not used again yet. */
static __always_inline bool go_on_from_slot(struct flow *flow, const struct flow *former, u32 id)
{
	if (!former || former->id != id || former->holder)
		return false;
	flow->adoption = former->adoption;
	flow->accepted = former->accepted;
	flow->told = former->told;
	for (int i = TRANSMIT; i <= RECEIVE; i++) {
		flow->streams[i].next_sequence = former->streams[i].next_sequence;
		flow->streams[i].started = former->streams[i].started;
	}
	flow->streams[RECEIVE].holes_bytes = former->streams[RECEIVE].holes_bytes;
	flow->streams[RECEIVE].segments = former->streams[RECEIVE].segments;
	asm volatile("" ::: "memory");
	if (*(volatile const u32 *)&former->id != id)
		return false;
	for (int i = TRANSMIT; i <= RECEIVE; i++)
		enter_bin(id, i, &former->streams[i]);
	return true;
}

/* Go on where the flow stood when it was parked. */
static __always_inline bool go_on_from_parked(struct flow *flow, u32 id)
{
	struct parked *parked = bpf_map_lookup_elem(&parked_flows, &id);

	if (!parked)
		return false;
	flow->adoption = parked->adoption;
	flow->accepted = parked->accepted;
	flow->told = parked->told;
	for (int i = TRANSMIT; i <= RECEIVE; i++) {
		flow->streams[i].next_sequence = parked->next_sequence[i];
		flow->streams[i].started = parked->started[i];
		if (parked->left[i].packets)
			enter(id, i, parked->left[i].payload_bytes, parked->left[i].retransmitted_bytes,
			      parked->left[i].packets);
	}
	flow->streams[RECEIVE].holes_bytes = parked->holes_bytes;
	flow->streams[RECEIVE].segments = parked->segments;
	return true;
}

/* The slot of a flow that has one. */
static __always_inline struct flow *flow_of(const struct owner *owner)
{
	struct flow *flow = flow_at(owner->flow - 1);
	return flow && flow->holder == owner->id ? flow : NULL;
}

/* Take a slot for a flow that has none; NULL if there is none to be had, or the flow is over. */
static __noinline struct flow *take_up(struct sock *sk, struct owner *owner, u32 payload)
{
	u32 before = owner->flow;
	const struct flow *former = flow_at(before - 1);
	if (former && former->holder == owner->id)
		return flow_of(owner); /* the flow's other direction was first */
	if (before == OVER || owner->refused)
		return NULL;
	u32 taken = take_slot(payload);
	if (taken == NO_SLOT) {
		if (payload && !__sync_fetch_and_or(&owner->refused, 1))
			__sync_fetch_and_add(&untracked_flows, 1);
		return NULL;
	}
	struct flow *flow = flow_at(taken - 1);
	if (!flow)
		return NULL;
	if (!owner->id)
		__sync_val_compare_and_swap(&owner->id, 0, __sync_fetch_and_add(&next_flow_id, 1) + 1);
	u32 id = owner->id;
	if (!go_on_from_slot(flow, former, id) && !go_on_from_parked(flow, id))
		begin(flow, sk);
	identify(flow, sk, owner->pid);
	flow->id = flow->holder = id;
	if (__sync_val_compare_and_swap(&owner->flow, before, taken) == before) {
		bpf_map_delete_elem(&parked_flows, &id);
		return flow;
	}
	flow->id = flow->holder = 0; /* user space frees it */
	flow->closed = 1;
	return flow_of(owner);
}

#endif
