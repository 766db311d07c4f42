/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What TCP itself says of a flow: what it waits for, what it lost, how much it may send.
 */
#ifndef NETPROF_FLOW_TCP_H
#define NETPROF_FLOW_TCP_H

#include "flow_state.h"

/* One of TCP's clocks in microseconds, as tcp_get_info gives it: what it has counted, and what runs now. */
static __always_inline u64 clock_us(struct tcp_sock *tcp, u32 running, u32 which)
{
	u32 jiffies = tcp->chrono_stat[which - 1];

	if (which == running)
		jiffies += (u32)bpf_jiffies64() - tcp->chrono_start;
	return (u64)jiffies * tick_us;
}

#define NO_RTT 0xffffffff
#define NO_LIMIT (~0UL)

/* A rate that TCP does not pace at (no program, congestion control or fq asks for it, or none is known yet) limits
 * nothing.
 */
static __always_inline void note_pacing(struct tcp_record *record, struct sock *sk)
{
	unsigned long limit = sk->sk_max_pacing_rate, rate = sk->sk_pacing_rate;

	record->pacing_limit_bytes_per_s = limit == NO_LIMIT ? 0 : limit;
	record->pacing_bytes_per_s = !sk->sk_pacing_status || rate == NO_LIMIT ? 0 : rate < limit ? rate : limit;
}

/* Hand a sample to user space. A full ring is no loss: the clocks go on, and the next packet tries again. */
static __always_inline void sample_tcp(struct flow *flow, struct tcp_sock *tcp, u64 now)
{
	struct tcp_record *record = bpf_ringbuf_reserve(&tcp_samples, sizeof(*record), 0);

	if (!record)
		return;
	u32 running = BPF_CORE_READ_BITFIELD(tcp, chrono_type);
	s32 notsent = tcp->write_seq - tcp->snd_nxt;
	record->time_ns = now;
	record->flow_id = flow->id;
	record->retransmits = tcp->total_retrans;
	record->rtt_us = tcp->srtt_us >> 3;
	record->cwnd = tcp->snd_cwnd;
	record->mss_bytes = tcp->mss_cache;
	record->notsent_bytes = notsent > 0 ? notsent : 0;
	record->rwnd_limited_us = clock_us(tcp, running, TCP_CHRONO_RWND_LIMITED);
	record->sndbuf_limited_us = clock_us(tcp, running, TCP_CHRONO_SNDBUF_LIMITED);
	record->busy_us = clock_us(tcp, running, TCP_CHRONO_BUSY) + record->rwnd_limited_us + record->sndbuf_limited_us;
	record->ca_state = BPF_CORE_READ_BITFIELD(&tcp->inet_conn, icsk_ca_state);
	record->dsacked = tcp->dsack_dups;
	record->send_buffer_bytes = ((struct sock *)tcp)->sk_sndbuf;
	record->send_queued_bytes = ((struct sock *)tcp)->sk_wmem_queued;
	note_pacing(record, (struct sock *)tcp);
	u32 min_rtt_us = tcp->rtt_min.s[0].v;
	record->min_rtt_us = min_rtt_us == NO_RTT ? 0 : min_rtt_us;
	record->unacked_bytes = tcp->snd_nxt - tcp->snd_una;
	flow->sampled_ns = now;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

#endif
