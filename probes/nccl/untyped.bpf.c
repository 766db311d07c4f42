// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The same for kernels without type information, where pids cannot be translated for a pid namespace. */
#define UNTYPED
#include "nccl.bpf.c"
