// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The bytes of the job's TCP flows, binned in time in the kernel.
 *
 * Packets are counted where they meet the device (after the queueing discipline) and where TCP receives them. A
 * socket of the job carries the number of its flow in socket storage; a packet whose socket carries none is not
 * ours and costs one lookup. Bytes are counted by TCP sequence number, so a packet that no hook saw (timer-driven
 * transmission on some virtual machines) is healed by the next one, or by the acknowledgement that covers it.
 */
#include "../kernel/kernel_types.h"

#include <bpf/bpf_tracing.h>

#include "flow_adoption.h"
#include "packet.h"
#include "process_life.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

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
	if (!sk->sk_bpf_storage)
		return 0; /* a stranger's: the question below costs more */
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (!owner || device->nd_net.net != sk->__sk_common.skc_net.net)
		return 0;
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

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet_received, struct sock *sk, struct sk_buff *skb)
{
	if (!sk->sk_bpf_storage)
		return 0; /* a stranger's: the question below costs more */
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (!owner)
		return 0;
	u64 now = bpf_ktime_get_ns();
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	/* TCP's own notes on the packet: the header itself is often not in this CPU's cache yet. */
	struct tcp_skb_cb *notes = (void *)skb->cb;
	u32 sequence = notes->seq, length = skb->len;
	u32 payload = notes->end_seq - sequence - (notes->tcp_flags & TCP_FLAG_FIN);
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
	if (at_once)
		count_segments(stream, &amount, tcp->segs_in, header_bytes);
	stream->segments += amount.packets;
	if (!stream->started)
		begin_receive(stream, sk);
	if (payload)
		account_receive(stream, &amount, sequence, payload);
	if (now - flow->sampled_ns >= tcp_sample_ns)
		sample_tcp(flow, tcp, now);
	add(flow, slot, RECEIVE, now, &amount);
	heal_transmitted(flow, slot, sk, now, notes->ack_seq, header_bytes);
	return 0;
}

/* The job's process gives up a socket that it came by unseen: the last moment to ask what it has moved. */
static __always_inline void adopt_ending(struct sock *sk, struct tcp_sock *tcp)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	if (sk->sk_lock.owned && bpf_map_lookup_elem(&targets, &pid)) /* held by a process, not by a softirq upon it */
		adopt(sk, tcp, pid, false);
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

/* Whose socket: a connection that the job opens, a listener of the job (its children inherit), and the end. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old_state, int new_state)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new_state == TCP_SYN_SENT || new_state == TCP_LISTEN) {
		u32 pid = bpf_get_current_pid_tgid() >> 32;
		struct owner fresh = { .pid = pid };
		if (!bpf_map_lookup_elem(&targets, &pid))
			return 0;
		struct owner *owner = bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
		if (owner)
			*owner = fresh;
		return 0;
	}
	if (new_state != TCP_CLOSE && new_state != TCP_FIN_WAIT1 && new_state != TCP_LAST_ACK)
		return 0;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (!owner && (old_state == TCP_ESTABLISHED || old_state == TCP_CLOSE_WAIT)) {
		adopt_ending(sk, tcp);
		owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	}
	if (owner && new_state == TCP_CLOSE) {
		end_flow(sk, tcp, owner);
	} else if (owner) { /* no process holds it any more, and if its last packets are lost it outlives the job */
		struct flow *flow = flow_of(owner);
		if (flow)
			tell_totals(flow, tcp, bpf_ktime_get_ns(), 0);
	}
	return 0;
}

/* An accepted socket began with its listener's process; if that one does not hold it, whoever does owns it. */
static __always_inline void confirm_owner(struct flow *flow, const struct owner *owner, u32 holder)
{
	if (!flow->accepted)
		return;
	flow->pid = holder;
	if (holder == owner->pid)
		flow->accepted = 0;
}

/* A socket that is known already is sampled where its last sample is out of date. */
static __always_inline void look_again(const struct owner *owner, struct tcp_sock *tcp, u32 holder)
{
	struct flow *flow = flow_of(owner);

	if (!flow)
		return;
	confirm_owner(flow, owner, holder);
	u64 sampled_ns = flow->sampled_ns, now = bpf_ktime_get_ns();
	tell_totals(flow, tcp, now, 0);
	if (tcp->snd_una != tcp->write_seq || flow->streams[TRANSMIT].last_ns > sampled_ns ||
	    flow->streams[RECEIVE].last_ns > sampled_ns)
		sample_tcp(flow, tcp, now);
}

/* What a process of the job holds: notes the sockets that are not known, and prints the namespaces they are of. */
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
	if (!sk)
		return 0;
	u16 family = sk->__sk_common.skc_family;
	if (family != AF_INET && family != AF_INET6)
		return 0;
	struct {
		u32 netns;
		u32 pid;
	} place = { sk->__sk_common.skc_net.net->ns.inum, pid };
	if (sk->sk_protocol == IPPROTO_MPTCP) {
		if (want_subflows(sk, pid))
			bpf_seq_write(context->meta->seq, &place, sizeof(place));
		return 0;
	}
	u8 state = sk->__sk_common.skc_state;
	struct tcp_sock *tcp = sk->sk_protocol == IPPROTO_TCP ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tcp || state == TCP_CLOSE)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	u64 address = (u64)sk;
	if (owner && !owner->refused) {
		look_again(owner, tcp, pid);
		return 0;
	}
	if (state == TCP_LISTEN || state == TCP_SYN_SENT) {
		struct owner fresh = { .pid = pid };
		bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
		if (state == TCP_LISTEN && want_waiting(tcp, pid))
			bpf_seq_write(context->meta->seq, &place, sizeof(place));
		return 0;
	}
	struct wanted *wanted = bpf_map_lookup_elem(&wanted_sockets, &address);
	if (wanted && wanted->missed && !owner) { /* its namespace cannot be entered: without the lock, then */
		adopt(sk, tcp, pid, false);
		bpf_map_delete_elem(&wanted_sockets, &address);
		return 0;
	}
	want(address, pid, false);
	bpf_seq_write(context->meta->seq, &place, sizeof(place));
	return 0;
}

/* Adopts the sockets that are wanted, of one network namespace. */
SEC("iter/tcp")
int adopt_sockets(struct bpf_iter__tcp *context)
{
	struct sock_common *common = context->sk_common;

	if (!common)
		return 0;
	u64 address = (u64)common;
	struct wanted *found = bpf_map_lookup_elem(&wanted_sockets, &address);
	if (!found)
		return 0;
	struct wanted wanted = *found;
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(common);
	struct sock *sk = (struct sock *)tcp;
	bpf_map_delete_elem(&wanted_sockets, &address);
	if (!tcp)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (owner) {
		if (owner->refused)
			take_up_refused(sk, tcp, owner, 1);
		return 0;
	}
	if (common->skc_state == TCP_LISTEN) { /* of a Multipath TCP listener */
		struct owner fresh = { .pid = wanted.pid };
		bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	} else {
		adopt(sk, tcp, wanted.pid, wanted.waiting);
	}
	return 0;
}
