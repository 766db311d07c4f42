/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The few kernel types that the programs read. Only the named fields matter: the loader relocates each access
 * to where the running kernel keeps that field (CO-RE), so no vmlinux.h and no kernel headers are needed.
 */
#ifndef NETPROF_KERNEL_TYPES_H
#define NETPROF_KERNEL_TYPES_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		u8 u6_addr8[16];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	unsigned int skc_hash;
	__be16 skc_dport;
	u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

typedef struct {
	int owned;
} socket_lock_t;

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct bpf_local_storage;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	refcount_t sk_wmem_alloc;
	struct {
		int len;
	} sk_backlog;
	u16 sk_protocol;
	int sk_sndbuf;
	int sk_wmem_queued;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
	struct bpf_local_storage *sk_bpf_storage;
};

struct request_sock {
	struct request_sock *dl_next;
	struct sock *sk;
};

struct request_sock_queue {
	struct request_sock *rskq_accept_head;
};

struct tcp_congestion_ops {
	char name[16];
};

struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
	struct request_sock_queue icsk_accept_queue;
	u8 icsk_ca_state : 5;
};

struct list_head {
	struct list_head *next;
};

struct mptcp_sock {
	struct list_head conn_list;
};

struct mptcp_subflow_context {
	struct list_head node;
	struct sock *tcp_sock;
};

struct minmax_sample {
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct minmax rtt_min;
	u32 snd_wnd;
	u32 max_window;
	u32 rcv_nxt;
	u32 rcv_wup;
	u32 rcv_wnd;
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 snd_cwnd;
	u32 srtt_us;
	u32 mss_cache;
	u16 advmss;
	u32 total_retrans;
	u32 dsack_dups;
	u32 chrono_start;
	u32 chrono_stat[3];
	u8 chrono_type : 2;
	u64 bytes_received;
	u64 bytes_sent;
	u64 bytes_retrans;
	u32 segs_in;
	u32 segs_out;
};

struct net_device {
	char name[16];
	int ifindex;
	unsigned int mtu;
	unsigned short hard_header_len;
	possible_net_t nd_net;
};

struct sk_buff {
	struct sock *sk;
	struct net_device *dev;
	unsigned int len;
	unsigned int data_len;
	int skb_iif;
	u16 transport_header;
	u16 mac_header;
	unsigned int end; /* sk_buff_data_t: an offset on 64-bit kernels */
	unsigned char *head;
	unsigned char *data;
	char cb[48];
};

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u8 tcp_flags; /* 16 bits from 6.17 on; the loader widens the read */
	u32 ack_seq;
};

struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};

struct signal_struct {
	atomic_t live;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* one for each namespace, the initial one first */
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
};

struct file;

struct socket {
	struct sock *sk;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

#endif
