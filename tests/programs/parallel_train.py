"""A job whose ranks share a model in one of the usual ways: SHAPE is the first option. One rank is late in every step.

    plain        gradients averaged one by one
    detail       the same with TORCH_DISTRIBUTED_DEBUG=DETAIL, under which the DDP of torch 2.13 crashes
    monitored    DDP, and a monitored barrier at the end of each step
    no_sync      DDP, two passes under no_sync, then one that is exchanged
    sparse       DDP of an embedding with sparse gradients, which each rank has as many of as it likes
    zero1        DDP whose optimizer's state is shared out (ZeroRedundancyOptimizer)
    join         DDP under Join: the last rank is out of data once the file `leave` is there
    fsdp2        fully_shard
    tensor       tensor parallel linear layers on a DeviceMesh
    context      ring attention: parts of keys and values go around a DeviceMesh
    gpipe        ScheduleGPipe, a stage on each rank and four microbatches

Its log has a line for what the rank did: kind, what, begin and end (CLOCK_MONOTONIC, ns). A `wait` blocks for other
ranks, `late` is what the late rank sleeps, and `step` is a step.
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
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe, schedules
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from train import connect

LATE_S = 0.04
WIDTH, LAYERS, BATCH, MICROBATCHES = 512, 3, 8, 4


class Log:
    """Spans of one rank, written step by step."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.rows = file, list[str]()

    @contextlib.contextmanager
    def span(self, kind: str, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            self.row(kind, what, begin)

    def row(self, kind: str, what: str, begin_ns: int) -> None:
        """Log what lasted until now."""
        self.rows.append(f"{kind},{what},{begin_ns},{time.monotonic_ns()}\n")

    def messages(self) -> None:
        """Log every message between two ranks: when it was posted, and how long it was waited for."""
        begin, wait, names = schedules._batch_p2p, dist.Work.wait, dict[int, str]()

        def posted(operations: list[Any], *args: Any, **options: Any) -> list[Any]:
            with self.span("posted", " ".join(f"{each.op.__name__}:{each.peer}" for each in operations)):
                works: list[Any] = begin(operations, *args, **options)
            names.update(
                (id(work), f"{each.op.__name__}:{each.peer}") for work, each in zip(works, operations, strict=True)
            )
            return works

        def waited(work: Any, *args: Any) -> Any:
            with self.span("wait", names.pop(id(work), "wait")):
                return wait(work, *args)

        wait_tensor = functional.wait_tensor

        def waited_tensor(tensor: torch.Tensor) -> torch.Tensor:
            with self.span("wait", "wait_tensor"):
                found: torch.Tensor = wait_tensor(tensor)
            return found

        all_reduce = functional.all_reduce

        def asked(*args: Any, **options: Any) -> Any:
            with self.span("posted", "all_reduce"):
                return all_reduce(*args, **options)

        functional.all_reduce = asked
        schedules._batch_p2p, dist.Work.wait, functional.wait_tensor = posted, waited, waited_tensor

    def flush(self) -> None:
        self.file.write("".join(self.rows))
        self.rows = []

    def sleep_if_late(self) -> None:
        """Be late, on the late rank: the last one."""
        if dist.get_rank() == dist.get_world_size() - 1:
            with self.span("late", "sleep"):
                time.sleep(LATE_S)


def layers(count: int = LAYERS) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)))


Step = Callable[[], None]


def data_parallel(shape: str, log: Log) -> tuple[Step, Any]:
    """Return what does a step of a DDP model, and the model."""
    x: torch.Tensor = torch.randn(BATCH, WIDTH)
    net: torch.nn.Module = layers()
    if shape == "sparse":
        net, x = torch.nn.EmbeddingBag(4096, 256, mode="sum", sparse=True), torch.randint(4096, (BATCH, 64))
    model = DistributedDataParallel(net, bucket_cap_mb=1.5)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if shape == "zero1":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=1e-3)

    ready_ns = [0]
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: ready_ns.__setitem__(0, time.monotonic_ns()))

    def step() -> None:
        optimizer.zero_grad()
        log.sleep_if_late()
        if shape == "no_sync":
            for _ in range(2):
                with model.no_sync():
                    model(x).pow(2).mean().backward()
        loss = model(x).pow(2).mean()
        loss.backward()
        log.row("wait", "backward", ready_ns[0])  # since the last gradient was there
        optimizer.step()
        if shape == "monitored":
            log.sleep_if_late()
            with log.span("wait", "monitored_barrier"):
                dist.monitored_barrier()

    return step, model


def plain(log: Log) -> Step:
    model, x = layers(), torch.randn(BATCH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        log.sleep_if_late()
        model(x).pow(2).mean().backward()
        for parameter in model.parameters():
            with log.span("wait", "all_reduce"):
                dist.all_reduce(parameter.grad)
        optimizer.step()

    return step


def fsdp2(log: Log) -> Step:
    model = layers()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        log.sleep_if_late()
        model(x).pow(2).mean().backward()
        optimizer.step()

    return step


def tensor_parallel(log: Log) -> Step:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    model = parallelize_module(layers(2), mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(1024, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        log.sleep_if_late()
        model(x).pow(2).mean().backward()
        optimizer.step()

    return step


class Ring(torch.autograd.Function):  # type: ignore[misc]
    """Attention of one part of a sequence to all: keys and values go from rank to rank."""

    @staticmethod
    def forward(context: Any, query: torch.Tensor, kept: torch.Tensor, group: Any) -> torch.Tensor:
        ranks, own = dist.get_world_size(group), dist.get_rank(group)
        total = torch.zeros_like(query)
        part = kept.detach().contiguous()
        for turn in range(ranks):
            total += torch.softmax(query @ part.T, dim=1) @ part
            if turn < ranks - 1:
                got = torch.empty_like(part)
                peers = [
                    dist.P2POp(dist.isend, part, (own + 1) % ranks, group),
                    dist.P2POp(dist.irecv, got, (own - 1) % ranks, group),
                ]
                for work in schedules._batch_p2p(peers):
                    work.wait()
                part = got
        return total

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return gradient, gradient, None


def context_parallel(log: Log) -> Step:
    group = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))["cp"].get_group()
    model = layers(2)
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3), torch.randn(512, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        log.sleep_if_late()
        Ring.apply(model[0](x), model[1](x), group).pow(2).mean().backward()
        optimizer.step()

    return step


def pipeline(log: Log) -> Step:
    rank, ranks = dist.get_rank(), dist.get_world_size()

    class Slow(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = layers(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if rank == 1:
                with log.span("late", "stage"):
                    time.sleep(LATE_S / 2)
            found: torch.Tensor = self.net(x)
            return found

    model, x = Slow(), torch.randn(MICROBATCHES * 64, WIDTH)
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    last = rank == ranks - 1
    schedule = ScheduleGPipe(stage, MICROBATCHES, loss_fn=lambda out, target: (out - target).pow(2).mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        schedule.step(*((x,) if rank == 0 else ()), **({"target": x} if last else {}))
        optimizer.step()

    return step


MADE_BY = {
    "plain": plain,
    "detail": plain,
    "fsdp2": fsdp2,
    "tensor": tensor_parallel,
    "context": context_parallel,
    "gpipe": pipeline,
}


def train(shape: str, log: Log, stop: Path) -> None:
    """Train until the file `stop` is there, all ranks up to the same step."""
    model: Any = None
    if shape in MADE_BY:
        step = MADE_BY[shape](log)
    else:
        step, model = data_parallel(shape, log)
    log.messages()
    if shape == "join":
        with Join([model]):
            steps(step, log, stop, shape)
    else:
        steps(step, log, stop, shape)


def steps(step: Step, log: Log, stop: Path, shape: str) -> None:
    store: Any = dist.distributed_c10d._get_default_store()
    number, joins = 0, shape == "join"
    print(f"training pid={os.getpid()} rank={dist.get_rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    while True:
        if joins:
            if dist.get_rank() == dist.get_world_size() - 1 and stop.with_name("leave").exists():
                return
            if dist.get_rank() == 0 and stop.exists():
                return
        elif number % 16 == 0:
            if dist.get_rank() == 0:
                store.set(str(number), "stop" if stop.exists() else "go")
            with log.span("wait", "store"):
                said = store.get(str(number))
            if said == b"stop":
                break
        with log.span("step", str(number)):
            step()
        log.flush()
        number += 1
    dist.barrier()  # the first rank keeps the store for the others


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True)
    parser.add_argument("--log", required=True)
    args = parser.parse_args(namespace=argparse.Namespace(master=None, rank=None, world_size=None, device="cpu"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if args.shape == "detail":
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    connect(args)
    with open(args.log, "w", buffering=1) as file:
        train(args.shape, Log(file), Path(args.log).parent / "stop")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
