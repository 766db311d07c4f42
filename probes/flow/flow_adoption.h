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

#include "flow_past.h"

#define MOST_WAITING 512
#define MOST_SUBFLOWS 64

struct wanted {
	u32 pid;
	u32 ends;    /* the kernel's hash of the addresses and ports of its ends */
	u16 waiting; /* in the accept queue of a listener of that process */
	u16 missed;  /* a look through all TCP sockets of its namespace did not find it */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* Sockets that are to be adopted, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, u64);
	__type(value, struct wanted);
} wanted_sockets SEC(".maps");

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

static __always_inline void want(u64 address, u32 pid, bool waiting)
{
	struct wanted wanted = { .pid = pid, .waiting = waiting };

	wanted.ends = BPF_CORE_READ((struct sock_common *)address, skc_hash);
	if (address)
		bpf_map_update_elem(&wanted_sockets, &address, &wanted, BPF_NOEXIST);
}

/* A walk along a list of connections, all of them to be wanted. */
struct walk {
	u64 next;
	u64 end;
	u32 pid;
	bool found;
};

/* Want the next connection that waits to be accepted. Returns 0 if there was one. */
static long want_waiting_one(u32 number, struct walk *walk)
{
	struct request_sock *waiting = (void *)walk->next;

	if (!waiting)
		return 1;
	want((u64)BPF_CORE_READ(waiting, sk), walk->pid, true);
	walk->next = (u64)BPF_CORE_READ(waiting, dl_next);
	walk->found = true;
	return 0;
}

/* Want the next TCP connection of a Multipath TCP connection. Returns 0 if there was one. */
static long want_subflow(u32 number, struct walk *walk)
{
	if (!walk->next || walk->next == walk->end)
		return 1;
	struct mptcp_subflow_context *subflow =
		(void *)(walk->next - bpf_core_field_offset(struct mptcp_subflow_context, node));
	want((u64)BPF_CORE_READ(subflow, tcp_sock), walk->pid, false);
	walk->next = (u64)BPF_CORE_READ(subflow, node.next);
	walk->found = true;
	return 0;
}

/* Go on until `step` returns 1. From Linux 5.17 on the kernel loops: the verifier looks at a step once, not at each. */
#define WALK(step, most, walk)                                                                                         \
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_loop)) {                                             \
		bpf_loop(most, step, walk, 0);                                                                         \
	} else {                                                                                                       \
		for (int i = 0; i < (most); i++)                                                                       \
			if (step(i, walk))                                                                             \
				break;                                                                                 \
	}

/* Want the connections that wait to be accepted: they began before their listener was known. */
static __always_inline bool want_waiting(struct tcp_sock *tcp, u32 pid)
{
	struct walk walk = { .next = (u64)tcp->inet_conn.icsk_accept_queue.rskq_accept_head, .pid = pid };

	WALK(want_waiting_one, MOST_WAITING, &walk);
	return walk.found;
}

/* Want the TCP connections of which a Multipath TCP connection is made. */
static __always_inline bool want_subflows(struct sock *sk, u32 pid)
{
	struct mptcp_sock *mptcp = (void *)sk;
	struct walk walk = { .pid = pid };

	if (!bpf_core_type_exists(struct mptcp_sock))
		return false;
	walk.end = (u64)sk + bpf_core_field_offset(struct mptcp_sock, conn_list);
	walk.next = (u64)BPF_CORE_READ(mptcp, conn_list.next);
	WALK(want_subflow, MOST_SUBFLOWS, &walk);
	return walk.found;
}

#endif
