// SPDX-License-Identifier: Apache-2.0
/* The network part of libnccl.so.2, or a plugin of it, without NVIDIA: the real tables and signatures of nccl_net.h, and
 * bytes that really cross the network.
 *
 * INTERFACE=4 to 12 says which version of the interface it is, 11 if nothing does. PLUGIN=N makes a plugin of version N
 * instead; that of version 10 has a version 8 too, which calls it.
 * stub_run() is what NCCL's proxy thread does: it asks isend again, with the same arguments, until there is a request,
 * and test until that is done. Names and mangling are NCCL's, so this is C++.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

typedef int ncclResult_t;
enum { ncclSuccess = 0, ncclInternalError = 3, STEPS = 8, MOST_TOGETHER = 16 };

#if PLUGIN
#undef INTERFACE
#define INTERFACE PLUGIN
#elif !defined(INTERFACE)
#define INTERFACE 11
#endif

#if INTERFACE < 9
typedef int Size;
#else
typedef size_t Size;
#endif

#if INTERFACE < 5
#define TAG
#define NO_TAG
#else
#define TAG int tag,
#define NO_TAG 0,
#endif

#if INTERFACE < 10
#define PHANDLE
#define PHANDLES
#define NO_HANDLE
#else
#define PHANDLE void *phandle,
#define PHANDLES void **phandles,
#define NO_HANDLE nullptr,
#endif

#if PLUGIN
#define SEND ncclPluginIsend
#define RECEIVE ncclPluginIrecv
#elif INTERFACE < 6
#define SEND ncclSocketIsend
#define RECEIVE ncclSocketIrecv
#else
#define SEND ncclNetSocketIsend
#define RECEIVE ncclNetSocketIrecv
#endif

struct Request {
	char *data;
	size_t size, offset;
	int socket;
	int used;
};

struct Comm {
	int socket; /* -1: nothing really moves */
	int refusals, left; /* how often each message is refused, and the present one still is */
	struct Request requests[2 * STEPS];
};

static ncclResult_t take(struct Comm *comm, void *data, size_t size, void **request)
{
	*request = nullptr;
	if (comm->left-- > 0)
		return ncclSuccess;
	for (struct Request &each : comm->requests) {
		if (each.used)
			continue;
		each = {(char *)data, size, 0, comm->socket, 1};
		comm->left = comm->refusals;
		*request = &each;
		return ncclSuccess;
	}
	comm->left = 0;
	return ncclSuccess;
}

ncclResult_t SEND(void *sendComm, void *data, Size size, TAG void *mhandle, PHANDLE void **request)
{
	return take((struct Comm *)sendComm, data, size, request);
}

#if INTERFACE < 5
ncclResult_t RECEIVE(void *recvComm, void *data, Size size, void *mhandle, void **request)
{
	return take((struct Comm *)recvComm, data, size, request);
}
#else
ncclResult_t RECEIVE(void *recvComm, int n, void **data, Size *sizes, int *tags, void **mhandles, PHANDLES void **request)
{
	size_t room = 0;

	for (int i = 0; sizes && i < n; i++)
		room += sizes[i];
	return take((struct Comm *)recvComm, data[0], room, request);
}
#endif

/* Sends the size, then the data, as NCCL's sockets do. */
static ncclResult_t stub_test(void *request, int *done, int *sizes)
{
	struct Request *r = (struct Request *)request;
	int32_t header = r->size;

	*done = r->socket < 0;
	while (r->socket >= 0) {
		size_t whole = r->size + sizeof(header);
		const char *from = r->offset < sizeof(header) ? (const char *)&header + r->offset :
								r->data + r->offset - sizeof(header);
		size_t length = r->offset < sizeof(header) ? sizeof(header) - r->offset : whole - r->offset;
		ssize_t sent = length ? send(r->socket, from, length, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
		if (sent < 0)
			return ncclSuccess;
		r->offset += sent;
		*done = r->offset == whole;
		if (*done)
			break;
	}
	if (*done) {
		r->used = 0;
		if (sizes)
			*sizes = r->size;
	}
	return ncclSuccess;
}

static ncclResult_t stub_init(void) { return ncclSuccess; }
static ncclResult_t stub_devices(void) { return ncclSuccess; }
static ncclResult_t stub_properties(void) { return ncclSuccess; }
static ncclResult_t stub_listen(void) { return ncclSuccess; }
static ncclResult_t stub_connect_comm(void) { return ncclSuccess; }
static ncclResult_t stub_accept(void) { return ncclSuccess; }
static ncclResult_t stub_register(void) { return ncclSuccess; }
static ncclResult_t stub_deregister(void) { return ncclSuccess; }
static ncclResult_t stub_flush(void) { return ncclSuccess; }
static ncclResult_t stub_close(void) { return ncclSuccess; }

struct Net {
	const char *name;
	void *before[INTERFACE < 6 ? 8 : 9];
	decltype(&SEND) isend;
	decltype(&RECEIVE) irecv;
	void *iflush;
	ncclResult_t (*test)(void *, int *, int *);
	void *closes[3];
	void *later[6];
};

#define P(function) (void *)function
#if INTERFACE < 6
#define REGISTER P(stub_register)
#else
#define REGISTER P(stub_register), nullptr
#endif
#define TABLE(name, send, receive)                                                                                     \
	{name,                                                                                                         \
	 {P(stub_init), P(stub_devices), P(stub_properties), P(stub_listen), P(stub_connect_comm), P(stub_accept),    \
	  REGISTER, P(stub_deregister)},                                                                               \
	 send, receive, P(stub_flush), stub_test, {P(stub_close), P(stub_close), P(stub_close)}, {}}

#define JOINED(name, number) name##number
#define EXPORTED(number) JOINED(ncclNetPlugin_v, number)

#if PLUGIN && PLUGIN != 10
EXPORT struct Net EXPORTED(PLUGIN) = TABLE("Stub", SEND, RECEIVE);
static struct Net &net = EXPORTED(PLUGIN);
#elif PLUGIN
EXPORT struct Net ncclNetPlugin_v10 = TABLE("Stub", SEND, RECEIVE);

/* An older version of the interface that calls the newer one. */
static ncclResult_t old_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return SEND(comm, data, size, tag, mhandle, nullptr, request);
}
static ncclResult_t old_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t wide[MOST_TOGETHER];
	for (int i = 0; sizes && i < n; i++)
		wide[i] = sizes[i];
	return RECEIVE(comm, n, data, sizes ? wide : nullptr, tags, mhandles, nullptr, request);
}
struct OldNet {
	const char *name;
	void *functions[24];
};
EXPORT struct OldNet ncclNetPlugin_v8 = {
	"Stub",
	{P(stub_init), P(stub_devices), P(stub_properties), P(stub_listen), P(stub_connect_comm), P(stub_accept),
	 P(stub_register), nullptr, P(stub_deregister), P(old_isend), P(old_irecv), P(stub_flush), P(stub_test),
	 P(stub_close), P(stub_close), P(stub_close)}};
static struct Net old = TABLE("old", nullptr, nullptr);
static struct Net &net = old;
#else
static const char *const version = INTERFACE == 4  ? "NCCL version 2.8.4+cuda11.1" :
				   INTERFACE == 5  ? "NCCL version 2.12.12+cuda11.6" :
				   INTERFACE == 6  ? "NCCL version 2.18.5+cuda12.2" :
				   INTERFACE == 7  ? "NCCL version 2.19.3+cuda12.3" :
				   INTERFACE == 8  ? "NCCL version 2.21.5+cuda12.4" :
				   INTERFACE == 9  ? "NCCL version 2.25.1+cuda12.8" :
				   INTERFACE == 10 ? "NCCL version 2.27.7+cuda12.9" :
				   INTERFACE == 11 ? "NCCL version 2.28.9+cuda12.9" :
						     "NCCL version 2.30.3+cuda13.0";
struct Net ncclNetSocket = TABLE("Socket", SEND, RECEIVE);
/* What looks alike: the functions of other interfaces, and of none. */
void *rma[] = {P("RMA_SOCKET_PROXY"), P(stub_init), P(stub_devices), P(stub_properties), P(stub_listen), P(stub_accept),
	       P(stub_register), P(stub_flush), P(stub_close), P(stub_close), P(stub_close), P(stub_close), P(stub_close),
	       P(stub_close), P(stub_close), P(stub_close), P(stub_close)};
void *few[] = {P("IB"), P(stub_init), P(stub_devices), P(stub_properties), P(stub_listen), nullptr};
static struct Net &net = ncclNetSocket;
EXPORT const char *stub_version(void) { return version; }
#endif

static uint64_t read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static uint64_t now_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

static uint64_t cpu_ns(void)
{
	return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

EXPORT void *stub_connect(const char *address, int port)
{
	struct Comm *comm = (struct Comm *)calloc(1, sizeof(*comm));
	struct sockaddr_in to = {};

	comm->socket = -1;
	if (!port)
		return comm;
	to.sin_family = AF_INET;
	to.sin_port = htons(port);
	inet_pton(AF_INET, address, &to.sin_addr);
	comm->socket = socket(AF_INET, SOCK_STREAM, 0);
	return connect(comm->socket, (struct sockaddr *)&to, sizeof(to)) ? nullptr : comm;
}

static ncclResult_t post(struct Comm *comm, char *buffer, size_t size, void **request)
{
#if PLUGIN == 10
	return old_isend(comm, buffer, size, 0, nullptr, request);
#else
	return net.isend(comm, buffer, size, NO_TAG nullptr, NO_HANDLE request);
#endif
}

/* Move messages of `size` bytes, each refused `refusals` times, no more than `per_second` of them; 0: as fast as it
 * goes. Returns how long it took, in ns. */
EXPORT uint64_t stub_run(void *opaque, uint64_t messages, uint64_t size, int refusals, double per_second)
{
	struct Comm *comm = (struct Comm *)opaque;
	static void *requests[STEPS];
	static char *buffers[STEPS];
	uint64_t begin = now_ns(), transmitted = 0, done = 0;

	comm->refusals = comm->left = refusals;
	for (int i = 0; i < STEPS; i++)
		buffers[i] = (char *)realloc(buffers[i], size ? size : 1);
	while (done < messages) {
		bool due = !per_second || (now_ns() - begin) * 1e-9 * per_second >= transmitted;
		if (transmitted < messages && transmitted < done + STEPS && due) {
			int slot = transmitted % STEPS;
			post(comm, buffers[slot], size, requests + slot);
			if (requests[slot]) {
				transmitted++;
				continue;
			}
		}
		if (done < transmitted) {
			int ready = 0;
			net.test(requests[done % STEPS], &ready, nullptr);
			done += ready;
		}
	}
	return now_ns() - begin;
}

/* Move `operations` of four messages of `size` bytes, each refused `refusals` times. As in NCCL, where the memory of an
 * operation that is over serves the next one, sends and receives alike, and a receive leaves NULL for its requests. */
EXPORT void stub_share(void *opaque, uint64_t operations, uint64_t size, int refusals)
{
	struct Comm *comm = (struct Comm *)opaque;
	static void *requests[STEPS];
	char *buffer = (char *)calloc(STEPS, size);

	comm->refusals = comm->left = refusals;
	for (uint64_t operation = 0; operation < operations; operation++) {
		for (int slot = 0; slot < STEPS; slot += 2)
			do
				post(comm, buffer + slot * size, size, requests + slot);
			while (!requests[slot]);
		for (int slot = 0; slot < STEPS; slot += 2)
			for (int ready = 0; !ready;)
				net.test(requests[slot], &ready, nullptr);
		memset(requests, 0, sizeof(requests));
	}
	free(buffer);
}

#if INTERFACE < 5
static ncclResult_t post_receive(struct Comm *comm, char *buffer, const size_t *sizes, int together, void **request)
{
	return net.irecv(comm, buffer, sizes[0], nullptr, request);
}
#else
#if PLUGIN == 10
typedef int Asked;
#define ASK(...) old_irecv(__VA_ARGS__)
#define ASK_HANDLE
#else
typedef Size Asked;
#define ASK(...) net.irecv(__VA_ARGS__)
#define ASK_HANDLE NO_HANDLE
#endif
static ncclResult_t post_receive(struct Comm *comm, char *buffer, const size_t *sizes, int together, void **request)
{
	void *data[MOST_TOGETHER], *handles[MOST_TOGETHER] = {};
	Asked asked[MOST_TOGETHER];
	int tags[MOST_TOGETHER] = {};

	for (int i = 0; i < together; i++) {
		data[i] = buffer;
		asked[i] = sizes ? sizes[i] : 0;
	}
	return ASK(comm, together, data, sizes ? asked : nullptr, tags, handles, ASK_HANDLE request);
}
#endif

/* Post receives as NCCL does: they are done at once, and leave NULL behind. Each is of `together` messages with room for
 * `size` bytes, one more, two more and so on; with a size of -1 the network is not told any. */
EXPORT void stub_receive(void *opaque, uint64_t messages, int64_t size, int refusals, int together)
{
	struct Comm *comm = (struct Comm *)opaque;
	static void *requests[STEPS];
	static char buffer[1];
	size_t sizes[MOST_TOGETHER];

	comm->refusals = comm->left = refusals;
	for (int i = 0; i < together; i++)
		sizes[i] = size + i;
	for (uint64_t i = 0; i < messages;) {
		void **request = requests + i % STEPS;
		int ready = 0;

		post_receive(comm, buffer, size < 0 ? nullptr : sizes, together, request);
		if (!*request)
			continue;
		((struct Request *)*request)->socket = -1;
		net.test(*request, &ready, nullptr);
		*request = nullptr;
		i++;
	}
}

/* Work for `spin_ns` after each of `messages` posts that are done at once: what a thread does that never waits. Returns
 * the CPU time that it took, in ns, so that others at work count for nothing. */
EXPORT uint64_t stub_busy(void *opaque, uint64_t messages, uint64_t size, uint64_t spin_ns)
{
	struct Comm *comm = (struct Comm *)opaque;
	static void *requests[STEPS];
	static char buffer[1];
	uint64_t begin = cpu_ns();

	for (uint64_t i = 0; i < messages; i++) {
		int ready = 0;

		post(comm, buffer, size, requests + i % STEPS);
		net.test(requests[i % STEPS], &ready, nullptr);
		for (uint64_t until = spin_ns ? cpu_ns() + spin_ns : 0; until && cpu_ns() < until;)
			;
	}
	return cpu_ns() - begin;
}
