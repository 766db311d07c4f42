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
#include "../kernel/process_ids.h"
#include "../kernel/shared.h"

#include <bpf/bpf_tracing.h>

#include "flow_adoption.h"
#include "flow_count.h"
#include "flow_drops.h"
#include "process_life.h"

SHARED(bin_record);
SHARED(tcp_record);
SHARED(totals_record);
SHARED(drop_record);
SHARED(life_record);

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(packet_sent, struct sk_buff *skb, struct net_device *device)
{
	struct sock *sk = skb->sk;

	if (!sk)
		return 0;
	if (!sk->sk_bpf_storage)
		return 0; /* a stranger's: the question below costs more */
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	if (!owner || device->nd_net.net != sk->__sk_common.skc_net.net)
		return 0;
	return count_sent(skb, device, sk, owner);
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(packet_received, struct sock *sk, struct sk_buff *skb)
{
	if (!sk->sk_bpf_storage)
		return 0; /* a stranger's: the question below costs more */
	struct owner *owner = bpf_sk_storage_get(&owners, sk, 0, 0);
	struct tcp_sock *tcp = owner ? bpf_skc_to_tcp_sock(sk) : NULL;
	if (!tcp)
		return 0;
	return count_received(sk, tcp, skb, owner);
}

/* The job's process gives up a socket that it came by unseen: the last moment to ask what it has moved. */
static __always_inline void adopt_ending(struct sock *sk, struct tcp_sock *tcp)
{
	u32 pid = current_process();
	if (sk->sk_lock.owned && bpf_map_lookup_elem(&targets, &pid)) /* held by a process, not by a softirq upon it */
		adopt(sk, tcp, pid, false);
}

/* Whose socket: a connection that the job opens, a listener of the job (its children inherit), and the end. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old_state, int new_state)
{
	if (sk->sk_protocol != IPPROTO_TCP)
		return 0;
	if (new_state == TCP_SYN_SENT || new_state == TCP_LISTEN) {
		u32 pid = current_process();
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
	if (owner && new_state == TCP_CLOSE)
		end_flow(sk, tcp, owner);
	else if (owner)
		tell_totals_at_close(tcp, owner);
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
	u32 pid = own_pid_namespace ? process_of(task) : task->tgid; /* read plainly: this is for every file */
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
	if (found->ends != common->skc_hash) { /* it is closed: a stranger's has its place in memory */
		bpf_map_delete_elem(&wanted_sockets, &address);
		return 0;
	}
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
