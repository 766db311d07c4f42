/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
 *
 * BPF ring buffers of fixed-size records. A thread of our own takes them out of the kernel before they fill, whatever
 * the program is waiting for: a disk, a terminal, or the lock of its interpreter.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/bpf.h>

#define LOOK_EVERY_NS 50000000
#define KEPT_MOST (1UL << 30) /* bytes that are kept for a reader that does not come; then the kernel's ring fills */

struct netprof_ring {
	unsigned long *consumer;
	unsigned long *producer;
	unsigned char *data;
	unsigned long size;
	unsigned int record_bytes;
	long page;
	pthread_mutex_t lock; /* of the consumer's side and of what is kept */
	unsigned char *kept;
	unsigned long kept_bytes, room_bytes;
	struct netprof_ring *next;
};

static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct netprof_ring *rings;
static int reading; /* whether the thread runs */

/* Copy a record from a position of the ring, which ends somewhere. It is mapped once: twice would count as memory. */
static void copy_record(struct netprof_ring *ring, unsigned char *out, unsigned long position)
{
	unsigned long at = position & (ring->size - 1), first = ring->size - at;

	if (first >= ring->record_bytes) {
		memcpy(out, ring->data + at, ring->record_bytes);
		return;
	}
	memcpy(out, ring->data + at, first);
	memcpy(out + first, ring->data, ring->record_bytes - first);
}

/* Copy up to `max` records to `out`; returns how many. Records of another size are skipped. */
static unsigned long take(struct netprof_ring *ring, unsigned char *out, unsigned long max)
{
	unsigned long position = __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
	unsigned long end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
	unsigned long count = 0;

	while (position < end && count < max) {
		unsigned char *record = ring->data + (position & (ring->size - 1));
		unsigned int header = __atomic_load_n((unsigned int *)record, __ATOMIC_ACQUIRE);
		if (header & BPF_RINGBUF_BUSY_BIT)
			break;
		unsigned int length = header & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);
		if (!(header & BPF_RINGBUF_DISCARD_BIT) && length == ring->record_bytes)
			copy_record(ring, out + count++ * ring->record_bytes, position + BPF_RINGBUF_HDR_SZ);
		position += (length + BPF_RINGBUF_HDR_SZ + 7) / 8 * 8;
	}
	__atomic_store_n(ring->consumer, position, __ATOMIC_RELEASE);
	return count;
}

static unsigned long filled(struct netprof_ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

/* Keep what is in the kernel's ring: only once it is a quarter full, as nearly always the reader comes before that. */
static void keep(struct netprof_ring *ring)
{
	if (filled(ring) < ring->size / 4)
		return;
	pthread_mutex_lock(&ring->lock);
	unsigned long wanted = ring->kept_bytes + ring->size;
	if (wanted > ring->room_bytes && wanted <= KEPT_MOST + ring->size) {
		unsigned char *larger = realloc(ring->kept, wanted + wanted / 2);
		if (larger) {
			ring->kept = larger;
			ring->room_bytes = wanted + wanted / 2;
		}
	}
	unsigned long room = (ring->room_bytes - ring->kept_bytes) / ring->record_bytes;
	ring->kept_bytes += take(ring, ring->kept + ring->kept_bytes, room) * ring->record_bytes;
	pthread_mutex_unlock(&ring->lock);
}

static void *read_rings(void *unused)
{
	const struct timespec pause = { .tv_nsec = LOOK_EVERY_NS };

	for (;;) {
		pthread_mutex_lock(&rings_lock);
		for (struct netprof_ring *ring = rings; ring; ring = ring->next)
			keep(ring);
		int done = !rings;
		if (done)
			reading = 0;
		pthread_mutex_unlock(&rings_lock);
		if (done)
			return NULL;
		nanosleep(&pause, NULL);
	}
}

/* Start the thread. Signals are for the program's own threads. */
static int start_reading(void)
{
	sigset_t all, before;
	pthread_attr_t detached;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	int error = pthread_create(&thread, &detached, read_rings, NULL);
	pthread_attr_destroy(&detached);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	reading = !error;
	return error;
}

/* Add a ring to those that the thread looks after. */
static int look_after(struct netprof_ring *ring)
{
	pthread_mutex_lock(&rings_lock);
	int error = reading ? 0 : start_reading();
	if (!error) {
		ring->next = rings;
		rings = ring;
	}
	pthread_mutex_unlock(&rings_lock);
	return error;
}

static void look_after_no_longer(struct netprof_ring *ring)
{
	struct netprof_ring **place;

	pthread_mutex_lock(&rings_lock);
	for (place = &rings; *place; place = &(*place)->next)
		if (*place == ring) {
			*place = ring->next;
			break;
		}
	pthread_mutex_unlock(&rings_lock);
}

static void unmap(struct netprof_ring *ring)
{
	if (ring->consumer)
		munmap(ring->consumer, ring->page);
	if (ring->producer)
		munmap(ring->producer, ring->page + ring->size);
	free(ring->kept);
	free(ring);
}

void netprof_ring_close(struct netprof_ring *ring)
{
	look_after_no_longer(ring);
	unmap(ring);
}

struct netprof_ring *netprof_ring_open(int fd, unsigned long size, unsigned int record_bytes)
{
	struct netprof_ring *ring = calloc(1, sizeof(*ring));
	if (!ring)
		return NULL;
	ring->size = size;
	ring->record_bytes = record_bytes;
	ring->page = sysconf(_SC_PAGESIZE);
	pthread_mutex_init(&ring->lock, NULL);
	void *consumer = mmap(NULL, ring->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *producer = mmap(NULL, ring->page + size, PROT_READ, MAP_SHARED, fd, ring->page);
	ring->consumer = consumer == MAP_FAILED ? NULL : consumer;
	ring->producer = producer == MAP_FAILED ? NULL : producer;
	int error = !ring->consumer || !ring->producer ? errno : 0;
	if (!error) {
		ring->data = (unsigned char *)ring->producer + ring->page;
		error = look_after(ring);
	}
	if (error) {
		unmap(ring);
		errno = error;
		return NULL;
	}
	return ring;
}

/* How many records there may be: those that are kept, and as many as fit into what the kernel's ring holds. */
unsigned long netprof_ring_records(struct netprof_ring *ring)
{
	pthread_mutex_lock(&ring->lock);
	unsigned long count = ring->kept_bytes / ring->record_bytes +
			      filled(ring) / (ring->record_bytes + BPF_RINGBUF_HDR_SZ);
	pthread_mutex_unlock(&ring->lock);
	return count;
}

/* Copy up to `max` records to `out`, which has room for those that are kept; returns how many. */
unsigned long netprof_ring_drain(struct netprof_ring *ring, void *out, unsigned long max)
{
	pthread_mutex_lock(&ring->lock);
	unsigned long count = ring->kept_bytes / ring->record_bytes;
	if (count > max)
		count = max;
	unsigned long bytes = count * ring->record_bytes;
	if (bytes) {
		memcpy(out, ring->kept, bytes);
		memmove(ring->kept, ring->kept + bytes, ring->kept_bytes - bytes);
	}
	ring->kept_bytes -= bytes;
	if (!ring->kept_bytes && ring->room_bytes > ring->size) { /* the hold-up is over: give the memory back */
		free(ring->kept);
		ring->kept = NULL;
		ring->room_bytes = 0;
	}
	count += take(ring, (unsigned char *)out + bytes, max - count);
	pthread_mutex_unlock(&ring->lock);
	return count;
}
