/* What a thread of a CUDA job is blocked in, without a GPU: each call takes as long as the environment says. */
#include <stdlib.h>
#include <time.h>

static int wait_ms(void)
{
	const char *text = getenv("STUB_WAIT_MS");
	struct timespec time = { 0, 0 };
	long ms = text ? atol(text) : 0;

	time.tv_sec = ms / 1000;
	time.tv_nsec = ms % 1000 * 1000000;
	nanosleep(&time, 0);
	return 0;
}

int cudaStreamSynchronize(void *stream) { return wait_ms(); }
int cudaEventSynchronize(void *event) { return wait_ms(); }
int cudaDeviceSynchronize(void) { return wait_ms(); }
int cudaMemcpy(void *to, const void *from, unsigned long bytes, int kind) { return wait_ms(); }
int cudaLaunchKernel(void) { return 0; }
