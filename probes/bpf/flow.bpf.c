// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of the job's TCP flows, binned in time in the kernel.
 *
 * Packets are counted where they meet the device (after the queueing discipline) and where TCP receives them. A
 * socket of the job carries the number of its flow in socket storage; a packet whose socket carries none is not
 * ours and costs one lookup. Bytes are counted by TCP sequence number, so a packet that no hook saw (timer-driven
 * transmission on some virtual machines) is healed by the next one, or by the acknowledgement that covers it.
 */
#include <stdbool.h>

#include "kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "flow.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_LISTEN 10
#define SOCK_DONE 1 /* of enum sock_flags: a FIN has arrived */
#define MAX_HEALED_BYTES (64 << 20)

/* Values of owner.flow that are not a slot. */
#define NO_FLOW_YET 0
#define UNTRACKED 0xffffffff

/* Set before loading. */
const volatile u64 bin_ns = 1000000;
const volatile u32 max_flows = 1;
const volatile bool plain_reads = false; /* this verifier lets us read packet memory like any other (6.17) */

u32 next_slot;
u32 next_flow_id;
u64 merged_bins;
u64 lost_events;
u64 untracked_flows;
u64 healed_bytes;

/* What a socket of the job carries. Children of a listener inherit a copy. */
struct owner {
	u32 flow; /* slot + 1 */
	u32 pid;
};

/* The first bytes of a TCP header. */
struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledged;
	u8 offset; /* in the high four bits, in words */
	u8 flags;
};

#define TCP_FLAG_FIN 0x01
#define TCP_FLAG_SYN 0x02

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct flow);
} flows SEC(".maps");

/* Slots that user space gives back. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} bins SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 10);
} lives SEC(".maps");

/* The processes of the job. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} targets SEC(".maps");

/* A field of the TCP socket, read safely: from 6.18 on the verifier does not let `skb->sk` become a tcp_sock. */
#define TCP_FIELD(sk, field) BPF_CORE_READ((struct tcp_sock *)(sk), field)

static __always_inline struct flow *flow_at(u32 slot)
{
	return bpf_map_lookup_elem(&flows, &slot);
}

/* Take a free slot. Returns slot + 1, or UNTRACKED. */
static __always_inline u32 take_slot(void)
{
	u32 slot;
	if (bpf_map_pop_elem(&free_slots, &slot) == 0)
		return slot + 1;
	if (next_slot < max_flows) {
		slot = __sync_fetch_and_add(&next_slot, 1);
		if (slot < max_flows)
			return slot + 1;
	}
	__sync_fetch_and_add(&untracked_flows, 1);
	return UNTRACKED;
}

static __always_inline void reset_stream(struct stream *stream)
{
	__builtin_memset(stream, 0, sizeof(*stream));
}

static __always_inline void identify(struct flow *flow, struct sock *sk, u32 pid)
{
	struct sock_common *common = &sk->__sk_common;

	flow->pid = pid;
	flow->family = common->skc_family;
	flow->netns = common->skc_net.net->ns.inum;
	flow->local_port = common->skc_num;
	flow->remote_port = bpf_ntohs(common->skc_dport);
	flow->interface = 0;
	flow->device[0] = 0;
	flow->closed = 0;
	flow->sampled_ns = 0;
	flow->stuck_bins[TRANSMIT] = flow->stuck_bins[RECEIVE] = 0;
	__builtin_memset(flow->local_addr, 0, 16);
	__builtin_memset(flow->remote_addr, 0, 16);
	if (flow->family == AF_INET6) {
		BPF_CORE_READ_INTO(&flow->local_addr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&flow->remote_addr, sk, __sk_common.skc_v6_daddr);
	} else {
		*(u32 *)flow->local_addr = common->skc_rcv_saddr;
		*(u32 *)flow->remote_addr = common->skc_daddr;
	}
	reset_stream(&flow->streams[TRANSMIT]);
	reset_stream(&flow->streams[RECEIVE]);
	flow->id = __sync_fetch_and_add(&next_flow_id, 1) + 1;
}

/* Everything that this connection ever received counts. */
static __always_inline void begin_receive(struct stream *stream, struct sock *sk)
{
	stream->next_sequence = TCP_FIELD(sk, rcv_nxt) - (u32)TCP_FIELD(sk, bytes_received);
	stream->started = 1;
}

/* A flow that was born under our eyes: every byte of its life counts. */
static __always_inline struct flow *new_flow(struct sock *sk, struct owner *owner)
{
	u32 taken = take_slot();
	if (__sync_val_compare_and_swap(&owner->flow, NO_FLOW_YET, taken) != NO_FLOW_YET || taken == UNTRACKED)
		return NULL;
	struct flow *flow = flow_at(taken - 1);
	if (!flow)
		return NULL;
	flow->known_at_attach = 0;
	flow->accepted = sk->__sk_common.skc_state != TCP_SYN_SENT;
	identify(flow, sk, owner->pid);
	begin_receive(&flow->streams[RECEIVE], sk);
	flow->streams[TRANSMIT].next_sequence = TCP_FIELD(sk, snd_una);
	flow->streams[TRANSMIT].started = 1;
	return flow;
}

/* Hand the stream's finished bin to user space and begin the next; false when the ring is full. */
static __always_inline bool hand_over(struct flow *flow, struct stream *stream, u32 slot, u32 direction, u64 bin)
{
	struct bin_record *record = bpf_ringbuf_reserve(&bins, sizeof(*record), 0);
	if (!record) {
		if (flow->stuck_bins[direction & 1] != bin) {
			flow->stuck_bins[direction & 1] = bin;
			__sync_fetch_and_add(&merged_bins, 1);
		}
		return false;
	}
	record->flow_id = flow->id;
	record->slot = slot;
	record->direction = direction;
	record->bin = stream->bin;
	record->payload_bytes = stream->payload_bytes;
	record->wire_bytes = stream->wire_bytes;
	record->retransmitted_bytes = stream->retransmitted_bytes;
	record->first_ns = stream->first_ns;
	record->last_ns = stream->last_ns;
	record->packets = stream->packets;
	stream->bin = bin;
	stream->payload_bytes = stream->wire_bytes = stream->retransmitted_bytes = 0;
	stream->packets = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

static __always_inline void sample_tcp(struct flow *flow, struct tcp_sock *tcp, u64 now)
{
	flow->retransmits = tcp->total_retrans;
	flow->rtt_us = tcp->srtt_us >> 3;
	flow->cwnd = tcp->snd_cwnd;
	flow->mss_bytes = tcp->mss_cache;
	flow->sampled_ns = now;
}

struct amount {
	u32 payload;
	u32 retransmitted;
	u32 wire;
	u32 packets;
};

static __always_inline void add(struct flow *flow, u32 slot, u32 direction, u64 now, const struct amount *amount)
{
	struct stream *stream = &flow->streams[direction];
	u64 bin = now / bin_ns;

	if (stream->bin != bin) {
		if (!stream->packets)
			stream->bin = bin;
		else
			hand_over(flow, stream, slot, direction, bin);
	}
	if (!stream->packets)
		stream->first_ns = now;
	stream->last_ns = now;
	stream->payload_bytes += amount->payload;
	stream->retransmitted_bytes += amount->retransmitted;
	stream->wire_bytes += amount->wire;
	stream->packets += amount->packets;
}

/* Add `bytes` that went by unseen, as full segments with headers like this packet's. */
static __always_inline void heal(struct sock *sk, struct amount *amount, u32 bytes, u32 header_bytes, bool payload)
{
	u32 segment = TCP_FIELD(sk, mss_cache);
	u32 packets = segment ? (bytes + segment - 1) / segment : 1;

	if (payload)
		amount->payload += bytes;
	amount->wire += bytes + packets * header_bytes;
	amount->packets += packets;
	__sync_fetch_and_add(&healed_bytes, bytes);
}

static __always_inline bool sane_gap(s32 gap)
{
	return gap > 0 && gap <= MAX_HEALED_BYTES;
}

/* Transmit: what of [sequence, sequence + payload) is new, what was sent before. */
static __always_inline void account_transmit(struct flow *flow, struct sock *sk, struct amount *amount, u32 sequence,
					     u32 payload, u32 header_bytes)
{
	struct stream *stream = &flow->streams[TRANSMIT];
	u32 end = sequence + payload;

	if (!stream->started) {
		stream->next_sequence = sequence;
		stream->started = 1;
	}
	s32 ahead = (s32)(end - stream->next_sequence);
	if (ahead <= 0) {
		amount->retransmitted = payload;
		return;
	}
	s32 gap = (s32)(sequence - stream->next_sequence);
	if (gap <= 0) {
		amount->payload = ahead;
		amount->retransmitted = payload - ahead;
	} else {
		amount->payload = payload;
		if (flow->known_at_attach && (s32)(flow->attach_sequence - stream->next_sequence) > 0)
			gap = (s32)(sequence - flow->attach_sequence); /* the rest left before the attach */
		if (sane_gap(gap))
			heal(sk, amount, gap, header_bytes, true);
	}
	stream->next_sequence = end;
}

/* Receive: the same by arrival; what is jumped over may still arrive late. */
static __always_inline void account_receive(struct stream *stream, struct amount *amount, u32 sequence, u32 payload)
{
	u32 end = sequence + payload;
	s32 ahead = (s32)(end - stream->next_sequence);

	if (ahead <= 0) {
		amount->retransmitted = payload;
		stream->holes_bytes -= payload < stream->holes_bytes ? payload : stream->holes_bytes;
		return;
	}
	s32 gap = (s32)(sequence - stream->next_sequence);
	amount->payload = ahead;
	if (gap > 0)
		stream->holes_bytes += gap;
	else
		amount->retransmitted = payload - ahead;
	stream->next_sequence = end;
}

/* The acknowledgement on a packet we send says what has arrived: heal what no hook saw arriving. */
static __always_inline void heal_received(struct flow *flow, u32 slot, struct sock *sk, u64 now, u32 acknowledged,
					  u32 header_bytes)
{
	struct stream *stream = &flow->streams[RECEIVE];
	struct amount amount = {};
	u32 fin = (sk->__sk_common.skc_flags >> SOCK_DONE) & 1; /* the peer's FIN takes a number */
	s32 gap = (s32)(acknowledged - fin - stream->next_sequence);

	if (gap < 0 || (gap == 0 && !stream->holes_bytes))
		return;
	if (stream->holes_bytes) {
		heal(sk, &amount, stream->holes_bytes, header_bytes, false);
		stream->holes_bytes = 0;
	}
	if (sane_gap(gap)) {
		heal(sk, &amount, gap, header_bytes, true);
		stream->next_sequence += gap;
	}
	add(flow, slot, RECEIVE, now, &amount);
}

/* The acknowledgement on a packet we receive says what has left: heal what no hook saw leaving. */
static __always_inline void heal_transmitted(struct flow *flow, u32 slot, struct sock *sk, u64 now, u32 acknowledged,
					     u32 header_bytes)
{
	struct stream *stream = &flow->streams[TRANSMIT];
	struct amount amount = {};
	s32 gap = (s32)(acknowledged - stream->next_sequence);

	if (!stream->started || !sane_gap(gap))
		return;
	if (flow->known_at_attach && (s32)(flow->attach_sequence - stream->next_sequence) > 0) {
		gap = (s32)(acknowledged - flow->attach_sequence);
		if (!sane_gap(gap))
			return;
	}
	heal(sk, &amount, gap, header_bytes, true);
	stream->next_sequence = acknowledged;
	add(flow, slot, TRANSMIT, now, &amount);
}

/* Bytes from one kernel address to another; in 64 bits, since some verifiers know the operands as pointers. */
static __always_inline u32 distance(const void *from, const void *to)
{
	u64 bytes = (u64)to - (u64)from;
	asm volatile("" : "+r"(bytes));
	return bytes;
}

static __always_inline bool read_header(struct tcp_header *header, unsigned char *at)
{
	if (!plain_reads)
		return bpf_probe_read_kernel(header, sizeof(*header), at) == 0;
	const volatile struct tcp_header *plain = (const volatile void *)at;
	header->source = plain->source;
	header->destination = plain->destination;
	header->sequence = plain->sequence;
	header->acknowledged = plain->acknowledged;
	header->offset = plain->offset;
	header->flags = plain->flags;
	return true;
}

/* How many packets of the link one buffer is: segmentation offload, and the merging of what was received. */
static __always_inline u32 segments_of(struct sk_buff *skb)
{
	unsigned char *at = skb->head + skb->end + bpf_core_field_offset(struct skb_shared_info, gso_segs);
	u16 segments = 0;

	if (plain_reads)
		segments = *(const volatile u16 *)at;
	else
		bpf_probe_read_kernel(&segments, sizeof(segments), at);
	return segments ? segments : 1;
}

/* Is this a TCP header, and this socket's? A tunnel keeps the socket but wraps the packet in another. */
static __always_inline bool is_ours(struct sock *sk, const struct tcp_header *header)
{
	return header->source == bpf_htons(sk->__sk_common.skc_num) &&
	       header->destination == sk->__sk_common.skc_dport;
}

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
	bpf_probe_read_kernel_str(flow->device, sizeof(flow->device), device->name);
	return true;
}

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(packet_sent, struct sk_buff *skb, struct net_device *device)
{
	struct sock *sk = skb->sk;
	struct tcp_header header;

	if (!sk)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (!owner || owner->flow == UNTRACKED || device->nd_net.net != sk->__sk_common.skc_net.net)
		return 0;
	u64 now = bpf_ktime_get_ns();
	unsigned char *transport = skb->head + skb->transport_header;
	if (!read_header(&header, transport) || !is_ours(sk, &header))
		return 0;
	struct flow *flow = owner->flow ? flow_at(owner->flow - 1) : new_flow(sk, owner);
	if (!flow)
		return 0;
	u32 slot = owner->flow - 1;
	u32 header_bytes = distance(skb->data, transport) + (header.offset >> 4) * 4;
	u32 length = skb->len;
	u32 payload = length > header_bytes ? length - header_bytes : 0;
	u32 sequence = bpf_ntohl(header.sequence);
	if (!right_device(flow, device, sequence, payload))
		return 0;
	struct amount amount = { .wire = length, .packets = 1 };
	if (length > device->mtu + device->hard_header_len) {
		amount.packets = segments_of(skb);
		amount.wire += (amount.packets - 1) * header_bytes;
	}
	if (header.flags & TCP_FLAG_SYN) {
		flow->streams[TRANSMIT].next_sequence = sequence + 1;
		flow->streams[TRANSMIT].started = 1;
		flow->streams[RECEIVE].started = 0;
	} else {
		if (payload || header.flags & TCP_FLAG_FIN)
			account_transmit(flow, sk, &amount, sequence, payload, header_bytes);
		if (!flow->streams[RECEIVE].started)
			begin_receive(&flow->streams[RECEIVE], sk);
		else
			heal_received(flow, slot, sk, now, bpf_ntohl(header.acknowledged), header_bytes);
	}
	add(flow, slot, TRANSMIT, now, &amount);
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet_received, struct sock *sk, struct sk_buff *skb)
{
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);

	if (!owner || owner->flow == UNTRACKED)
		return 0;
	u64 now = bpf_ktime_get_ns();
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	struct flow *flow = owner->flow ? flow_at(owner->flow - 1) : new_flow(sk, owner);
	if (!flow || !tcp)
		return 0;
	u32 slot = owner->flow - 1;
	struct stream *stream = &flow->streams[RECEIVE];
	/* TCP's own notes on the packet: the header itself is often not in this CPU's cache yet. */
	struct tcp_skb_cb *notes = (void *)skb->cb;
	u32 sequence = notes->seq, length = skb->len;
	u32 payload = notes->end_seq - sequence - (notes->tcp_flags & TCP_FLAG_FIN);
	u32 lower_bytes = distance(skb->head, skb->data) - skb->mac_header;
	u32 header_bytes = lower_bytes + length - payload;
	struct amount amount = { .wire = length + lower_bytes, .packets = 1 };

	if (payload == 0 || payload > tcp->advmss) { /* merged on the way or in the backlog; two small ones go unnoticed */
		amount.packets = segments_of(skb);
		amount.wire += (amount.packets - 1) * header_bytes;
	}
	if (!stream->started)
		begin_receive(stream, sk);
	if (payload)
		account_receive(stream, &amount, sequence, payload);
	if (stream->bin != now / bin_ns)
		sample_tcp(flow, tcp, now);
	add(flow, slot, RECEIVE, now, &amount);
	heal_transmitted(flow, slot, sk, now, notes->ack_seq, header_bytes);
	return 0;
}

/* Whose socket: a connection that the job opens, a listener of the job (its children inherit), and the end. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old_state, int new_state)
{
	if (new_state == TCP_SYN_SENT || new_state == TCP_LISTEN) {
		u32 pid = bpf_get_current_pid_tgid() >> 32;
		struct owner fresh = { .flow = NO_FLOW_YET, .pid = pid };
		if (sk->sk_protocol != IPPROTO_TCP || !bpf_map_lookup_elem(&targets, &pid))
			return 0;
		struct owner *owner = bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
		if (owner) {
			owner->flow = NO_FLOW_YET;
			owner->pid = pid;
		}
		return 0;
	}
	if (new_state != TCP_CLOSE)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!owner || !tcp || owner->flow == NO_FLOW_YET || owner->flow == UNTRACKED)
		return 0;
	u32 slot = owner->flow - 1;
	struct flow *flow = flow_at(slot);
	owner->flow = UNTRACKED;
	if (!flow)
		return 0;
	heal_received(flow, slot, sk, bpf_ktime_get_ns(), tcp->rcv_nxt, 0);
	flow->closed = 1;
	return 0;
}

/* An accepted socket began with its listener's process; if that one does not hold it, whoever does owns it. */
static __always_inline void confirm_owner(const struct owner *owner, u32 holder)
{
	if (owner->flow == NO_FLOW_YET || owner->flow == UNTRACKED)
		return;
	struct flow *flow = flow_at(owner->flow - 1);
	if (!flow || !flow->accepted)
		return;
	flow->pid = holder;
	if (holder == owner->pid)
		flow->accepted = 0;
}

/* Sockets older than the attach, and the true owner of accepted ones. */
SEC("iter/task_file")
int find_sockets(struct bpf_iter__task_file *context)
{
	struct task_struct *task = context->task;
	struct file *file = context->file;

	if (!task || !file)
		return 0;
	u32 pid = task->tgid;
	if (!bpf_map_lookup_elem(&targets, &pid))
		return 0;
	struct socket *socket = bpf_sock_from_file(file);
	struct sock *sk = socket ? socket->sk : NULL;
	if (!sk || sk->sk_protocol != IPPROTO_TCP)
		return 0;
	u16 family = sk->__sk_common.skc_family;
	u8 state = sk->__sk_common.skc_state;
	if ((family != AF_INET && family != AF_INET6) || state == TCP_CLOSE)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (owner) {
		confirm_owner(owner, pid);
		return 0;
	}
	struct owner fresh = { .flow = NO_FLOW_YET, .pid = pid };
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	if (state != TCP_LISTEN && state != TCP_SYN_SENT) {
		fresh.flow = take_slot();
		struct flow *flow = fresh.flow == UNTRACKED ? NULL : flow_at(fresh.flow - 1);
		if (flow) {
			flow->known_at_attach = 1;
			flow->accepted = 0;
			identify(flow, sk, pid);
			flow->attach_sequence = tcp->snd_nxt;
			flow->streams[RECEIVE].next_sequence = tcp->rcv_nxt;
			flow->streams[RECEIVE].started = 1;
		}
	}
	bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}

static __always_inline void tell(u32 kind, u32 pid, u32 tid, u64 argument)
{
	struct life_record *record = bpf_ringbuf_reserve(&lives, sizeof(*record), 0);
	if (!record) {
		__sync_fetch_and_add(&lost_events, 1);
		return;
	}
	record->time_ns = bpf_ktime_get_ns();
	record->pid = pid;
	record->tid = tid;
	record->kind = kind;
	record->padding = 0;
	record->arguments[0] = argument;
	record->arguments[1] = record->arguments[2] = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* A process that the job forks belongs to the job. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(process_forked, struct task_struct *parent, struct task_struct *child)
{
	u32 parent_pid = parent->tgid, child_pid = child->tgid, one = 1;
	if (parent_pid == child_pid || !bpf_map_lookup_elem(&targets, &parent_pid))
		return 0;
	bpf_map_update_elem(&targets, &child_pid, &one, BPF_ANY);
	tell(LIFE_FORK, parent_pid, parent->pid, child_pid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_executed, struct task_struct *task)
{
	u32 pid = task->tgid;
	if (bpf_map_lookup_elem(&targets, &pid))
		tell(LIFE_EXEC, pid, task->pid, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(process_exited, struct task_struct *task)
{
	u32 pid = task->tgid;
	if (!bpf_map_lookup_elem(&targets, &pid) || task->signal->live.counter > 0)
		return 0;
	bpf_map_delete_elem(&targets, &pid);
	tell(LIFE_EXIT, pid, task->pid, 0);
	return 0;
}
