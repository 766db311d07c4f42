// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The same accounting for kernels without type information: no typed tracepoints, no socket storage, no iterators.
 *
 * What a packet's programs look at is copied first, and flows are known by the address of their socket. Sockets that
 * the job holds already are found by user space, which names them by their cookie and says what TCP had moved; each is
 * adopted with the next packet that it receives, when TCP's numbers are of one moment. By sequence number, what passed
 * in between is counted then.
 */
#define UNTYPED
#include "../kernel/kernel_types.h"

#include <bpf/bpf_tracing.h>

#include "flow_count.h"
#define TRACEPOINT "raw_tp/"
#include "process_life.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOCKET_BYTES 4096
#define DEVICE_BYTES 4096
#define BUFFER_BYTES 512
#define TCP_SYN_RECV 3

/* Copies, on each CPU, apart for each program: one may interrupt another. */
struct copies {
	unsigned char socket[SOCKET_BYTES];
	unsigned char device[DEVICE_BYTES];
	unsigned char buffer[BUFFER_BYTES];
};

enum { OF_SENT, OF_RECEIVED, OF_STATE, PROGRAMS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, u32);
	__type(value, struct copies);
} copies SEC(".maps");

/* By the socket's address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 18);
	__type(key, u64);
	__type(value, struct owner);
} owners SEC(".maps");

struct place {
	u32 netns;
	u32 port;
};

/* Where processes of the job listen. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct place);
	__type(value, u32);
} listeners SEC(".maps");

/* What user space found: a socket that is to be adopted, by its cookie. */
struct found {
	struct adoption adoption;
	u32 pid;
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, u64);
	__type(value, struct found);
} found_sockets SEC(".maps");

u64 to_adopt; /* written by user space: how many it named; while none is left a stranger's packet costs one lookup */
u64 adopted;

static __always_inline struct copies *copies_of(u32 program)
{
	return bpf_map_lookup_elem(&copies, &program);
}

#define COPY(into, type, from) (bpf_probe_read_kernel(into, bpf_core_type_size(type), from) == 0)

static __always_inline struct place place_of(struct sock *sk)
{
	struct place place = { BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum), BPF_CORE_READ(sk, __sk_common.skc_num) };
	return place;
}

/* Adopt a socket that user space has named. TCP's totals and sequence numbers are those of now; the past ends earlier. */
static __noinline struct owner *adopt_found(u64 address, struct tcp_sock *tcp)
{
	struct sock *sk = (void *)tcp;
	u64 cookie = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
	struct found *found = bpf_map_lookup_elem(&found_sockets, &cookie);
	struct parked past = {};

	if (!found)
		return NULL;
	struct owner fresh = { .pid = found->pid, .id = __sync_fetch_and_add(&next_flow_id, 1) + 1 };
	past.adoption = found->adoption;
	past.next_sequence[TRANSMIT] =
		tcp->snd_nxt - (u32)(tcp->bytes_sent - tcp->bytes_retrans) + (u32)past.adoption.sent_bytes;
	past.next_sequence[RECEIVE] = tcp->rcv_nxt - (u32)tcp->bytes_received + (u32)past.adoption.received_bytes;
	past.started[TRANSMIT] = past.started[RECEIVE] = STARTED;
	past.segments = past.adoption.received_packets;
	bpf_map_delete_elem(&found_sockets, &cookie);
	__sync_fetch_and_add(&adopted, 1);
	if (bpf_map_update_elem(&parked_flows, &fresh.id, &past, BPF_ANY))
		return NULL;
	bpf_map_update_elem(&owners, &address, &fresh, BPF_ANY);
	return bpf_map_lookup_elem(&owners, &address);
}

SEC("raw_tp/net_dev_start_xmit")
int BPF_PROG(packet_sent, struct sk_buff *skb, struct net_device *device)
{
	struct sock *sk = BPF_CORE_READ(skb, sk);
	u64 address = (u64)sk;
	struct owner *owner = sk ? bpf_map_lookup_elem(&owners, &address) : NULL;
	struct copies *copy = owner ? copies_of(OF_SENT) : NULL;

	if (!copy || BPF_CORE_READ(device, nd_net.net) != BPF_CORE_READ(sk, __sk_common.skc_net.net))
		return 0;
	if (!COPY(copy->buffer, struct sk_buff, skb) || !COPY(copy->device, struct net_device, device) ||
	    !COPY(copy->socket, struct tcp_sock, sk))
		return 0;
	return count_sent((void *)copy->buffer, (void *)copy->device, (void *)copy->socket, owner);
}

SEC("raw_tp/tcp_probe")
int BPF_PROG(packet_received, struct sock *sk, struct sk_buff *skb)
{
	u64 address = (u64)sk;
	struct owner *owner = bpf_map_lookup_elem(&owners, &address);

	if (!owner && adopted >= to_adopt)
		return 0;
	struct copies *copy = copies_of(OF_RECEIVED);
	if (!copy || !COPY(copy->buffer, struct sk_buff, skb) || !COPY(copy->socket, struct tcp_sock, sk))
		return 0;
	if (!owner)
		owner = adopt_found(address, (void *)copy->socket);
	if (!owner)
		return 0;
	return count_received((void *)copy->socket, (void *)copy->socket, (void *)copy->buffer, owner);
}

static __always_inline void own(u64 address, u32 pid)
{
	struct owner fresh = { .pid = pid };
	bpf_map_update_elem(&owners, &address, &fresh, BPF_ANY);
}

/* Whose socket: a connection that the job opens, one that a listener of the job accepts, and the end. */
SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old_state, int new_state)
{
	u32 pid = current_process(), *listener;
	u64 address = (u64)sk;
	struct place place;

	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	if (new_state == TCP_SYN_SENT || new_state == TCP_LISTEN) {
		if (!bpf_map_lookup_elem(&targets, &pid))
			return 0;
		place = place_of(sk);
		if (new_state == TCP_LISTEN)
			bpf_map_update_elem(&listeners, &place, &pid, BPF_ANY);
		else
			own(address, pid);
	} else if (old_state == TCP_SYN_RECV && new_state == TCP_ESTABLISHED) {
		place = place_of(sk);
		listener = bpf_map_lookup_elem(&listeners, &place);
		if (listener)
			own(address, *listener);
	} else if (new_state == TCP_CLOSE || new_state == TCP_FIN_WAIT1 || new_state == TCP_LAST_ACK) {
		place = place_of(sk);
		if (old_state == TCP_LISTEN)
			bpf_map_delete_elem(&listeners, &place);
		struct owner *owner = bpf_map_lookup_elem(&owners, &address);
		struct copies *copy = owner ? copies_of(OF_STATE) : NULL;
		bool is_copied = copy && COPY(copy->socket, struct tcp_sock, sk);
		if (is_copied && new_state == TCP_CLOSE)
			end_flow((void *)copy->socket, (void *)copy->socket, owner);
		else if (is_copied)
			tell_totals_at_close((void *)copy->socket, owner);
		if (new_state == TCP_CLOSE)
			bpf_map_delete_elem(&owners, &address);
	}
	return 0;
}
