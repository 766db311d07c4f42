/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Reading a packet's header and how many packets of the link a socket buffer is.
 */
#ifndef NETPROF_PACKET_H
#define NETPROF_PACKET_H

#include "../kernel/kernel_types.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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
#define TCP_FLAG_RST 0x04
#define TCP_FLAG_ACK 0x10

const volatile bool plain_reads = false; /* this verifier lets us read packet memory like any other (6.17) */

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

/* How many packets of the link one buffer is: segmentation offload, and the merging of what was received. It says so
 * itself; what came in through a virtual machine's device says only how large they were. */
static __always_inline u32 segments_of(struct sk_buff *skb, u32 payload)
{
	unsigned char *shared = skb->head + skb->end;
	unsigned char *count_at = shared + bpf_core_field_offset(struct skb_shared_info, gso_segs);
	unsigned char *size_at = shared + bpf_core_field_offset(struct skb_shared_info, gso_size);
	u16 count = 0, size = 0;

	if (plain_reads)
		count = *(const volatile u16 *)count_at;
	else
		bpf_probe_read_kernel(&count, sizeof(count), count_at);
	if (count)
		return count;
	if (plain_reads)
		size = *(const volatile u16 *)size_at;
	else
		bpf_probe_read_kernel(&size, sizeof(size), size_at);
	return size && payload > size ? (payload + size - 1) / size : 1;
}

/* Is this a TCP header, and this socket's? A tunnel keeps the socket but wraps the packet in another. */
static __always_inline bool is_ours(struct sock *sk, const struct tcp_header *header)
{
	return header->source == bpf_htons(sk->__sk_common.skc_num) &&
	       header->destination == sk->__sk_common.skc_dport;
}

#endif
