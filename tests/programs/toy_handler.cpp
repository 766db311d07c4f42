// A program that sets an error handler in C, which throws, and (with -DTOY_LIBRARY) the C-like library that calls it.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>

extern "C" void toy_set_handler(void (*handler)());
extern "C" uint64_t toy_fails(uint64_t turn);

#ifdef TOY_LIBRARY
static void (*handler)();

extern "C" void toy_set_handler(void (*wanted)())
{
	handler = wanted;
}

extern "C" uint64_t toy_fails(uint64_t turn)
{
	handler();
	return turn;
}
#else
static void handle()
{
	throw std::runtime_error("failed");
}

int main()
{
	char line[64], command[32];

	toy_set_handler(handle);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long count = 0, caught = 0;
		sscanf(line, "%31s %lu", command, &count);
		for (unsigned long turn = 0; turn < count; turn++)
			try {
				toy_fails(turn);
			} catch (const std::runtime_error &) {
				caught++;
			}
		printf("%lu\n", caught);
		fflush(stdout);
	}
}
#endif
