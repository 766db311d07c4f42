/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * A packet of a flow of the job, counted: where it meets the device, and where TCP receives it.
 */
#ifndef NETPROF_FLOW_COUNT_H
#define NETPROF_FLOW_COUNT_H

#include "flow_past.h"
#include "flow_sequence.h"
#include "flow_slots.h"
#include "flow_tcp.h"
#include "packet.h"

/* Count a flow on one device only: a stacked device (bond, VLAN) shows each packet again beneath. */
static __always_inline bool right_device(struct flow *flow, struct net_device *device, u32 sequence, u32 payload)
{
	u32 interface = device->ifindex;
	if (flow->interface == interface)
		return true;
	s32 ahead = (s32)(sequence + payload - flow->streams[TRANSMIT].next_sequence);
	if (flow->interface && (payload == 0 || ahead <= 0))
		return false;
	flow->interface = interface;
	flow->since_ns[TRANSMIT] = bpf_ktime_get_ns();
	bpf_probe_read_kernel_str(flow->device, sizeof(flow->device), device->name);
	return true;
}

/* What this end has to send, as of when a packet arrives that is not handled yet: does it wait, and for the receiver? */
static __always_inline u8 what_is_unsent(struct tcp_sock *tcp)
{
	u32 next = tcp->snd_nxt;

	if (tcp->write_seq == next)
		return ALL_SENT;
	return (s32)(tcp->snd_una + tcp->snd_wnd - next) < (s32)tcp->mss_cache ? UNSENT_NO_ROOM : UNSENT;
}

static __always_inline int count_sent(struct sk_buff *skb, struct net_device *device, struct sock *sk,
				      struct owner *owner)
{
	struct tcp_header header;
	u64 now = bpf_ktime_get_ns();
	unsigned char *transport = skb->head + skb->transport_header;
	if (!read_header(&header, transport) || !is_ours(sk, &header))
		return 0;
	u32 header_bytes = distance(skb->data, transport) + (header.offset >> 4) * 4;
	u32 length = skb->len;
	u32 payload = length > header_bytes ? length - header_bytes : 0;
	u32 sequence = bpf_ntohl(header.sequence);
	struct flow *flow = flow_of(owner);
	if (!flow)
		flow = take_up(sk, owner, payload);
	if (!flow || !right_device(flow, device, sequence, payload))
		return 0;
	u32 slot = owner->flow - 1;
	struct amount amount = { .wire = length, .packets = 1 };
	if (payload) {
		amount.packets = segments_of(skb, payload);
		amount.wire += (amount.packets - 1) * header_bytes;
	}
	if (header.flags & TCP_FLAG_SYN) {
		flow->streams[TRANSMIT].next_sequence = sequence + 1;
		flow->streams[TRANSMIT].started = STARTED;
		flow->streams[RECEIVE].started = 0;
	} else {
		if (payload || header.flags & TCP_FLAG_FIN)
			account_transmit(sk, &flow->streams[TRANSMIT], &amount, sequence, payload, header_bytes);
		if (!flow->streams[RECEIVE].started)
			begin_receive(&flow->streams[RECEIVE], sk);
		else
			heal_received(flow, slot, sk, now, bpf_ntohl(header.acknowledged), header_bytes);
	}
	add(flow, slot, TRANSMIT, now, &amount);
	return 0;
}

static __always_inline int count_received(struct sock *sk, struct tcp_sock *tcp, struct sk_buff *skb,
					  struct owner *owner)
{
	u64 now = bpf_ktime_get_ns();
	/* TCP's own notes on the packet: the header itself is often not in this CPU's cache yet. */
	struct tcp_skb_cb *notes = (void *)skb->cb;
	u32 sequence = notes->seq, length = skb->len;
	u32 flags = notes->tcp_flags, acknowledged = notes->ack_seq;
	u32 payload = notes->end_seq - sequence - (flags & TCP_FLAG_FIN) - ((flags & TCP_FLAG_SYN) != 0);
	u32 lower_bytes = distance(skb->head, skb->data) - skb->mac_header;
	u32 header_bytes = lower_bytes + length - payload;
	struct flow *flow = flow_of(owner);
	if (!flow)
		flow = owner->refused ? take_up_refused(sk, tcp, owner, payload) : take_up(sk, owner, payload);
	if (!flow)
		return 0;
	u32 slot = owner->flow - 1;
	struct stream *stream = &flow->streams[RECEIVE];
	struct amount amount = { .wire = length + lower_bytes, .packets = 1 };
	bool at_once = !sk->sk_backlog.len; /* what waited there is not in this CPU's cache: no look without need */
	if (at_once || payload == 0 || payload > tcp->advmss) {
		amount.packets = segments_of(skb, payload);
		amount.wire += (amount.packets - 1) * header_bytes;
	}
	if (!stream->started)
		begin_receive(stream, sk);
	if (stream->holes_bytes || tcp->rcv_nxt != stream->next_sequence)
		heal_until(stream, &amount, sk, tcp->rcv_nxt, header_bytes);
	if (at_once)
		count_segments(stream, &amount, tcp->segs_in, header_bytes);
	stream->segments += amount.packets;
	bool acknowledges = (s32)(acknowledged - flow->streams[TRANSMIT].next_sequence) > 0; /* what no hook saw */
	bool moves = (payload || acknowledges) && carries_position(tcp, flags, sequence + payload, acknowledged);
	if (payload && moves)
		account_receive(stream, &amount, tcp, sequence, payload);
	if (now - flow->sampled_ns >= tcp_sample_ns)
		sample_tcp(flow, tcp, now);
	u32 interface = skb->skb_iif;
	if (flow->receive_interface != interface) {
		flow->receive_interface = interface;
		flow->since_ns[RECEIVE] = now;
	}
	add(flow, slot, RECEIVE, now, &amount);
	stream->unsent = what_is_unsent(tcp);
	if (moves && acknowledges && (s32)(notes->end_seq - tcp->rcv_wup) >= 0)
		heal_transmitted(flow, slot, sk, now, acknowledged, header_bytes);
	return 0;
}

/* A process lets go of a socket: if its last packets are lost it outlives the job, and nobody asks again. */
static __always_inline void tell_totals_at_close(struct tcp_sock *tcp, struct owner *owner)
{
	struct flow *flow = flow_of(owner);
	if (flow)
		tell_totals(flow, tcp, bpf_ktime_get_ns(), 0);
}

/* A connection is over: what no hook saw arriving is counted, and its slot may be used again. */
static __always_inline void end_flow(struct sock *sk, struct tcp_sock *tcp, struct owner *owner)
{
	u32 slot = owner->flow - 1, id = owner->id;
	struct flow *flow = flow_of(owner);

	owner->flow = OVER;
	if (id && !flow)
		bpf_map_delete_elem(&parked_flows, &id);
	if (!flow)
		return;
	u64 now = bpf_ktime_get_ns();
	heal_received(flow, slot, sk, now, tcp->rcv_nxt, 0);
	sample_tcp(flow, tcp, now);
	tell_totals(flow, tcp, now, TOTALS_CLOSED);
	bpf_map_delete_elem(&accounts, &id);
	flow->closed = 1;
}

#endif
