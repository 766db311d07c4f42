/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What user space and the program at NCCL's network functions say to each other. User space reads the
 * layouts from its type information.
 */
#ifndef NETPROF_NCCL_POSTS_H
#define NETPROF_NCCL_POSTS_H

#define NET_FUNCTIONS 256
#define CONNECTIONS 4096
#define REQUESTS 65536 /* a power of two */

#define POST_SEND 0
#define POST_RECEIVE 1

/* Where a function has its arguments; the first is always the connection. */
struct net_function {
	__u8 direction;
	__u8 size_argument; /* the size itself, or with `counted` a pointer to that many sizes */
	__u8 size_bytes;    /* of one size: 4 or 8 */
	__u8 counted;	    /* the argument that says how many sizes there are; 0: one, the argument itself */
	__u8 data_argument;
	__u8 request_argument; /* a pointer to where the request is written, NULL if it is refused */
	__u8 network;	       /* enum NcclNetwork of the schema */
	__u8 unused;
};

/* What was posted on a connection since it was first seen. */
struct net_totals {
	__u64 bytes;
	__u32 posts;
	__u32 refused;
};

/* A connection, one way: its bin that is filling is what the totals have grown by since `before`. */
struct connection {
	__u64 address;
	__u32 pid;
	__u8 direction;
	__u8 network;
	__u16 function; /* plus one: the one whose calls count */
	__u64 bin_end_ns;
	__u64 first_ns; /* of the bin */
	__u64 last_ns;
	__u64 last_request;
	struct net_totals totals;
};

/* The totals as they were at the end of a bin. */
struct post_record {
	__u32 slot;
	__u32 unused;
	__u64 first_ns;
	__u64 last_ns;
	struct net_totals totals;
};

#endif
