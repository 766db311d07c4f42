// SPDX-License-Identifier: Apache-2.0
/* A library with functions whose calls are known to the last argument. Compiled by the tests with -O0. */
#include <stdint.h>

struct toy_fields {
	uint8_t one;
	uint16_t two;
	uint32_t four;
	uint64_t eight;
};

volatile uint64_t toy_sink;

void toy_begin(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
	toy_sink += a + b + c + d + e + f;
}

void toy_fields(const struct toy_fields *fields, uint64_t turn)
{
	toy_sink += fields->eight + turn;
}

void toy_pointer(const void *unreadable)
{
	toy_sink += (uint64_t)unreadable;
}

/* Two functions that begin alike: a prefix of both names neither. */
void toy_twin_a(void)
{
	toy_sink += 1;
}

void toy_twin_b(void)
{
	toy_sink += 2;
}

#ifdef __x86_64__
/* A first instruction that the kernel must single-step, one behind endbr64, and one (with a segment prefix) that it
 * does not probe.
 */
__asm__(".globl toy_slow\n.type toy_slow, @function\ntoy_slow: mov %rdi, %rax\nret\n.size toy_slow, .-toy_slow\n"
	".globl toy_endbr\n.type toy_endbr, @function\n"
	"toy_endbr: endbr64\npush %rbp\npop %rbp\nret\n.size toy_endbr, .-toy_endbr\n"
	".globl toy_never\n.type toy_never, @function\n"
	"toy_never: .byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0\nret\n.size toy_never, .-toy_never\n");
#endif
