// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What NCCL hands to its network, added up by connection and time bin where it is posted.
 *
 * NCCL asks its network to send or to receive, and asks again, as fast as it can, while that says "not now" (it writes
 * NULL where the request would be). So a call counts as posted unless it repeats the one before it on its connection,
 * and that was refused: the same request, data and size, and NULL still there. Whether a call is accepted is seen when
 * the next one comes, and not at its return: probing a return of C++ can end the process.
 */
#include "../kernel/process_ids.h"
#include "../kernel/arguments.h"
#include "../kernel/shared.h"
#include "../kernel/targets.h"

#include "posts.h"

SHARED(post_record);

#define MOST_RECEIVES 8 /* of one call, as many as NCCL's own networks take; a call with more is not counted */
#define LONGEST (1ULL << 40) /* bytes; larger sizes are not believed */
#define LEADS_NS 1000000000ULL

const volatile __u64 bin_ns = 1000000;

__u32 next_slot;
__u64 uncounted; /* calls on connections for which there was no room */
__u64 unread; /* calls that are not counted since what they are about could not be read, or not be believed */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NET_FUNCTIONS);
	__type(key, __u32);
	__type(value, struct net_function);
} functions SEC(".maps");

struct connection_key {
	__u64 address;
	__u32 pid;
	__u32 direction;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CONNECTIONS);
	__type(key, struct connection_key);
	__type(value, __u32);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CONNECTIONS);
	__type(key, __u32);
	__type(value, struct connection);
} connections SEC(".maps");

/* The last call for each request, in the place that its address gives: two that meet there are told apart less well. */
struct call {
	__u64 request;
	__u64 pid;
	__u64 connection;
	__u64 data;
	__u64 size;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REQUESTS);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

/* Return a size of `width` bytes, 4 of which are an int's, as one that can be held against LONGEST. */
static __always_inline __u64 as_size(__u64 value, __u8 width)
{
	return width == 4 ? (__u64)(__s64)(__s32)value : value;
}

/* Add up the sizes of several receives. Returns 0, or an error. */
static __always_inline long add_sizes(__u64 sizes, __u32 count, __u8 width, __u64 *sum)
{
	if (count > MOST_RECEIVES)
		return -1;
	for (__u32 i = 0; i < MOST_RECEIVES; i++) {
		__u64 one = 0;
		long error;

		if (i >= count)
			break;
		if (width == 4)
			error = bpf_probe_read_user(&one, 4, (const void *)(sizes + 4 * i));
		else
			error = bpf_probe_read_user(&one, 8, (const void *)(sizes + 8 * i));
		one = as_size(one, width);
		if (error || one > LONGEST)
			return -1;
		*sum += one;
	}
	return 0;
}

/* What the call is about, in bytes. Returns 0, or an error. */
static __always_inline long size_of_call(const __u64 *parameters, const struct net_function *function, __u64 *size)
{
	__u64 argument = parameters[function->size_argument & 15];

	if (function->counted)
		return add_sizes(argument, parameters[function->counted & 15], function->size_bytes, size);
	*size = as_size(argument, function->size_bytes);
	return *size > LONGEST ? -1 : 0;
}

static __always_inline void begin_connection(const struct connection_key *key, __u8 network)
{
	__u32 slot = __sync_fetch_and_add(&next_slot, 1);
	struct connection *connection = slot < CONNECTIONS ? bpf_map_lookup_elem(&connections, &slot) : NULL;

	if (!connection || bpf_map_update_elem(&slots, key, &slot, BPF_NOEXIST))
		return;
	connection->address = key->address;
	connection->pid = key->pid;
	connection->direction = key->direction;
	connection->network = network;
}

static __always_inline struct connection *find_connection(const struct connection_key *key, __u32 *slot, __u8 network)
{
	__u32 *known = bpf_map_lookup_elem(&slots, key);

	if (known) {
		*slot = *known;
		return bpf_map_lookup_elem(&connections, slot);
	}
	if (next_slot < CONNECTIONS)
		begin_connection(key, network);
	known = bpf_map_lookup_elem(&slots, key); /* if not ours, another thread's */
	if (!known) {
		__sync_fetch_and_add(&uncounted, 1);
		return NULL;
	}
	*slot = *known;
	return bpf_map_lookup_elem(&connections, slot);
}

/* Tell whether this repeats a call that was refused, and remember it.
 *
 * What is refused is asked for again before anything else of its connection. NULL alone does not tell: a receive that is
 * done leaves it behind, and later operations, sends too, use the same place for their requests.
 */
static __always_inline bool is_repeated(const struct call *now, __u64 last_request)
{
	__u32 place = (__u32)((now->request >> 3) ^ (now->request >> 19) ^ now->pid) & (REQUESTS - 1);
	struct call *before = bpf_map_lookup_elem(&calls, &place);

	if (!before)
		return false;
	bool same = before->request == now->request && before->pid == now->pid && before->data == now->data &&
		    before->connection == now->connection && before->size == now->size;
	if (!same) {
		*before = *now;
		return false;
	}
	if (last_request != now->request)
		return false;
	__u64 written = 0;
	return !bpf_probe_read_user(&written, 8, (const void *)now->request) && !written;
}

/* Hand the bin over that ended. Where the ring is full it goes on with the next one's. */
static __always_inline bool hand_over(const struct connection *connection, __u32 slot)
{
	struct post_record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record)
		return false;
	record->slot = slot;
	record->unused = 0;
	record->first_ns = connection->first_ns;
	record->last_ns = connection->last_ns;
	record->totals = connection->totals;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

/* A plugin's function for an older version of the interface may call that for a newer one: the outer one counts. */
static __always_inline bool leads(struct connection *connection, __u32 function, __u64 now_ns)
{
	if (connection->function == function + 1)
		return true;
	if (connection->function && now_ns - connection->last_ns < LEADS_NS)
		return false;
	connection->function = function + 1;
	return true;
}

static __always_inline void count(struct connection *connection, __u32 slot, __u64 now_ns, __u64 size, bool repeated)
{
	if (now_ns >= connection->bin_end_ns) {
		if (!connection->bin_end_ns || hand_over(connection, slot))
			connection->first_ns = now_ns;
		connection->bin_end_ns = now_ns - now_ns % bin_ns + bin_ns;
	}
	connection->last_ns = now_ns;
	if (repeated) {
		connection->totals.refused++;
	} else {
		connection->totals.posts++;
		connection->totals.bytes += size;
	}
}

SEC("uprobe")
int post(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);
	__u32 index = cookie - 1, pid = current_process(), slot = 0;
	struct net_function *function = cookie ? bpf_map_lookup_elem(&functions, &index) : NULL;

	if (!function || !bpf_map_lookup_elem(&targets, &pid))
		return 0;
	__u64 parameters[ARGUMENTS] = REGISTER_ARGUMENTS(ctx);
	if (function->request_argument > 6 && read_stacked(ctx, &parameters[7]))
		goto not_read;
	struct connection_key key = {parameters[1], pid, function->direction};
	struct connection *connection = find_connection(&key, &slot, function->network);
	if (!connection)
		return 0;
	__u64 now_ns = bpf_ktime_get_ns();
	if (!leads(connection, index, now_ns))
		return 0;
	struct call call = {
		.request = parameters[function->request_argument & 15],
		.pid = pid,
		.connection = key.address,
		.data = parameters[function->data_argument & 15],
	};
	if (size_of_call(parameters, function, &call.size))
		goto not_read;
	bool repeated = is_repeated(&call, connection->last_request);
	connection->last_request = call.request;
	count(connection, slot, now_ns, call.size, repeated);
	return 0;
not_read:
	__sync_fetch_and_add(&unread, 1);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
