/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the flow programs share with user space, which reads these structures from their type information.
 */
#ifndef NETPROF_FLOW_H
#define NETPROF_FLOW_H

#define TRANSMIT 0
#define RECEIVE 1

/* Values of stream.started. */
#define STARTED 1
#define ADOPTED 2 /* transmit: nothing new has left since the adoption */

/* Values of stream.unsent. */
#define ALL_SENT 0
#define UNSENT 1 /* bytes waited in the send buffer, though the receiver had room for them */
#define UNSENT_NO_ROOM 2 /* bytes waited for room at the receiver */

/* Values of stream.newest_after_ns that are not a time. */
#define NOTHING_NEW 0
#define NOT_KNOWN 0xffffffff /* bytes of the bin went by unseen */

/* One direction of a flow: the bin that is filling, and where in the stream it stands. One cache line: the two
 * directions run on different CPUs. */
struct stream {
	u64 bin_end_ns; /* where the bin ends; 0 before the first */
	u64 payload_bytes;
	u64 wire_bytes;
	u64 first_ns;
	u64 last_ns;
	u32 retransmitted_bytes;
	u32 packets;
	u32 newest_after_ns; /* when the last new byte passed: so long after first_ns, and one */
	u32 next_sequence; /* one past the highest sequence number seen */
	u32 holes_bytes;   /* received: jumped over, and not yet seen to arrive */
	u8 started;
	u8 unsent;    /* received: what this end had to send when the last packet arrived */
	u16 segments; /* received: how many packets, as TCP counts them; of a count that grows, the lower half */
};

/* What TCP said it had moved when a socket was adopted that lived before: none of that was counted. */
struct adoption {
	u64 time_ns;	/* 0: every byte of the flow's life was seen */
	u64 sent_bytes; /* of the stream, each once */
	u64 resent_bytes;
	u64 received_bytes;
	u32 sent_packets;
	u32 received_packets;
};

/* What was counted of one direction of a flow. */
struct counted {
	u64 payload_bytes;
	u64 retransmitted_bytes;
	u64 packets;
	u64 bins; /* how many were added up */
};

/* What is kept of a flow that holds no slot: adopted and silent since, or silent for long while others needed slots. */
struct parked {
	struct adoption adoption;
	u32 next_sequence[2];
	u32 holes_bytes;
	u16 started[2];
	u16 segments;
	u16 accepted;
	u32 told;
	struct counted left[2]; /* of the last bin in each direction, which user space has read in the slot */
};

/* A slot. What every packet touches comes first, and the streams begin on a cache line. */
struct flow {
	u32 holder; /* the flow's id; 0: the slot is free, or was given up because its flow is silent */
	u32 interface; /* the device that it is sent by */
	u64 sampled_ns;	      /* when a sample of the transport was last handed over */
	u64 stuck_ends_ns[2]; /* the end of the last bin that could not be handed over: the ring was full */
	u32 id;		      /* of the flow, unique in a recording */
	u32 receive_interface; /* the device that it is received by */
	u32 accepted; /* the owner is the listener's process until confirmed */
	u32 told;     /* its row was given before, from another slot */
	u32 pid;
	u32 family;
	u32 netns;
	u16 local_port;
	u16 remote_port;
	u8 local_addr[16];
	u8 remote_addr[16];
	char device[16]; /* of `interface` */
	struct adoption adoption;
	char congestion_control[16];
	u64 since_ns[2]; /* the devices it is sent and received by are these since then */
	u32 closed;
	u32 unused;
	struct stream streams[2];
};

/* A finished bin: the one that its first packet is in. If its last packet is in a later one, the ring was full meanwhile,
 * and when the others passed is not known. */
struct bin_record {
	u32 flow_id;
	u32 place; /* slot * 2 + direction, and above PLACE_BITS the stream's `unsent` */
	u64 first_ns;
	u64 last_ns;
	u64 payload_bytes;
	u64 wire_bytes;
	u32 retransmitted_bytes;
	u32 packets;
	u32 newest_after_ns; /* as of a stream; the stream's next_sequence was reached then */
	u32 next_sequence;
};

#define PLACE_BITS 24

/* What TCP says of a flow at one moment. */
struct tcp_record {
	u64 time_ns;
	u32 flow_id;
	u32 retransmits;
	u32 rtt_us;
	u32 cwnd;
	u32 mss_bytes;
	u32 notsent_bytes;
	u64 busy_us; /* TCP's own clocks, since the connection began */
	u64 rwnd_limited_us;
	u64 sndbuf_limited_us;
	u32 ca_state; /* of enum tcp_ca_state */
	u32 dsacked; /* what it sent again that the receiver had already */
	u32 send_buffer_bytes;
	u32 send_queued_bytes; /* of it in use, as the kernel counts memory */
	u64 pacing_bytes_per_s; /* TCP sends no faster; 0: it does not pace */
	u64 pacing_limit_bytes_per_s; /* what the program asked for (SO_MAX_PACING_RATE); 0: nothing */
	u32 min_rtt_us; /* 0: unknown */
	u32 unacked_bytes; /* sent, and not acknowledged */
};

/* A packet of a flow that this host dropped. */
struct drop_record {
	u64 time_ns;
	u32 flow_id;
	u32 bytes;
	u32 direction;
	u32 reason; /* of enum skb_drop_reason */
	char device[16]; /* "" where it was no device's any more */
};

/* A point in a process's life; the layout of a mark. */
struct life_record {
	u64 time_ns;
	u32 pid;
	u32 tid;
	u32 kind;
	u32 padding;
	u64 arguments[3];
};

#define LIFE_FORK 100
#define LIFE_EXEC 101
#define LIFE_EXIT 102

#endif
