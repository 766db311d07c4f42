"""Training without DDP, on gloo, for netprof to look at: fully sharded, or averaging gradients by hand.

    torchrun --nproc-per-node 2 examples/fsdp_train.py --seconds 30
    torchrun --nproc-per-node 2 examples/fsdp_train.py --how by-hand --accumulate 2

Rank, world size and master come from the environment. A line `training pid=... rank=...` on stdout says that the first
iteration begins. With `--csv FILE` (`{rank}` in it becomes the rank) every iteration gets a line of CLOCK_MONOTONIC
nanoseconds, taken before its first backward pass, before the optimizer's step and after it:

    iteration,backward_ns,step_ns,step_done_ns
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard


def network(args: argparse.Namespace) -> torch.nn.Sequential:
    """Return as many square layers as make the gradients `--gradient-mb` large (at least one)."""
    layers = max(1, round(args.gradient_mb * 1e6 / (4 * (args.width * args.width + args.width))))
    blocks = (torch.nn.Sequential(torch.nn.Linear(args.width, args.width), torch.nn.Tanh()) for _ in range(layers))
    return torch.nn.Sequential(*blocks)


def sharded(model: torch.nn.Sequential, mesh: DeviceMesh | None = None) -> torch.nn.Module:
    """Shard every layer over the ranks: its parameters are gathered to be used, its gradients scattered.

    With a mesh of two dimensions it is over the second one, and gradients are averaged over the first one too.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),)) if mesh is None else mesh
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def average(model: torch.nn.Module) -> None:
    """Average the gradients over the ranks, one all-reduce for each parameter, as simple scripts do."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def train(args: argparse.Namespace) -> None:
    """Train until --iterations or --seconds are over."""
    torch.manual_seed(0)
    by_hand = args.how == "by-hand"
    model = network(args) if by_hand else sharded(network(args))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    inputs, targets = torch.randn(args.batch, args.width), torch.randn(args.batch, args.width)
    print(f"training pid={os.getpid()} rank={dist.get_rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    deadline, iteration = time.monotonic() + args.seconds, 0
    path = args.csv.replace("{rank}", str(dist.get_rank())) if args.csv else None
    with open(path, "w", buffering=1) if path else contextlib.nullcontext() as log:
        if log:
            log.write("iteration,backward_ns,step_ns,step_done_ns\n")
        while not is_over(iteration, deadline, args.iterations):
            optimizer.zero_grad()
            times_ns = []
            for _ in range(args.accumulate):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                times_ns.append(time.monotonic_ns())
                loss.backward()
            if by_hand:
                average(model)
            times_ns = [times_ns[0], time.monotonic_ns()]
            optimizer.step()
            times_ns.append(time.monotonic_ns())
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
    over = torch.tensor(float(time.monotonic() > deadline))
    dist.broadcast(over, 0)
    return bool(over.item())


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--how", choices=["sharded", "by-hand"], default="sharded")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="backward passes before a step")
    parser.add_argument("--iterations", type=int, help="stop after so many optimizer steps")
    parser.add_argument("--seconds", type=float, default=30.0, help="stop after about so long")
    parser.add_argument("--csv", help="write the time of every step to this file")
    parser.add_argument("--gradient-mb", type=float, default=8.0, help="size of the gradients in 10^6 bytes")
    parser.add_argument("--width", type=int, default=512, help="width of a layer")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
