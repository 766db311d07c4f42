"""A real Horovod job on gloo, for netprof to look at.

    horovodrun -np 2 --gloo python examples/horovod_train.py --seconds 30

Horovod comes from `examples/build_horovod`. A line `training pid=... rank=...` on stdout says that the first iteration
begins. With `--csv FILE` (`{rank}` in it becomes the rank) every iteration gets a CSV line of CLOCK_MONOTONIC
nanoseconds, taken before the backward pass, after it, and after the optimizer's step:

    iteration,backward_ns,backward_done_ns,step_done_ns
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time

import horovod.torch as hvd
import torch


def network(gradient_mb: float, width: int) -> torch.nn.Module:
    """Return as many square layers as make the gradients `gradient_mb` large (at least one)."""
    layers = max(1, round(gradient_mb * 1e6 / (4 * (width * width + width))))
    parts = (part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.Tanh()))
    return torch.nn.Sequential(*parts)


def is_over(iteration: int, deadline: float, iterations: int | None) -> bool:
    """Tell whether to stop, on every rank after the same iteration: rank 0 says when time is up."""
    if iterations is not None:
        return iteration >= iterations
    if iteration % 10:
        return False
    return bool(hvd.broadcast(torch.tensor(float(time.monotonic() > deadline)), 0, name="over").item())


def main() -> None:
    """Train until --iterations or --seconds are over."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--iterations", type=int, help="stop after so many optimizer steps")
    parser.add_argument("--seconds", type=float, default=30.0, help="stop after about so long")
    parser.add_argument("--csv", help="write the time of every step to this file")
    parser.add_argument("--gradient-mb", type=float, default=8.0, help="size of the gradients in 10^6 bytes")
    parser.add_argument("--width", type=int, default=512, help="width of a layer")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(0)
    model = network(args.gradient_mb, args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(1 + hvd.rank())
    inputs, targets = torch.randn(args.batch, args.width), torch.randn(args.batch, args.width)
    print(f"training pid={os.getpid()} rank={hvd.rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    deadline, iteration = time.monotonic() + args.seconds, 0
    path = args.csv.replace("{rank}", str(hvd.rank())) if args.csv else None
    with open(path, "w", buffering=1) if path else contextlib.nullcontext() as log:
        if log:
            log.write("iteration,backward_ns,backward_done_ns,step_done_ns\n")
        while not is_over(iteration, deadline, args.iterations):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            times_ns = [time.monotonic_ns()]
            loss.backward()
            times_ns.append(time.monotonic_ns())
            optimizer.step()
            times_ns.append(time.monotonic_ns())
            if log:
                log.write(",".join(map(str, (iteration, *times_ns))) + "\n")
            iteration += 1
    print(f"done iterations={iteration} loss={loss.item():.6f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
