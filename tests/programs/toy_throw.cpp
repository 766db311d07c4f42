// SPDX-License-Identifier: Apache-2.0
/* A C++ library whose probed function is left by an exception: what a return probe would turn into an abort. */
#include <cstdint>
#include <stdexcept>

static void throw_on_odd(uint64_t turn)
{
	if (turn % 2)
		throw std::runtime_error("odd");
}

extern "C" void toy_begin(uint64_t turn)
{
	throw_on_odd(turn);
}

extern "C" uint64_t toy_caught(uint64_t turns)
{
	uint64_t caught = 0;
	for (uint64_t turn = 0; turn < turns; turn++)
		try {
			toy_begin(turn);
		} catch (const std::runtime_error &) {
			caught++;
		}
	return caught;
}
