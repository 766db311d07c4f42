/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * The arguments of a function that a probe is at the entry of, by their number: an index and not a switch over the
 * context, which clang would merge into an access that the verifier refuses. Number 0 stands for no argument.
 */
#ifndef NETPROF_ARGUMENTS_H
#define NETPROF_ARGUMENTS_H

#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* libbpf 1.1 stops at five arguments. */
#ifndef PT_REGS_PARM6
#if defined(bpf_target_x86)
#define PT_REGS_PARM6(x) (__PT_REGS_CAST(x)->r9)
#elif defined(bpf_target_arm64)
#define PT_REGS_PARM6(x) (__PT_REGS_CAST(x)->regs[5])
#endif
#endif

#define ARGUMENTS 16 /* room for a masked index */

/* Those in registers on every machine: the first six. */
#define REGISTER_ARGUMENTS(ctx)                                                                                        \
	{                                                                                                              \
		0,                                                                                                     \
		PT_REGS_PARM1(ctx),                                                                                    \
		PT_REGS_PARM2(ctx),                                                                                    \
		PT_REGS_PARM3(ctx),                                                                                    \
		PT_REGS_PARM4(ctx),                                                                                    \
		PT_REGS_PARM5(ctx),                                                                                    \
		PT_REGS_PARM6(ctx),                                                                                    \
	}

/* Arguments 7 and 8: in registers on arm64, above the return address on x86-64. Returns 0, or an error. */
static __always_inline long read_stacked(struct pt_regs *ctx, __u64 *two)
{
#if defined(bpf_target_arm64)
	two[0] = __PT_REGS_CAST(ctx)->regs[6];
	two[1] = __PT_REGS_CAST(ctx)->regs[7];
	return 0;
#else
	return bpf_probe_read_user(two, 16, (const void *)(PT_REGS_SP(ctx) + 8));
#endif
}

#endif
