"""A job whose step is more than one pass of one DDP model: SHAPE is the first option, the rest are the example job's.

    accumulate   three passes under no_sync, then one that is exchanged
    two_in_turn  two models, each with a pass and an optimizer of its own
    gan          a generator whose step runs through the discriminator, which has a step of its own
    one_step     two models, the output of one being the other's input
    metric       a collective after the optimizer's step, whose result is waited for
    unused       find_unused_parameters, and a layer that is not used
    own_hook     a communication hook that waits for a small all-reduce before the bucket's
    powersgd     PowerSGD: several all-reduces for the one bucket, one after the other

Every step is a CSV line of its log: the nanoseconds that its forward passes, its calls of backward and its waiting for
anything else took, between the times of its begin and end.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from train import connect

WIDTH = 512


def model(layers: int = 3, *, skip: bool = False) -> DistributedDataParallel:
    """Return a small model; with `skip`, one that does not use its last layer."""

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.used = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
            self.other = torch.nn.Linear(WIDTH, WIDTH) if skip else None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    return DistributedDataParallel(Net(), bucket_cap_mb=1.5, find_unused_parameters=skip)


class Step:
    """What one step spends where, ns."""

    def __init__(self) -> None:
        self.spent = {"forward": 0, "backward": 0, "wait": 0}

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        yield
        self.spent[what] += time.monotonic_ns() - begin

    def forward(self, net: DistributedDataParallel, x: torch.Tensor) -> torch.Tensor:
        with self.timed("forward"):
            found: torch.Tensor = net(x)
        return found

    def backward(self, loss: torch.Tensor) -> None:
        with self.timed("backward"):
            loss.backward()


def own_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # DDP reads it
    """Average a bucket, after all ranks agreed on a scale."""
    scale = bucket.buffer().abs().max().reshape(1)
    dist.all_reduce(scale, op=dist.ReduceOp.MAX)
    done = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
    return done.then(lambda future: future.value()[0])


def make_step(shape: str) -> Callable[[Step], None]:
    """Return what does one step of a shape."""
    # the chains of two buckets would mix on gloo's threads, in another order on each rank
    first = model(1 if shape == "powersgd" else 3, skip=shape == "unused")
    second = model() if shape in ("two_in_turn", "gan", "one_step") else None
    if shape == "own_hook":
        first.register_comm_hook(None, own_hook)
    if shape == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        first.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    nets = [first] if second is None else [first, second]
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in nets]
    x = torch.randn(256, WIDTH)

    def update(number: int) -> None:
        optimizers[number].step()
        for optimizer in optimizers:
            optimizer.zero_grad()

    def one(step: Step) -> None:
        if shape == "accumulate":
            for _ in range(3):
                with first.no_sync():
                    step.backward(step.forward(first, x).pow(2).mean())
        if shape == "gan":
            assert second is not None
            made = step.forward(second, x)
            step.backward(step.forward(first, made.detach()).pow(2).mean())
            update(0)
            step.backward(step.forward(first, made).pow(2).mean())
            update(1)
            return
        y = step.forward(first, x)
        if shape == "one_step":
            assert second is not None
            y = step.forward(second, y)
        step.backward(y.pow(2).mean())
        update(0)
        if shape == "one_step":
            optimizers[1].step()
        if shape == "two_in_turn":
            assert second is not None
            step.backward(step.forward(second, x).pow(2).mean())
            update(1)
        if shape == "metric":
            with step.timed("wait"):
                dist.all_reduce(torch.zeros(2_000_000))
        time.sleep(0.02)

    return one


def train(shape: str, log: TextIO, stop: Path) -> None:
    """Train until the file `stop` is there, all ranks up to the same step."""
    one = make_step(shape)
    dist.barrier()
    print(f"training pid={os.getpid()} rank={dist.get_rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    store: Any = dist.distributed_c10d._get_default_store()
    number = 0
    while True:
        if dist.get_rank() == 0:
            store.set(str(number), "stop" if stop.exists() else "go")
        if store.get(str(number)) == b"stop":
            return
        step, begin_ns = Step(), time.monotonic_ns()
        one(step)
        log.write(",".join(map(str, (begin_ns, *step.spent.values(), time.monotonic_ns()))) + "\n")
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True)
    parser.add_argument("--log", required=True)
    args = parser.parse_args(namespace=argparse.Namespace(master=None, rank=None, world_size=None, device="cpu"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    connect(args)
    with open(args.log, "w", buffering=1) as log:
        log.write("begin_ns,forward_ns,backward_ns,wait_ns,end_ns\n")
        train(args.shape, log, Path(args.log).parent / "stop")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
