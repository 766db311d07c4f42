/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * From the records of finished bins to the columns of table `wire`, each bin once: probes/flow/bin_collector.py.
 */
#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#include "../../flow/flow.h"

/* The columns, in the order of the table; each has room for all records. */
struct wire_columns {
	u32 *flow_id;
	u8 *direction;
	u64 *bin_start_ns;
	u64 *payload_bytes;
	u64 *wire_bytes;
	u64 *retransmitted_bytes;
	u32 *packets;
	u64 *first_ns;
	u64 *last_ns;
	u32 *stream_position;
	u64 *stream_position_ns;
	u8 *unsent;
};

/* What is known of each place (a slot's direction): its last bin that was handed over, and what was given of a bin that
 * was read in place. */
struct known_bins {
	u64 bin_ns;
	u64 places;
	u64 *handed_over;
	struct bin_record *given;
	u64 *given_bins;
};

/* When the last new byte of a record passed; 0 where there is none or it went by unseen. */
static u64 newest_ns(const struct bin_record *record)
{
	u32 after = record->newest_after_ns;

	return after == NOTHING_NEW || after == NOT_KNOWN ? 0 : record->first_ns + after - 1;
}

/* Leave of a record what is beyond that which was given of its bin: all until its last packet. */
static void leave_rest(struct bin_record *record, const struct bin_record *given)
{
	u64 newest = newest_ns(record);

	record->payload_bytes -= given->payload_bytes;
	record->wire_bytes -= given->wire_bytes;
	record->retransmitted_bytes -= given->retransmitted_bytes;
	record->packets -= given->packets;
	record->first_ns = given->last_ns;
	if (newest > given->last_ns)
		record->newest_after_ns -= (u32)(given->last_ns - given->first_ns);
	else if (newest)
		record->newest_after_ns = NOTHING_NEW; /* that byte is in the row which was given */
}

/* Append the rows of `count` records after the first `row`; returns how many there are then. Records that were read in
 * place count only while their bin was not handed over. */
unsigned long netprof_bins(const struct bin_record *records, unsigned long count, int in_place,
			   const struct known_bins *known, const struct wire_columns *out, unsigned long row)
{
	for (unsigned long i = 0; i < count; i++) {
		struct bin_record record = records[i];
		u32 place = record.place & ((1U << PLACE_BITS) - 1);
		u64 bin = record.first_ns / known->bin_ns;
		if (place >= known->places || (in_place && bin <= known->handed_over[place]))
			continue;
		const struct bin_record given = known->given[place];
		bool again = known->given_bins[place] == bin && given.flow_id == record.flow_id;
		if (in_place) {
			known->given[place] = record;
			known->given_bins[place] = bin;
		} else {
			known->handed_over[place] = bin;
		}
		if (again) {
			leave_rest(&record, &given);
			bin = record.first_ns / known->bin_ns;
			if (!record.wire_bytes)
				continue;
		}
		out->flow_id[row] = record.flow_id;
		out->direction[row] = place & 1;
		out->bin_start_ns[row] = bin * known->bin_ns;
		out->payload_bytes[row] = record.payload_bytes;
		out->wire_bytes[row] = record.wire_bytes;
		out->retransmitted_bytes[row] = record.retransmitted_bytes;
		out->packets[row] = record.packets;
		out->first_ns[row] = record.first_ns;
		out->last_ns[row] = record.last_ns;
		out->stream_position[row] = record.next_sequence;
		out->stream_position_ns[row] = newest_ns(&record);
		out->unsent[row] = record.place >> PLACE_BITS;
		row++;
	}
	return row;
}
