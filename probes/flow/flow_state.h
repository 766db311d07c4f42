/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the flow programs keep: maps, counters, and who owns a socket.
 */
#ifndef NETPROF_FLOW_STATE_H
#define NETPROF_FLOW_STATE_H

#include "../kernel/kernel_types.h"
#include "../kernel/targets.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define IPPROTO_MPTCP 262
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_FIN_WAIT1 4
#define TCP_CLOSE 7
#define TCP_CLOSE_WAIT 8
#define TCP_LAST_ACK 9
#define TCP_LISTEN 10
#define TCP_CHRONO_BUSY 1
#define TCP_CHRONO_RWND_LIMITED 2
#define TCP_CHRONO_SNDBUF_LIMITED 3
#define SOCK_DONE 1 /* of enum sock_flags: a FIN has arrived */
#define MAX_HEALED_BYTES (64 << 20)

/* Values of owner.flow that are not a slot. */
#define NO_SLOT 0
#define OVER 0xffffffff

/* Set before loading. */
const volatile u64 bin_ns = 1000000;
const volatile u32 max_flows = 1;
const volatile u64 tcp_sample_ns = 20000000;
const volatile u32 tick_us = 1000; /* of a jiffy */

/* Slots are handed out from the first on, then those that user space has freed, in the order of `free_slots`. */
u32 next_slot;
u64 freed_slots; /* written by user space */
u64 reused_slots;
u32 next_flow_id;
u32 late; /* written by user space: from now on, what is adopted was missed until now */
u64 merged_bins;
u64 lost_events;
u64 untracked_flows;
u64 healed_bytes;

/* What a socket of the job carries. Children of a listener inherit a copy. */
struct owner {
	u32 flow; /* slot + 1, as long as that slot's holder is `id` */
	u32 id;	  /* of the flow; 0 before its first packet */
	u32 pid;
	u32 refused; /* a packet with payload found no slot */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

/* A ring of slots that user space gives back. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} free_slots SEC(".maps");

/* Flows without a slot, by id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, u32);
	__type(value, struct parked);
} parked_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20); /* half a second of 256 socket ends that are busy both ways in every millisecond */
} bins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} tcp_samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} lives SEC(".maps");

/* A field of the TCP socket, read safely: from 6.18 on the verifier does not let `skb->sk` become a tcp_sock. */
#define TCP_FIELD(sk, field) BPF_CORE_READ((struct tcp_sock *)(sk), field)

/* The peer's FIN takes a sequence number, and TCP counts it as a byte that was received. */
static __always_inline u32 has_fin(struct sock *sk)
{
	return (sk->__sk_common.skc_flags >> SOCK_DONE) & 1;
}

static __always_inline struct flow *flow_at(u32 slot)
{
	return bpf_map_lookup_elem(&flows, &slot);
}

#endif
