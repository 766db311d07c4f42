/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Sockets of the job that lived before we knew of them: how they are found, and what TCP says they had moved.
 *
 * A look through the files of the job's processes (find_sockets) notes the addresses of the sockets that it does not
 * know; a look through all TCP sockets (adopt_sockets), which holds each one's lock, adopts those. Only under the lock
 * TCP's totals and its sequence numbers are of one moment.
 */
#ifndef NETPROF_FLOW_ADOPTION_H
#define NETPROF_FLOW_ADOPTION_H

#include "flow_sequence.h"
#include "flow_slots.h"
#include "flow_tcp.h"

#define MOST_WAITING 512
#define MOST_SUBFLOWS 64
#define USUAL_HEADER_BYTES 66 /* Ethernet, IPv4, TCP with its time stamps */

struct wanted {
	u32 pid;
	u32 waiting; /* in the accept queue of a listener of that process */
	u32 missed;  /* a look through all TCP sockets of its namespace did not find it */
};

/* Sockets that are to be adopted, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u64);
	__type(value, struct wanted);
} wanted_sockets SEC(".maps");

/* Note what TCP has moved so far; the socket is locked. */
static __always_inline void note_past(struct parked *past, struct tcp_sock *tcp)
{
	struct adoption *adoption = &past->adoption;

	adoption->time_ns = bpf_ktime_get_ns();
	adoption->resent_bytes = tcp->bytes_retrans;
	adoption->sent_bytes = tcp->bytes_sent - adoption->resent_bytes;
	adoption->received_bytes = tcp->bytes_received - has_fin((struct sock *)tcp);
	adoption->sent_packets = tcp->segs_out;
	adoption->received_packets = tcp->segs_in;
	past->next_sequence[TRANSMIT] = tcp->snd_nxt;
	past->next_sequence[RECEIVE] = tcp->rcv_nxt;
	past->started[TRANSMIT] = ADOPTED;
	past->started[RECEIVE] = STARTED;
	past->segments = tcp->segs_in;
}

/* Count what a socket moves from now on, with its past noted. Without a past that was missed it needs no slot yet. */
static __always_inline void adopt(struct sock *sk, struct tcp_sock *tcp, u32 pid, bool waiting)
{
	struct parked past = { .accepted = waiting };
	struct owner fresh = { .pid = pid };

	note_past(&past, tcp);
	fresh.id = __sync_fetch_and_add(&next_flow_id, 1) + 1;
	if (bpf_map_update_elem(&parked_flows, &fresh.id, &past, BPF_ANY))
		return; /* full: the next look tries again */
	struct owner *owner = bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	if (!owner)
		bpf_map_delete_elem(&parked_flows, &fresh.id);
	else
		note_queued(fresh.id, tcp);
	if (owner && late && past.adoption.sent_bytes + past.adoption.received_bytes)
		take_up(sk, owner, 1);
}

/* A flow that was refused a slot gets one now. What went by meanwhile is noted; of a flow that had one before, whose
 * past is in its row already, it is counted here. The socket is locked. */
static __noinline struct flow *take_up_refused(struct sock *sk, struct tcp_sock *tcp, struct owner *owner, u32 payload)
{
	struct parked past = { .accepted = 1 };
	u32 id = owner->id;

	if (owner->flow == OVER || !is_room_for(payload))
		return NULL;
	if (!id)
		id = owner->id = __sync_fetch_and_add(&next_flow_id, 1) + 1;
	bool had_one = bpf_map_lookup_elem(&parked_flows, &id);
	if (!had_one) {
		note_past(&past, tcp);
		bpf_map_update_elem(&parked_flows, &id, &past, BPF_ANY);
	}
	owner->refused = 0;
	struct flow *flow = take_up(sk, owner, payload);
	if (flow && had_one) {
		u32 slot = owner->flow - 1;
		u64 now = bpf_ktime_get_ns();
		heal_received(flow, slot, sk, now, tcp->rcv_nxt, USUAL_HEADER_BYTES);
		heal_transmitted(flow, slot, sk, now, tcp->snd_una, USUAL_HEADER_BYTES);
	}
	return flow;
}

static __always_inline void want(u64 address, u32 pid, bool waiting)
{
	struct wanted wanted = { .pid = pid, .waiting = waiting };
	if (address)
		bpf_map_update_elem(&wanted_sockets, &address, &wanted, BPF_NOEXIST);
}

/* Want the connections that wait to be accepted: they began before their listener was known. */
static __always_inline bool want_waiting(struct tcp_sock *tcp, u32 pid)
{
	struct request_sock *waiting = tcp->inet_conn.icsk_accept_queue.rskq_accept_head;
	int i;

	for (i = 0; i < MOST_WAITING && waiting; i++) {
		want((u64)BPF_CORE_READ(waiting, sk), pid, true);
		waiting = BPF_CORE_READ(waiting, dl_next);
	}
	return i;
}

/* Want the TCP connections of which a Multipath TCP connection is made. */
static __always_inline bool want_subflows(struct sock *sk, u32 pid)
{
	struct mptcp_sock *mptcp = (void *)sk;
	u64 node, head;
	int i;

	if (!bpf_core_type_exists(struct mptcp_sock))
		return false;
	head = (u64)sk + bpf_core_field_offset(struct mptcp_sock, conn_list);
	node = (u64)BPF_CORE_READ(mptcp, conn_list.next);
	for (i = 0; i < MOST_SUBFLOWS && node && node != head; i++) {
		struct mptcp_subflow_context *subflow =
			(void *)(node - bpf_core_field_offset(struct mptcp_subflow_context, node));
		want((u64)BPF_CORE_READ(subflow, tcp_sock), pid, false);
		node = (u64)BPF_CORE_READ(subflow, node.next);
	}
	return i;
}

#endif
