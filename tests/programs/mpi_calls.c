/* A rank that calls the functions of MPI once each, when the file named by its argument appears, and says of each call
 *
 *   function  kind  bytes of the buffer  ranks of the communicator  when it began and ended (CLOCK_MONOTONIC, ns)
 *
 * The bytes are those of the whole buffer over all ranks, of a gather and a scatter those of one rank's part.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT 1000
#define ROUNDS 3

static int rank, size;
static char *log_text;
static size_t log_length;

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void note(const char *function, const char *kind, long bytes, int ranks, int64_t begin, int64_t end)
{
	log_text = realloc(log_text, log_length + 256);
	log_length += (size_t)sprintf(log_text + log_length, "%s %s %ld %d %ld %ld\n", function, kind, bytes, ranks,
				      (long)begin, (long)end);
}

/* Call, and say so; the time between two calls keeps their logs from running into each other. */
#define CALL(function, kind, bytes, ranks, ...)                                                                        \
	do {                                                                                                           \
		int64_t begin = now();                                                                                 \
		MPI_##function(__VA_ARGS__);                                                                           \
		note(#function, kind, bytes, ranks, begin, now());                                                     \
		usleep(2000);                                                                                          \
	} while (0)

/* The count is an int: a caller may leave anything in the upper half of its register. */
static int MPI_Bcast_dirty(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm world)
{
	int (*function)(void *, long, MPI_Datatype, int, MPI_Comm) = (void *)MPI_Bcast;

	return function(buffer, count | 7L << 40, type, root, world);
}

static void collectives(MPI_Comm world, MPI_Comm half, MPI_Datatype triple)
{
	int ranks, counts[64], offsets[64];
	float *part = calloc(64 * COUNT, 4), *whole = calloc(64 * COUNT, 4);
	double *doubles = calloc(COUNT, 8), *sums = calloc(COUNT, 8);
	void *mine = rank == 0 ? MPI_IN_PLACE : part;

	MPI_Comm_size(half, &ranks);
	for (int i = 0; i < size; i++)
		counts[i] = COUNT, offsets[i] = i * COUNT;
	CALL(Allreduce, "ALL_REDUCE", 8 * COUNT, size, doubles, sums, COUNT, MPI_DOUBLE, MPI_SUM, world);
	CALL(Allreduce, "ALL_REDUCE", 4 * COUNT, size, MPI_IN_PLACE, part, COUNT, MPI_FLOAT, MPI_SUM, world);
	CALL(Allreduce, "ALL_REDUCE", 2 * COUNT, ranks, MPI_IN_PLACE, part, COUNT, MPI_SHORT, MPI_SUM, half);
	CALL(Bcast, "BROADCAST", 4 * COUNT, size, part, COUNT, MPI_FLOAT, 0, world);
	CALL(Bcast, "BROADCAST", 12 * COUNT, size, part, COUNT, triple, 0, world); /* triple: no basic type */
	CALL(Bcast_dirty, "BROADCAST", 4 * COUNT, size, part, COUNT, MPI_FLOAT, 0, world);
	CALL(Reduce, "REDUCE", 4 * COUNT, size, mine, whole, COUNT, MPI_INT, MPI_MAX, 0, world);
	CALL(Allgather, "ALL_GATHER", 4L * COUNT * size, size, part, COUNT, MPI_FLOAT, whole, COUNT, MPI_FLOAT, world);
	CALL(Allgather, "ALL_GATHER", 4L * COUNT * ranks, ranks, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, COUNT,
	     MPI_FLOAT, half);
	CALL(Allgatherv, "ALL_GATHER", 4L * COUNT * size, size, part, COUNT, MPI_FLOAT, whole, counts, offsets,
	     MPI_FLOAT, world);
	CALL(Reduce_scatter, "REDUCE_SCATTER", 4L * COUNT * size, size, whole, part, counts, MPI_FLOAT, MPI_SUM, world);
	CALL(Reduce_scatter_block, "REDUCE_SCATTER", 4L * COUNT * size, size, whole, part, COUNT, MPI_FLOAT, MPI_SUM,
	     world);
	CALL(Alltoall, "ALL_TO_ALL", 4L * COUNT * size, size, whole, COUNT, MPI_FLOAT, part, COUNT, MPI_FLOAT, world);
	CALL(Alltoallv, "ALL_TO_ALL", 4L * COUNT * size, size, whole, counts, offsets, MPI_FLOAT, part, counts, offsets,
	     MPI_FLOAT, world);
	CALL(Gather, "GATHER", 4 * COUNT, size, part, COUNT, MPI_FLOAT, whole, COUNT, MPI_FLOAT, 0, world);
	CALL(Gather, "GATHER", rank ? 4 * COUNT : -1, size, mine, rank ? COUNT : 77, MPI_FLOAT, whole, COUNT, MPI_FLOAT, 0,
	     world);
	CALL(Scatter, "SCATTER", 4 * COUNT, size, whole, COUNT, MPI_FLOAT, part, COUNT, MPI_FLOAT, 0, world);
	CALL(Scatter, "SCATTER", rank ? 4 * COUNT : -1, size, whole, COUNT, MPI_FLOAT, mine, rank ? COUNT : 77, MPI_FLOAT,
	     0, world);
	CALL(Barrier, "BARRIER", 0, size, world);
#if defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000 /* has MPI 4: counts of 64 bits */
	CALL(Allreduce_c, "ALL_REDUCE", 8 * COUNT, size, doubles, sums, COUNT, MPI_DOUBLE, MPI_SUM, world);
	CALL(Allgather_c, "ALL_GATHER", 4L * COUNT * size, size, part, COUNT, MPI_FLOAT, whole, COUNT, MPI_FLOAT, world);
#endif
	free(part);
	free(whole);
	free(doubles);
	free(sums);
}

static void messages(MPI_Comm world)
{
	float *buffer = calloc(2 * COUNT, 4);
	int other = rank ^ 1;
	MPI_Request requests[2];
	MPI_Status statuses[2];

	if (other < size) {
		if (rank & 1)
			CALL(Recv, "RECEIVE", -1, size, buffer, 2 * COUNT, MPI_FLOAT, other, 0, world, MPI_STATUS_IGNORE);
		else
			CALL(Send, "SEND", 4 * COUNT, size, buffer, COUNT, MPI_FLOAT, other, 0, world);
		if (rank & 1) { /* as mpi4py receives an object */
			MPI_Message message;

			CALL(Probe, "RECEIVE", -1, size, other, 1, world, MPI_STATUS_IGNORE);
			CALL(Mprobe, "RECEIVE", -1, size, other, 1, world, &message, MPI_STATUS_IGNORE);
			CALL(Mrecv, "RECEIVE", -1, -1, buffer, COUNT, MPI_FLOAT, &message, MPI_STATUS_IGNORE);
		} else {
			CALL(Send, "SEND", 4 * COUNT, size, buffer, COUNT, MPI_FLOAT, other, 1, world);
		}
		CALL(Sendrecv, "SEND", 4 * COUNT, -1, buffer, COUNT, MPI_FLOAT, other, 0, buffer + COUNT, COUNT,
		     MPI_FLOAT, other, 0, world, MPI_STATUS_IGNORE);
		CALL(Irecv, "RECEIVE", -1, size, buffer, COUNT, MPI_FLOAT, other, 0, world, &requests[0]);
		CALL(Isend, "SEND", 4 * COUNT, size, buffer + COUNT, COUNT, MPI_FLOAT, other, 0, world, &requests[1]);
		CALL(Waitall, "WAIT", -1, -1, 2, requests, statuses);
	}
	CALL(Iallreduce, "ALL_REDUCE", 4 * COUNT, size, MPI_IN_PLACE, buffer, COUNT, MPI_FLOAT, MPI_SUM, world, requests);
	CALL(Wait, "WAIT", -1, -1, requests, MPI_STATUS_IGNORE);
	CALL(Ibcast, "BROADCAST", 4 * COUNT, size, buffer, COUNT, MPI_FLOAT, 0, world, requests);
	CALL(Wait, "WAIT", -1, -1, requests, MPI_STATUS_IGNORE);
	free(buffer);
}

int main(int argc, char **argv)
{
	MPI_Comm half;
	MPI_Datatype triple;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split(MPI_COMM_WORLD, rank & 1, rank, &half);
	MPI_Type_contiguous(3, MPI_FLOAT, &triple);
	MPI_Type_commit(&triple);
	printf("ready rank=%d pid=%d\n", rank, (int)getpid());
	fflush(stdout);
	while (access(argv[1], F_OK))
		usleep(10000);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		collectives(MPI_COMM_WORLD, half, triple);
		messages(MPI_COMM_WORLD);
	}
	char path[4096];
	snprintf(path, sizeof(path), "%s.%d", argv[1], rank);
	FILE *file = fopen(path, "w");
	fwrite(log_text, 1, log_length, file);
	fclose(file);
	puts("done");
	fflush(stdout);
	MPI_Comm_free(&half);
	MPI_Type_free(&triple);
	MPI_Finalize();
	return 0;
}
