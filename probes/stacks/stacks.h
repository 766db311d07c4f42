/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * What the program says to user space.
 */
#ifndef NETPROF_STACKS_H
#define NETPROF_STACKS_H

#define USER_FRAMES 32
#define KERNEL_FRAMES 3
#define KERNEL_TEXT 128

/* A thread on a CPU. Innermost frames first; of the kernel's the names, empty where it was not in the kernel. */
struct sample {
	__u64 time_ns;
	__u64 frames; /* of `user` */
	__u64 user[USER_FRAMES];
	char kernel[KERNEL_TEXT];
};

#endif
