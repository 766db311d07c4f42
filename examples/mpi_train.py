"""Training whose gradients are averaged by MPI through mpi4py, for netprof to look at.

    mpirun -np 2 python examples/mpi_train.py --seconds 30
    mpirun -np 2 python examples/mpi_train.py --how posted

A line `training pid=... rank=...` on stdout says that the first iteration begins. With `--csv FILE` (`{rank}` in it
becomes the rank) every iteration gets a line of CLOCK_MONOTONIC nanoseconds: before its backward pass, how long it was
in the calls that wait for the other ranks, about what of that is Python's own, and after the optimizer's step:

    iteration,backward_ns,waited_ns,around_ns,step_done_ns
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from mpi4py import MPI

WORLD = MPI.COMM_WORLD


def network(args: argparse.Namespace) -> torch.nn.Sequential:
    """Return as many square layers as make the gradients `--gradient-mb` large (at least one)."""
    layers = max(1, round(args.gradient_mb * 1e6 / (4 * (args.width * args.width + args.width))))
    blocks = (torch.nn.Sequential(torch.nn.Linear(args.width, args.width), torch.nn.Tanh()) for _ in range(layers))
    return torch.nn.Sequential(*blocks)


def average(parameters: Iterable[torch.nn.Parameter], posted: bool) -> tuple[int, int]:
    """Average the gradients over the ranks, one all-reduce for each parameter; `posted`: all at once.

    Returns the nanoseconds in the calls that wait, and about what of them is Python's own: as long as the same
    arguments take in calls of MPI that have nothing to do.
    """
    gradients = [parameter.grad.div_(WORLD.size).numpy() for parameter in parameters if parameter.grad is not None]
    if posted:
        requests = [WORLD.Iallreduce(MPI.IN_PLACE, gradient) for gradient in gradients]
        return took_ns(lambda: MPI.Request.Waitall(requests)), took_ns(lambda: MPI.Request.Testall(requests))
    waited_ns = sum(took_ns(partial(WORLD.Allreduce, MPI.IN_PLACE, gradient)) for gradient in gradients)
    return waited_ns, sum(map(arguments_ns, gradients))


def arguments_ns(gradient: npt.NDArray[np.float32]) -> int:
    """Return how long it takes to hand a buffer to a call of MPI that has nothing to do."""
    begin_ns = time.monotonic_ns()
    request = WORLD.Send_init(gradient, MPI.PROC_NULL)
    found = time.monotonic_ns() - begin_ns
    request.Free()
    return found


def took_ns(call: Callable[[], object]) -> int:
    """Return how long a call took."""
    begin_ns = time.monotonic_ns()
    call()
    return time.monotonic_ns() - begin_ns


def train(args: argparse.Namespace) -> None:
    """Train until --iterations or --seconds are over."""
    torch.manual_seed(0)
    model = network(args)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1 + WORLD.rank)
    inputs, targets = torch.randn(args.batch, args.width), torch.randn(args.batch, args.width)
    print(f"training pid={os.getpid()} rank={WORLD.rank}", flush=True)
    deadline, iteration = time.monotonic() + args.seconds, 0
    path = args.csv.replace("{rank}", str(WORLD.rank)) if args.csv else None
    with open(path, "w", buffering=1) if path else contextlib.nullcontext() as log:
        if log:
            log.write("iteration,backward_ns,waited_ns,around_ns,step_done_ns\n")
        while not is_over(iteration, deadline, args.iterations):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            backward_ns = time.monotonic_ns()
            loss.backward()
            waited_ns, around_ns = average(model.parameters(), args.how == "posted")
            optimizer.step()
            times_ns = backward_ns, waited_ns, around_ns, time.monotonic_ns()
            if log:
                log.write(",".join(map(str, (iteration, *times_ns))) + "\n")
            iteration += 1
    print(f"done iterations={iteration} loss={loss.item():.6f}", flush=True)


def is_over(iteration: int, deadline: float, iterations: int | None) -> bool:
    """Tell whether to stop, on every rank after the same iteration: rank 0 says when time is up."""
    if iterations is not None:
        return iteration >= iterations
    if iteration % 10:
        return False
    over = np.array([time.monotonic() > deadline], np.int32)
    WORLD.Bcast(over, 0)
    return bool(over[0])


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--how", choices=["blocking", "posted"], default="blocking")
    parser.add_argument("--iterations", type=int, help="stop after so many optimizer steps")
    parser.add_argument("--seconds", type=float, default=30.0, help="stop after about so long")
    parser.add_argument("--csv", help="write the time of every step to this file")
    parser.add_argument("--gradient-mb", type=float, default=8.0, help="size of the gradients in 10^6 bytes")
    parser.add_argument("--width", type=int, default=512, help="width of a layer")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch")
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
