/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What user space and the program say to each other. That reads the layout from its type information.
 */
#ifndef NETPROF_THREADS_H
#define NETPROF_THREADS_H

#if defined(__TARGET_ARCH_x86)
#define CALL_POLL 7
#define CALL_PPOLL 271
#define CALL_SELECT 23
#define CALL_PSELECT 270
#define CALL_SLEEP 35
#else
#define CALL_POLL -2 /* arm64 has only ppoll and pselect6 */
#define CALL_PPOLL 73
#define CALL_SELECT -2
#define CALL_PSELECT 72
#define CALL_SLEEP 101
#endif

/* The last wait of a thread, handed over as a record when the next one begins. CLOCK_MONOTONIC; since 0: none yet,
 * until 0: it still waits.
 */
struct blocked {
	__u64 since_ns;
	__u64 until_ns;
	__u64 last_ns; /* when the last of the waits began that it is made of */
	__u32 pid;
	__u32 tid;
	__s32 call;	 /* the system call that it is in, -1: none */
	__u16 file_type; /* of its first argument, as in st_mode; 0: that is no descriptor */
	__u16 runnable;	 /* 1: it waits for a CPU, 2: it is stopped */
};

#endif
