/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Bytes by TCP sequence number: what is new, what was seen before, and what went by unseen and is healed.
 */
#ifndef NETPROF_FLOW_SEQUENCE_H
#define NETPROF_FLOW_SEQUENCE_H

#include "flow_bins.h"
#include "packet.h"

/* Add `bytes` that went by unseen, as full segments with headers like this packet's. */
static __always_inline void heal(struct sock *sk, struct amount *amount, u32 bytes, u32 header_bytes)
{
	u32 segment = TCP_FIELD(sk, mss_cache);
	u32 packets = segment ? (bytes + segment - 1) / segment : 1;

	amount->payload += bytes;
	amount->unseen += bytes;
	amount->wire += bytes + packets * header_bytes;
	amount->packets += packets;
	__sync_fetch_and_add(&healed_bytes, bytes);
}

static __always_inline bool sane_gap(s32 gap)
{
	return gap > 0 && gap <= MAX_HEALED_BYTES;
}

/* The first packets of a stream that began before we watched: is there anything new in one that ends here? */
static __always_inline bool begins(struct stream *stream, u32 sequence, u32 end)
{
	if (!stream->started)
		stream->next_sequence = sequence;
	else if ((s32)(end - stream->next_sequence) <= 0)
		return false; /* handed down before the adoption, or sent again: TCP's totals of then hold it */
	stream->started = STARTED;
	return true;
}

/* Transmit: what of [sequence, sequence + payload) is new, what was sent before. */
static __always_inline void account_transmit(struct sock *sk, struct stream *stream, struct amount *amount,
					     u32 sequence, u32 payload, u32 header_bytes)
{
	u32 end = sequence + payload;

	if (stream->started != STARTED && !begins(stream, sequence, end))
		return;
	s32 ahead = (s32)(end - stream->next_sequence);
	if (ahead <= 0) {
		amount->retransmitted = payload;
		return;
	}
	s32 gap = (s32)(sequence - stream->next_sequence);
	amount->advanced = ahead;
	if (gap <= 0) {
		amount->payload = ahead;
		amount->retransmitted = payload - ahead;
	} else {
		amount->payload = payload;
		if (sane_gap(gap))
			heal(sk, amount, gap, header_bytes);
	}
	stream->next_sequence = end;
}

/* Of received bytes that end at or before the highest one: how many are new, filling what was jumped over. TCP has taken
 * all before rcv_nxt. */
static __always_inline u32 fills(struct stream *stream, struct tcp_sock *tcp, u32 sequence, u32 bytes)
{
	s32 taken = (s32)(tcp->rcv_nxt - sequence);
	u32 filled = taken <= 0 ? bytes : (u32)taken < bytes ? bytes - taken : 0;

	if (filled > stream->holes_bytes)
		filled = stream->holes_bytes;
	stream->holes_bytes -= filled;
	return filled;
}

/* Receive: the same by arrival, in whatever order. What is jumped over may still arrive, seen or not. */
static __always_inline void account_receive(struct stream *stream, struct amount *amount, struct tcp_sock *tcp,
					    u32 sequence, u32 payload)
{
	u32 end = sequence + payload;
	s32 ahead = (s32)(end - stream->next_sequence);
	s32 gap = (s32)(sequence - stream->next_sequence);

	if (gap > 0)
		stream->holes_bytes += gap;
	if (gap >= 0) {
		amount->payload += payload;
	} else {
		u32 behind = ahead > 0 ? payload - ahead : payload;
		u32 filled = fills(stream, tcp, sequence, behind);
		amount->payload += payload - behind + filled;
		amount->retransmitted = behind - filled;
	}
	if (ahead > 0) {
		amount->advanced += ahead;
		stream->next_sequence = end;
	}
}

/* The sequence number from which on TCP has no room for what arrives. */
static __always_inline u32 window_end(struct tcp_sock *tcp)
{
	u32 end = tcp->rcv_wup + tcp->rcv_wnd, taken = tcp->rcv_nxt;
	return (s32)(end - taken) < 0 ? taken : end;
}

/* Does a received packet carry what TCP goes by: bytes of the stream, and an acknowledgement? With RST or SYN, without
 * ACK, with the acknowledgement of what was never sent or of what is too old (RFC 5961), or from beyond the window it
 * moves neither stream, whatever its other fields hold. */
static __always_inline bool carries_position(struct tcp_sock *tcp, u32 flags, u32 end, u32 acknowledged)
{
	u32 oldest = tcp->snd_una, newer = acknowledged - oldest;

	if ((flags & (TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK)) != TCP_FLAG_ACK)
		return false;
	if (newer > tcp->snd_nxt - oldest && ((s32)newer >= 0 || (s32)(newer + tcp->max_window) < 0))
		return false;
	return (s32)(end - window_end(tcp)) <= 0;
}

/* Move on over what no hook saw. Where both directions' hooks find that at once, one of them counts it. */
static __always_inline bool claim(struct stream *stream, u32 from, u32 to)
{
	return __sync_val_compare_and_swap(&stream->next_sequence, from, to) == from;
}

/* All before `taken` has arrived: heal what no hook saw of it. */
static __always_inline void heal_until(struct stream *stream, struct amount *amount, struct sock *sk, u32 taken,
				       u32 header_bytes)
{
	u32 from = stream->next_sequence, to = taken - has_fin(sk);
	s32 gap = (s32)(to - from);

	if (gap < 0)
		return;
	u32 holes_bytes = stream->holes_bytes ? __sync_lock_test_and_set(&stream->holes_bytes, 0) : 0;
	if (holes_bytes)
		heal(sk, amount, holes_bytes, header_bytes);
	if (sane_gap(gap) && claim(stream, from, to)) {
		heal(sk, amount, gap, header_bytes);
		amount->advanced += gap;
	}
}

/* The acknowledgement on a packet we send says what has arrived. */
static __always_inline void heal_received(struct flow *flow, u32 slot, struct sock *sk, u64 now, u32 acknowledged,
					  u32 header_bytes)
{
	struct stream *stream = &flow->streams[RECEIVE];
	struct amount amount = {};

	heal_until(stream, &amount, sk, acknowledged, header_bytes);
	if (!amount.payload)
		return;
	stream->segments += amount.packets;
	add(flow, slot, RECEIVE, now, &amount);
}

/* TCP has counted packets that we have not: merged into others unnoticed, or handled before or after the time in which
 * it shows us each (handshake, end). Or we have counted some twice: when TCP's count had grown, and when they were healed.
 * `amount` is of the packet at hand, not waiting in the socket's backlog. */
static __always_inline void count_segments(struct stream *stream, struct amount *amount, u16 counted, u32 header_bytes)
{
	s32 missing = (s16)(counted - stream->segments - amount->packets), all_but_one = (s32)amount->packets - 1;

	if (missing < -all_but_one)
		missing = -all_but_one; /* the rest is made up for by the next ones */
	amount->packets += missing;
	amount->wire += missing * (s32)header_bytes;
}

/* The acknowledgement on a packet we receive says what has left: heal what no hook saw leaving. */
static __always_inline void heal_transmitted(struct flow *flow, u32 slot, struct sock *sk, u64 now, u32 acknowledged,
					     u32 header_bytes)
{
	struct stream *stream = &flow->streams[TRANSMIT];
	struct amount amount = {};
	u32 from = stream->next_sequence;
	s32 gap = (s32)(acknowledged - from);

	if (!stream->started || !sane_gap(gap) || !claim(stream, from, acknowledged))
		return;
	stream->started = STARTED;
	heal(sk, &amount, gap, header_bytes);
	amount.advanced = gap;
	add(flow, slot, TRANSMIT, now, &amount);
}

#endif
