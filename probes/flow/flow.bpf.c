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

#include "flow_sequence.h"
#include "flow_tcp.h"
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
	if (now - flow->sampled_ns >= tcp_sample_ns)
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
	u64 now = bpf_ktime_get_ns();
	heal_received(flow, slot, sk, now, tcp->rcv_nxt, 0);
	sample_tcp(flow, tcp, now);
	flow->closed = 1;
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

/* A socket that is known already: a flow without packets is sampled here. */
static __always_inline void look_again(const struct owner *owner, struct tcp_sock *tcp, u32 holder)
{
	if (owner->flow == NO_FLOW_YET || owner->flow == UNTRACKED)
		return;
	struct flow *flow = flow_at(owner->flow - 1);
	if (!flow)
		return;
	confirm_owner(flow, owner, holder);
	sample_tcp(flow, tcp, bpf_ktime_get_ns());
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
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return 0;
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (owner) {
		look_again(owner, tcp, pid);
		return 0;
	}
	struct owner fresh = { .flow = NO_FLOW_YET, .pid = pid };
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
			sample_tcp(flow, tcp, bpf_ktime_get_ns());
		}
	}
	bpf_sk_storage_get(&owners, sk, &fresh, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}
