/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Functions that do nothing, one for each class of first instruction, to be probed in our own process: what a hit costs
 * depends on whether this kernel emulates that instruction (probes/marks/costs.py).
 */
#include <time.h>

#define ENTRY(name, ...)                                                                                          \
	__asm__(".text\n.balign 16\n.globl netprof_entry_" #name "\n.type netprof_entry_" #name ", %function\n"   \
		"netprof_entry_" #name ":\n" __VA_ARGS__ "\nret\n.size netprof_entry_" #name ", .-netprof_entry_" #name)

#if defined(__x86_64__)
ENTRY(push, "push %rbp; pop %rbp");
ENTRY(sub, "sub $8, %rsp; add $8, %rsp");
ENTRY(mov, "mov %rdi, %rax");
ENTRY(lea, "lea 8(%rsp), %r10");
ENTRY(nop5, ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00");
ENTRY(endbr64, "endbr64");
ENTRY(other, "xor %eax, %eax");
#elif defined(__aarch64__)
ENTRY(b, "b 1f; 1:");
ENTRY(stp, "stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16");
ENTRY(sub, "sub sp, sp, #16; add sp, sp, #16");
ENTRY(nop, "nop");
ENTRY(paciasp, "hint #25; hint #29"); /* and autiasp */
ENTRY(bti, "hint #34");
ENTRY(other, "mov x9, x0");
#endif

/* How long `calls` calls of one of them take. */
unsigned long netprof_time_calls(void (*entry)(void), unsigned int calls)
{
	struct timespec begin, end;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned int i = 0; i < calls; i++)
		entry();
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - begin.tv_sec) * 1000000000UL + end.tv_nsec - begin.tv_nsec;
}
