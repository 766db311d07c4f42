// SPDX-License-Identifier: Apache-2.0
/* Calls the functions of toy.c as often as its standard input says, and answers each line with one line.
 *
 *   load PATH    open the library there          call N       N turns on this thread
 *   thread N     N turns on a new thread         fork N       N turns in a child, whose pid is the answer
 *   exec         become this program anew
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct toy_fields {
	uint8_t one;
	uint16_t two;
	uint32_t four;
	uint64_t eight;
};

#ifdef TOY_STATIC
void toy_begin(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
void toy_fields(const struct toy_fields *, uint64_t);
void toy_pointer(const void *);
#else
static void (*toy_begin)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static void (*toy_fields)(const struct toy_fields *, uint64_t);
static void (*toy_pointer)(const void *);
static void (*toy_slow)(uint64_t);
static void (*toy_endbr)(uint64_t);
#endif

static void load(const char *path)
{
#ifndef TOY_STATIC
	void *library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	toy_begin = dlsym(library, "toy_begin");
	toy_fields = dlsym(library, "toy_fields");
	toy_pointer = dlsym(library, "toy_pointer");
	toy_slow = dlsym(library, "toy_slow");
	toy_endbr = dlsym(library, "toy_endbr");
#endif
}

static void *turns(void *count)
{
	for (uint64_t i = 0; i < (uint64_t)count; i++) {
		struct toy_fields fields = { (uint8_t)i, (uint16_t)(1000 + i), (uint32_t)(100000 + i), 1ULL << 40 | i };
		toy_begin(i, i + 1, i + 2, i + 3, i + 4, i + 5);
		toy_fields(&fields, i);
		toy_pointer((void *)8);
#ifndef TOY_STATIC
		if (toy_slow)
			toy_slow(i);
		if (toy_endbr)
			toy_endbr(i);
#endif
	}
	return NULL;
}

int main(void)
{
	char line[4096], answer[64];
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = strchr(line, ' ');
		line[strcspn(line, "\n")] = 0;
		void *count = rest ? (void *)strtoul(rest, NULL, 10) : NULL;
		strcpy(answer, "done");
		if (!strncmp(line, "load ", 5)) {
			for (char *c = line + 5; *c; c++)
				if (*c == '\1') /* stands for the newline that a line cannot hold */
					*c = '\n';
			load(line + 5);
		} else if (!strncmp(line, "call ", 5)) {
			turns(count);
		} else if (!strncmp(line, "thread ", 7)) {
			pthread_t thread;
			pthread_create(&thread, NULL, turns, count);
			pthread_join(thread, NULL);
		} else if (!strncmp(line, "fork ", 5)) {
			pid_t child = fork();
			if (!child) {
				turns(count);
				_exit(0);
			}
			waitpid(child, NULL, 0);
			sprintf(answer, "%d", child);
		}
		puts(answer);
		fflush(stdout);
		if (!strcmp(line, "exec"))
			execl("/proc/self/exe", "toy", NULL);
	}
	return 0;
}
