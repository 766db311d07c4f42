/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What user space and the mark program say to each other. records.py packs the same rows.
 */
#ifndef NETPROF_MARKS_H
#define NETPROF_MARKS_H

#define MARK_ARGUMENTS 3
#define MARK_SPECS 1024 /* marks of all frameworks together */
#define MARKS_A_PLACE 4 /* rows that one probe records, 16 bits each in its attach cookie */

enum mark_source {
	MARK_NONE = 0,
	MARK_REGISTER = 1, /* the function's n-th argument itself; all ones where the `extra`-th is `offset` */
	MARK_MEMORY = 2,   /* `size` bytes at the n-th argument plus `offset` */
	MARK_CHAIN = 3,    /* `size` bytes at the pointer there, plus `extra` */
	MARK_PAIR = 4,     /* the lowest byte of the n-th argument, and above it the `extra`-th argument */
};

struct mark_argument {
	__u8 source;
	__u8 number; /* of the function's argument, from 1; 0: none */
	__u8 size;   /* bytes: 1, 2, 4 or 8 */
	__u8 extra;
	__s32 offset;
};

struct mark_spec {
	__u8 kind;
	__u8 stack; /* whether an argument beyond the sixth is wanted */
	__u8 unused[2];
	struct mark_argument arguments[MARK_ARGUMENTS];
};

struct mark_record {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 pid;
	__u32 tid;
	__u8 kind;
	__u8 unreadable; /* bit n: arguments[n] could not be read and holds 0 */
	__u16 row; /* of `specs` */
	__u8 unused[4];
	__u64 arguments[MARK_ARGUMENTS];
};

#endif
