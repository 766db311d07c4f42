/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What TCP itself says that a flow has moved, beside what was counted of it: what went by unseen is the difference.
 *
 * The flow programs count what passes a device. TCP keeps totals of its own for every socket. Both are read together:
 * when the sockets are looked through, and when one ends, so that a socket that lives between two looks is read too.
 */
#ifndef NETPROF_FLOW_TOTALS_H
#define NETPROF_FLOW_TOTALS_H

#include "../kernel/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include "flow_state.h"

#define TOTALS_CLOSED 1 /* the socket ended here */
#define TOTALS_SETTLED 2 /* TCP was doing nothing: every packet that it has sent or received has passed the programs */
#define QUIET_NS 10000000 /* after so long without a packet none is on its way through the receiving side */

/* TCP's totals of a socket: payload bytes, and packets of any kind. */
struct tcp_totals {
	u64 sent_bytes; /* what was sent again included */
	u64 resent_bytes;
	u64 received_bytes;
	u32 sent_segments;
	u32 received_segments;
};

/* The books of a flow, also while it holds no slot: the bins that were handed over. */
struct account {
	struct counted handed_over[2];
	u32 before_queued_bytes; /* on its way to the device when the flow was adopted */
	u32 told_segments; /* where TCP's totals stood when they were last handed to user space */
};

/* Totals since the flow is counted. */
struct totals_record {
	u64 time_ns;
	u32 flow_id;
	u32 state; /* TOTALS_CLOSED, TOTALS_SETTLED */
	struct tcp_totals tcp;
	struct counted counted[2];
	u32 queued_bytes; /* between TCP and the device, with the kernel's own overhead */
	u32 before_queued_bytes;
};

/* By the flow's id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, u32);
	__type(value, struct account);
} accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} totals SEC(".maps");

/* What TCP says since the flow is counted. */
static __always_inline void read_totals(struct tcp_totals *into, const struct adoption *before, struct tcp_sock *tcp)
{
	into->resent_bytes = tcp->bytes_retrans - before->resent_bytes;
	into->sent_bytes = tcp->bytes_sent - before->sent_bytes - before->resent_bytes;
	into->received_bytes = tcp->bytes_received - has_fin((struct sock *)tcp) - before->received_bytes;
	into->sent_segments = tcp->segs_out - before->sent_packets;
	into->received_segments = tcp->segs_in - before->received_packets;
}

/* Memory of packets that TCP has sent and no driver has let go of: 1 stands for the socket itself. */
static __always_inline u32 queued_bytes(struct tcp_sock *tcp)
{
	return ((struct sock *)tcp)->sk_wmem_alloc.refs.counter - 1;
}

struct account empty_account; /* not on the stack, which has no room for it */

/* The books of a flow, opened when first asked for; NULL if there is no room for them. */
static __always_inline struct account *account_of(u32 id)
{
	struct account *account = bpf_map_lookup_elem(&accounts, &id);

	if (account)
		return account;
	bpf_map_update_elem(&accounts, &id, &empty_account, BPF_NOEXIST);
	return bpf_map_lookup_elem(&accounts, &id);
}

/* Note what an adopted socket has on its way to the device: it is counted there, and TCP has sent it before. */
static __always_inline void note_queued(u32 id, struct tcp_sock *tcp)
{
	u32 queued = queued_bytes(tcp);
	struct account *account = queued ? account_of(id) : NULL;

	if (account)
		account->before_queued_bytes = queued;
}

static __always_inline void enter(u32 id, u32 direction, u64 payload_bytes, u64 retransmitted_bytes, u64 packets)
{
	struct account *account = account_of(id);

	if (!account)
		return;
	struct counted *counted = &account->handed_over[direction & 1];
	counted->payload_bytes += payload_bytes;
	counted->retransmitted_bytes += retransmitted_bytes;
	counted->packets += packets;
	counted->bins++;
}

/* Add a bin that is handed over, or stays behind in a slot that its flow gives up. */
static __always_inline void enter_bin(u32 id, u32 direction, const struct stream *stream)
{
	enter(id, direction, stream->payload_bytes, stream->retransmitted_bytes, stream->packets);
}

/* What was counted of a direction up to now, the filling bin included; false if a bin was handed over meanwhile. */
static __always_inline bool read_counted(struct counted *into, const struct account *account, struct flow *flow,
					 u32 direction)
{
	const volatile struct counted *before = &account->handed_over[direction & 1];
	const volatile struct stream *stream = &flow->streams[direction & 1];
	u64 bins = before->bins;

	into->payload_bytes = before->payload_bytes + stream->payload_bytes;
	into->retransmitted_bytes = before->retransmitted_bytes + stream->retransmitted_bytes;
	into->packets = before->packets + stream->packets;
	into->bins = bins;
	return before->bins == bins;
}

/* The receiving side is counted in whatever order it arrives, TCP counts what has arrived without a hole. */
static __always_inline void leave_out_what_is_ahead(struct counted *received, struct flow *flow, struct tcp_sock *tcp)
{
	u32 arrived = tcp->rcv_nxt - has_fin((struct sock *)tcp);
	struct stream *stream = &flow->streams[RECEIVE];
	s32 ahead = (s32)(stream->next_sequence - arrived);
	s32 beyond_holes = ahead - (s32)stream->holes_bytes;

	if (stream->started && ahead > 0 && beyond_holes > 0)
		received->payload_bytes -= beyond_holes;
}

/* Hand both totals of a flow to user space, unless nothing has moved since. A full ring is no loss: totals go on. */
static __always_inline void tell_totals(struct flow *flow, struct tcp_sock *tcp, u64 now, u32 state)
{
	u32 segments = tcp->segs_out + tcp->segs_in + 1, backlog = ((struct sock *)tcp)->sk_backlog.len;
	struct account *account = account_of(flow->id);

	if (!account || (!(state & TOTALS_CLOSED) && account->told_segments == segments))
		return;
	struct totals_record *record = bpf_ringbuf_reserve(&totals, sizeof(*record), 0);
	if (!record)
		return;
	u32 queued = queued_bytes(tcp);
	if (!read_counted(&record->counted[TRANSMIT], account, flow, TRANSMIT) ||
	    !read_counted(&record->counted[RECEIVE], account, flow, RECEIVE)) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP); /* it is busy: the next look will do */
		return;
	}
	leave_out_what_is_ahead(&record->counted[RECEIVE], flow, tcp);
	read_totals(&record->tcp, &flow->adoption, tcp);
	bool rests = !backlog && now - flow->streams[RECEIVE].last_ns > QUIET_NS &&
		     tcp->segs_out + tcp->segs_in + 1 == segments;
	bool settled = (rests || state & TOTALS_CLOSED) && !queued;
	record->time_ns = now;
	record->flow_id = flow->id;
	record->state = state | (settled ? TOTALS_SETTLED : 0);
	record->queued_bytes = queued;
	record->before_queued_bytes = account->before_queued_bytes;
	if (settled)
		account->told_segments = segments;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#endif
