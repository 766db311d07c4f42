/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * Structures that user space reads: it takes their layout from the programs' type information (btf.py), which has those
 * of maps and variables. A record of a ring is named here to be one of them.
 */
#ifndef NETPROF_SHARED_H
#define NETPROF_SHARED_H

#define SHARED(name) const volatile struct name *const volatile shared_##name

#endif
