// SPDX-License-Identifier: Apache-2.0
/* The network part of libnccl.so.2, or a plugin of it, without NVIDIA: the real tables and signatures of nccl_net.h, and
 * bytes that really cross the network.
 *
 * PLUGIN=8 makes a plugin of version 8 of the interface instead, PLUGIN=10 one of version 10 whose version 8 calls it.
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
enum { ncclSuccess = 0, ncclInternalError = 3, STEPS = 8 };

#if PLUGIN == 8
typedef int Size;
#define PHANDLE
#define PHANDLES
#define NO_HANDLE
#define SEND ncclPluginIsend
#define RECEIVE ncclPluginIrecv
#else
typedef size_t Size;
#define PHANDLE void *phandle,
#define PHANDLES void **phandles,
#define NO_HANDLE nullptr,
#if PLUGIN
#define SEND ncclPluginIsend
#define RECEIVE ncclPluginIrecv
#else
#define SEND ncclNetSocketIsend
#define RECEIVE ncclNetSocketIrecv
#endif
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

ncclResult_t SEND(void *sendComm, void *data, Size size, int tag, void *mhandle, PHANDLE void **request)
{
	return take((struct Comm *)sendComm, data, size, request);
}

ncclResult_t RECEIVE(void *recvComm, int n, void **data, Size *sizes, int *tags, void **mhandles, PHANDLES void **request)
{
	size_t room = 0;

	for (int i = 0; i < n; i++)
		room += sizes[i];
	return take((struct Comm *)recvComm, data[0], room, request);
}

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
	void *before[9];
	ncclResult_t (*isend)(void *, void *, Size, int, void *, PHANDLE void **);
	ncclResult_t (*irecv)(void *, int, void **, Size *, int *, void **, PHANDLES void **);
	void *iflush;
	ncclResult_t (*test)(void *, int *, int *);
	void *closes[3];
	void *later[6];
};

#define P(function) (void *)function
#define TABLE(name, send, receive)                                                                                     \
	{name,                                                                                                         \
	 {P(stub_init), P(stub_devices), P(stub_properties), P(stub_listen), P(stub_connect_comm), P(stub_accept),    \
	  P(stub_register), nullptr, P(stub_deregister)},                                                              \
	 send, receive, P(stub_flush), stub_test, {P(stub_close), P(stub_close), P(stub_close)}, {}}

#if PLUGIN == 8
EXPORT struct Net ncclNetPlugin_v8 = TABLE("Stub", SEND, RECEIVE);
static struct Net &net = ncclNetPlugin_v8;
#elif PLUGIN
EXPORT struct Net ncclNetPlugin_v10 = TABLE("Stub", SEND, RECEIVE);

/* An older version of the interface that calls the newer one. */
static ncclResult_t old_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	return SEND(comm, data, size, tag, mhandle, nullptr, request);
}
static ncclResult_t old_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t wide[STEPS];
	for (int i = 0; i < n; i++)
		wide[i] = sizes[i];
	return RECEIVE(comm, n, data, wide, tags, mhandles, nullptr, request);
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
static const char *const version = "NCCL version 2.28.9+cuda12.9";
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
	return net.isend(comm, buffer, size, 0, nullptr, NO_HANDLE request);
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

/* Post receives as NCCL does, with room for `size` bytes: they are done at once, and leave NULL behind. */
EXPORT void stub_receive(void *opaque, uint64_t messages, uint64_t size, int refusals)
{
	struct Comm *comm = (struct Comm *)opaque;
	static void *requests[STEPS];
	static char buffer[1];

	comm->refusals = comm->left = refusals;
	for (uint64_t i = 0; i < messages;) {
		void *data[] = {buffer}, *handles[] = {nullptr}, **request = requests + i % STEPS;
		Size sizes[] = {(Size)size};
		int tags[] = {0}, ready = 0;
#if PLUGIN == 10
		int narrow[] = {(int)size};
		old_irecv(comm, 1, data, narrow, tags, handles, request);
#else
		net.irecv(comm, 1, data, sizes, tags, handles, NO_HANDLE request);
#endif
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
