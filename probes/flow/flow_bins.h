/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * A stream's current bin: what is added to it, and how it goes to user space once time moves on.
 */
#ifndef NETPROF_FLOW_BINS_H
#define NETPROF_FLOW_BINS_H

#include "flow_totals.h"

/* Hand the stream's finished bin to user space and begin the next; false when the ring is full. */
static __always_inline bool hand_over(struct flow *flow, struct stream *stream, u32 slot, u32 direction,
				      u64 bin_end_ns, u32 next_sequence)
{
	struct bin_record *record = bpf_ringbuf_reserve(&bins, sizeof(*record), 0);
	if (!record) {
		if (flow->stuck_ends_ns[direction & 1] != bin_end_ns) {
			flow->stuck_ends_ns[direction & 1] = bin_end_ns;
			__sync_fetch_and_add(&merged_bins, 1);
		}
		return false;
	}
	record->flow_id = flow->id;
	record->place = (slot * 2 + direction) | (u32)stream->unsent << PLACE_BITS;
	record->payload_bytes = stream->payload_bytes;
	record->wire_bytes = stream->wire_bytes;
	record->retransmitted_bytes = stream->retransmitted_bytes;
	record->first_ns = stream->first_ns;
	record->last_ns = stream->last_ns;
	record->packets = stream->packets;
	record->newest_after_ns = stream->newest_after_ns;
	record->next_sequence = next_sequence;
	enter_bin(flow->id, direction, stream);
	stream->bin_end_ns = bin_end_ns;
	stream->payload_bytes = stream->wire_bytes = 0;
	stream->retransmitted_bytes = stream->packets = 0;
	stream->newest_after_ns = NOTHING_NEW;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

struct amount {
	u32 payload;
	u32 retransmitted;
	u32 wire;
	u32 packets;
	u32 advanced; /* by so much the stream's next_sequence is further than before the packet */
	u32 unseen;   /* bytes of it that no hook saw */
};

/* Note when new bytes pass. A bin with bytes that passed unseen, or one that lasts for seconds, has no such time. */
static __always_inline void note_newest(struct stream *stream, u64 now, const struct amount *amount)
{
	u64 after_ns = now - stream->first_ns + 1;

	if (amount->unseen || after_ns >= NOT_KNOWN)
		stream->newest_after_ns = NOT_KNOWN;
	else if (stream->newest_after_ns != NOT_KNOWN)
		stream->newest_after_ns = after_ns;
}

static __always_inline void add(struct flow *flow, u32 slot, u32 direction, u64 now, const struct amount *amount)
{
	struct stream *stream = &flow->streams[direction];

	if (now >= stream->bin_end_ns) { /* a division for each bin, not for each packet */
		u64 bin_end_ns = (now / bin_ns + 1) * bin_ns;
		if (!stream->packets)
			stream->bin_end_ns = bin_end_ns;
		else
			hand_over(flow, stream, slot, direction, bin_end_ns, stream->next_sequence - amount->advanced);
	}
	if (!stream->packets)
		stream->first_ns = now;
	stream->last_ns = now;
	if (amount->advanced)
		note_newest(stream, now, amount);
	stream->payload_bytes += amount->payload;
	stream->retransmitted_bytes += amount->retransmitted;
	stream->wire_bytes += amount->wire;
	stream->packets += amount->packets;
}

#endif
