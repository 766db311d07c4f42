// SPDX-License-Identifier: Apache-2.0
/* libnccl.so.2 without NVIDIA: the signatures of nccl.h 2.32.3, and bytes that really cross the network.
 *
 * As in the real one, a call only enqueues: a thread sends the bytes over a socket to a peer later, and the call returns
 * at once. stub_connect() says where to.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm { int ranks; } *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct ncclConfig ncclConfig_t;

enum { QUEUE = 4096 };
static size_t queue[QUEUE], posted, sent;
static int peer_socket = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const int element_bytes[12] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static void *transport(void *unused)
{
	static char zeros[65536];

	for (;;) {
		pthread_mutex_lock(&lock);
		while (sent == posted)
			pthread_cond_wait(&changed, &lock);
		size_t left = queue[sent % QUEUE];
		pthread_mutex_unlock(&lock);
		while (left) {
			ssize_t n = send(peer_socket, zeros, left < sizeof(zeros) ? left : sizeof(zeros), MSG_NOSIGNAL);
			if (n <= 0)
				return unused;
			left -= n;
		}
		pthread_mutex_lock(&lock);
		sent++;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
}

int stub_connect(const char *address, int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	pthread_t thread;

	inet_pton(AF_INET, address, &to.sin_addr);
	peer_socket = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(peer_socket, (struct sockaddr *)&to, sizeof(to)))
		return -1;
	return pthread_create(&thread, NULL, transport, NULL);
}

/* What cudaStreamSynchronize would do: wait until everything has been handed to the socket. */
void stub_synchronize(void)
{
	pthread_mutex_lock(&lock);
	while (sent != posted)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static ncclResult_t enqueue(size_t count, ncclDataType_t datatype)
{
	pthread_mutex_lock(&lock);
	if (peer_socket >= 0) {
		queue[posted++ % QUEUE] = count * element_bytes[datatype];
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

#define COLLECTIVE(name, ...)                                                                                          \
	ncclResult_t name(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, __VA_ARGS__)    \
	{                                                                                                              \
		return enqueue(count, datatype);                                                                       \
	}

COLLECTIVE(ncclAllReduce, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclAllReduceConfig, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const void *config)
COLLECTIVE(ncclAllGather, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclReduceScatter, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclBroadcast, int root, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclReduce, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclAlltoAll, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclGather, int root, ncclComm_t comm, cudaStream_t stream)
COLLECTIVE(ncclScatter, int root, ncclComm_t comm, cudaStream_t stream)

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
	return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclSend(const void *buff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return enqueue(count, datatype);
}

ncclResult_t ncclRecv(void *buff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
		      cudaStream_t stream)
{
	return 0;
}

ncclResult_t ncclGroupStart(void)
{
	return 0;
}

ncclResult_t ncclGroupEnd(void)
{
	return 0;
}

static ncclResult_t create(ncclComm_t *comm, int ranks)
{
	*comm = calloc(1, sizeof(**comm));
	(*comm)->ranks = ranks;
	return 0;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	return create(comm, nranks);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	return create(comm, nranks);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int ids, ncclUniqueId *id,
				      ncclConfig_t *config)
{
	return create(comm, nranks);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
	for (int i = 0; i < ndev; i++)
		create(&comms[i], ndev);
	return 0;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	return create(newcomm, comm->ranks / 2);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int excluded, ncclComm_t *newcomm, ncclConfig_t *config,
			    int flags)
{
	return create(newcomm, comm->ranks - excluded);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	free(comm);
	return 0;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	free(comm);
	return 0;
}
