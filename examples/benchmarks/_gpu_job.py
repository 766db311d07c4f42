"""The GPU job of gpu_sampling.py: DDP over gloo with its tensors on a GPU, so that real bytes cross real sockets.

Reads orders from stdin: `train N` answers with the median time of N iterations in ns; `duty SHARE SECONDS` keeps the
GPU busy for that share of every 100 ms and answers with the share of time from launching kernels to their end.
"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PERIOD_S = 0.1


def main() -> None:
    """Run one rank on the device named by the argument: cuda, or cpu to try the script out."""
    kind = sys.argv[1]
    dist.init_process_group("gloo")
    device = torch.device(kind, dist.get_rank() % torch.cuda.device_count()) if kind == "cuda" else torch.device("cpu")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = 1024 if kind == "cuda" else 128
    parts = [part for _ in range(8) for part in (torch.nn.Linear(width, width), torch.nn.Tanh())]
    model = DistributedDataParallel(torch.nn.Sequential(*parts).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(256, width, device=device)
    matrix = torch.randn(2048 if kind == "cuda" else 256, 2048 if kind == "cuda" else 256, device=device)

    def iterate() -> None:
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        finish(device)

    iterate()
    print(f"ready {os.getpid()}", flush=True)
    for line in sys.stdin:
        order, *values = line.split()
        if order == "train":
            print(train(iterate, int(values[0])), flush=True)
        else:
            print(duty(matrix, float(values[0]), float(values[1])), flush=True)


def train(iterate: object, count: int) -> int:
    """Return the median time of an iteration in ns."""
    times = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        iterate()  # type: ignore[operator]
        times.append(time.perf_counter_ns() - begin)
    return sorted(times)[count // 2]


def duty(matrix: torch.Tensor, share: float, seconds: float) -> float:
    """Multiply matrices for `share` of every period; return the share of time spent on products."""
    busy_s, begin_s = 0.0, time.perf_counter()
    until_s = begin_s + seconds
    while (now_s := time.perf_counter()) < until_s:
        while time.perf_counter() < now_s + share * PERIOD_S:
            before_s = time.perf_counter()
            for _ in range(20):
                matrix @ matrix
            finish(matrix.device)
            busy_s += time.perf_counter() - before_s
        time.sleep(max(0.0, now_s + PERIOD_S - time.perf_counter()))
    return busy_s / (time.perf_counter() - begin_s)


def finish(device: torch.device) -> None:
    """Wait for what was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
