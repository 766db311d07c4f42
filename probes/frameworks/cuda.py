"""CUDA: when a thread waits for what its GPU was handed. Plain C, entry and return.

A job that only enqueues is blocked in one of these when it needs a value from the GPU (the loss, a gradient's norm).
Such calls are few: some in each step of the job. What is handed to the GPU without waiting is not probed at all.

The runtime calls the driver by pointers, which may lead past the driver's exported functions or to them: of a wait
inside of a wait the inner one is kept.
"""

from __future__ import annotations

from netprof.probes.frameworks.table import Framework, Mark
from netprof.schema import MarkKind


def _wait(function: str) -> tuple[Mark, Mark]:
    return (
        Mark(MarkKind.DEVICE_WAIT, function, seldom=True),
        Mark(MarkKind.DEVICE_WAIT_OVER, function, at_return=True, seldom=True),
    )


CUDA_RUNTIME = Framework(
    name="cudart",
    library="libcudart{,-*}.so*",  # with a number of their own in wheels that bring it along
    marks=(
        *_wait("cudaStreamSynchronize"),
        *_wait("cudaEventSynchronize"),
        *_wait("cudaDeviceSynchronize"),
        *_wait("cudaMemcpy"),
    ),
    trains=False,
)
CUDA_DRIVER = Framework(
    name="cuda",
    library="libcuda.so*",
    marks=(
        *_wait("cuStreamSynchronize"),
        *_wait("cuEventSynchronize"),
        *_wait("cuCtxSynchronize"),
        *_wait("cuMemcpyDtoH_v2"),
    ),
    trains=False,
)
