/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What a flow has moved before it is counted: before it was adopted, or while it found no slot.
 */
#ifndef NETPROF_FLOW_PAST_H
#define NETPROF_FLOW_PAST_H

#include "flow_sequence.h"
#include "flow_slots.h"
#include "flow_tcp.h"

#define USUAL_HEADER_BYTES 66 /* Ethernet, IPv4, TCP with its time stamps */

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
	past->next_sequence[RECEIVE] = tcp->rcv_nxt - has_fin((struct sock *)tcp);
	past->started[TRANSMIT] = ADOPTED;
	past->started[RECEIVE] = STARTED;
	past->segments = tcp->segs_in;
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

#endif
