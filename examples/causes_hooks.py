"""Communication hooks of DistributedDataParallel for examples/causes_train.py: gradients that travel unusual ways.

DistributedDataParallel looks at the hooks' annotations, so they have to be types here, no strings.
"""

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def with_a_small_one(args: argparse.Namespace) -> Hook:
    """All-reduce the gradients, and beside each bucket the largest of some values, as hooks do that watch gradients.

    Of all values it would take a slow CPU so long that the job's own log could not tell it from waiting.
    """
    small: list[dist.Work] = []

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            small.clear()
        largest = bucket.buffer()[:1024].abs().max().reshape(1)
        small.append(dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True))
        return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

    return hook


def slow_to_unpack(args: argparse.Namespace) -> Hook:
    """All-reduce the gradients, and compute for 40 ms on each bucket that has arrived: decompression, say."""

    def unpack(arrived: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        value: torch.Tensor = arrived.value()
        until = time.monotonic() + 0.04
        while time.monotonic() < until:
            value.mul(1.0)
        return value

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        return default_hooks.allreduce_hook(dist.group.WORLD, bucket).then(unpack)

    return hook


class SharedMemory:
    """Gradients that pass no device: a file that all ranks map. A bucket takes as long as at 400 MB/s.

    Who writes a bucket of step k + 2 has seen every rank write it in step k + 1, after reading it in step k: two places
    a bucket, used in turn, are enough.
    """

    def __init__(self, path: Path, gradient_bytes: int) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        size = gradient_bytes // 4 * 2
        if self.rank == 0:
            path.write_bytes(b"")
            with path.open("r+b") as file:
                file.truncate(self.ranks * (size * 8 + _MOST_BUCKETS * 8))
        dist.barrier()
        self.steps = np.memmap(path, np.int64, "r+", 0, (self.ranks, _MOST_BUCKETS))
        self.values = np.memmap(path, np.float32, "r+", self.steps.nbytes, (self.ranks, 2, size))
        self.step, self.offset = 0, 0

    def hook(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Exchange a bucket on a thread of its own."""
        if bucket.index() == 0:
            self.step, self.offset = self.step + 1, 0
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        where = slice(self.offset, self.offset + bucket.buffer().numel())
        self.offset = where.stop
        work = (bucket.buffer(), self.step, bucket.index(), where, future)
        threading.Thread(target=self._exchange, args=work, daemon=True).start()
        return future

    def _exchange(
        self, buffer: torch.Tensor, step: int, index: int, where: slice, future: torch.futures.Future[torch.Tensor]
    ) -> None:
        place = self.values[:, step % 2, where]
        place[self.rank] = buffer.numpy()
        time.sleep(buffer.nbytes / 400e6)
        self.steps[self.rank, index] = step
        while (self.steps[:, index] < step).any():
            time.sleep(0.0005)
        buffer.copy_(torch.from_numpy(place.mean(0)))
        future.set_result(buffer)


_MOST_BUCKETS = 64


def shared_memory(args: argparse.Namespace) -> Hook:
    """Average the gradients through a file that all ranks map."""
    return SharedMemory(Path(args.shared), round(args.gradient_mb * 1e6)).hook


HOOKS: dict[str, Callable[[argparse.Namespace], Hook]] = {
    "with-a-small-one": with_a_small_one,
    "slow-to-unpack": slow_to_unpack,
    "shared-memory": shared_memory,
}
