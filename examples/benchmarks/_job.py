"""The job that attach_overhead.py slows down, if it can: DDP iterations of a known length, timed by the job itself.

Its arguments: width and number of layers, rows of a batch, and how many more forward passes the last rank does, which
is late then. Reads a line per window from stdin: `plain N` or `profile N` (under torch.profiler); answers with the N
iterations' mean, median and longest time in ns.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Run one rank."""
    width, layers, batch, more = (int(argument) for argument in (*sys.argv[1:5], "0")[:4])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.Tanh())]
    model = DistributedDataParallel(torch.nn.Sequential(*parts))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(batch, width)

    is_late = dist.get_rank() == dist.get_world_size() - 1

    def iterate() -> None:
        for _ in range(more if is_late else 0):
            model.module(data)
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    iterate()
    print(f"ready {os.getpid()}", flush=True)
    for line in sys.stdin:
        mode, count = line.split()
        profiler = torch.profiler.profile() if mode == "profile" else contextlib.nullcontext()
        times = []
        with profiler:
            for _ in range(int(count)):
                begin = time.perf_counter_ns()
                iterate()
                times.append(time.perf_counter_ns() - begin)
        times.sort()
        print(sum(times) / len(times), times[len(times) // 2], times[-1], flush=True)


if __name__ == "__main__":
    main()
