"""Jobs for gpu_nccl.py beside DDP, two ranks on GPUs over NCCL: a model that is sharded (FSDP2), or cut into stages.

    python examples/benchmarks/_gpu_shapes.py --how fsdp2|pipeline --log FILE

The log has what examples/train.py writes of a step, as far as it is used: iteration,kind,begin_ns,end_ns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import _places  # noqa: F401  what examples share is found from here on
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from train import connect, device_of

MICROBATCHES = 4
Step = Callable[[], float]


def main() -> None:
    """Run one rank until it is ended."""
    args = _options()
    connect(args)
    torch.manual_seed(0)
    step = (fsdp2 if args.how == "fsdp2" else pipeline)(args, device_of(args))
    dist.barrier()
    print(f"training pid={os.getpid()} rank={dist.get_rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    with open(args.log, "w", buffering=1) as log:
        log.write("iteration,kind,begin_ns,end_ns\n")
        deadline, iteration = time.monotonic() + args.seconds, 0
        while time.monotonic() < deadline:
            begin_ns = time.monotonic_ns()
            step()
            log.write(f"{iteration},sync,{begin_ns},{time.monotonic_ns()}\n")
            iteration += 1


def fsdp2(args: argparse.Namespace, device: torch.device) -> Step:
    """Return a step of a model whose layers are sharded over the ranks."""
    model = _layers(args, device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inputs, targets = (torch.randn(args.batch, args.width, device=device) for _ in range(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def pipeline(args: argparse.Namespace, device: torch.device) -> Step:
    """Return a step of a model with a stage on each rank, in a GPipe schedule."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(_layers(args, device), rank, ranks, device)
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=torch.nn.functional.mse_loss)
    inputs, targets = (torch.randn(args.batch, args.width, device=device) for _ in range(2))
    optimizer = torch.optim.SGD(stage.submod.parameters(), lr=0.01)
    first, last = rank == 0, rank == ranks - 1

    def step() -> float:
        optimizer.zero_grad()
        schedule.step(*((inputs,) if first else ()), **({"target": targets} if last else {}))
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return 0.0

    return step


def _layers(args: argparse.Namespace, device: torch.device) -> torch.nn.Sequential:
    """Return as many square layers as make the parameters `--gradient-mb` large (at least one)."""
    count = max(1, round(args.gradient_mb * 1e6 / (4 * (args.width * args.width + args.width))))
    blocks = (torch.nn.Sequential(torch.nn.Linear(args.width, args.width), torch.nn.Tanh()) for _ in range(count))
    return torch.nn.Sequential(*blocks).to(device)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--how", choices=("fsdp2", "pipeline"), required=True)
    parser.add_argument("--log", required=True, help="write the time of every step to this file")
    parser.add_argument("--gradient-mb", type=float, default=67.1, help="size of the parameters in 10^6 bytes")
    parser.add_argument("--width", type=int, default=2048, help="width of a layer; a layer has width^2 parameters")
    parser.add_argument("--batch", type=int, default=4096, help="rows of a batch: compute time grows with it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--seconds", type=float, default=60.0)
    for name in ("rank", "world_size", "master"):
        parser.set_defaults(**{name: None})
    return parser.parse_args()


if __name__ == "__main__":
    main()
