"""A real training job of many shapes that measures itself what it waits for: what examples/causes.py runs.

    torchrun --nproc-per-node 2 examples/causes_train.py --shape two-in-turn --log /tmp

It trains until it is killed. A line `training pid=... rank=...` on stdout says that all ranks are connected and the
first step is over. With `--log FOLDER` every step gets a line in FOLDER/rankN.csv: CLOCK_MONOTONIC nanoseconds at its
begin and end, and how long which part of it took:

    iteration,begin_ns,slept_ns,forward_ns,backward_ns,waited_ns,end_ns

`slept_ns` is what --late-ms did; `forward_ns` and `backward_ns` are the passes without any waiting in them; in
`waited_ns` this rank did nothing but wait for others: from its last gradient to the end of the backward pass, and in
blocking collectives (-1 with --shape sharded or hybrid, where it cannot be told). What is left is the optimizer.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import torch
import torch.distributed as dist
from causes_carried import SHAPES as CARRIED
from causes_carried import carried
from causes_hooks import HOOKS
from causes_late import BEFORE_ITS_FORWARD_PASS, LATE_BY, compute
from causes_models import Network, Stopwatch, layer_width
from causes_start import STARTS, start
from fsdp_train import sharded
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

COLUMNS = ("iteration", "begin_ns", "slept_ns", "forward_ns", "backward_ns", "waited_ns", "end_ns")
SHAPES = ("one", "two-in-one-step", "two-in-turn", "pairs", "unused", "synced-norm", "sharded", "hybrid", *CARRIED)
_SHARDED = ("sharded", "hybrid")


class Job:
    """The models of one rank, its data, and its log."""

    def __init__(self, args: argparse.Namespace, log: TextIO | None) -> None:
        self.args, self.rank, self.watch = args, dist.get_rank(), Stopwatch()
        self.computes_longer, self.iteration, self.log = False, 0, log
        if log:
            log.write(",".join(COLUMNS) + "\n")
        torch.manual_seed(0)  # the same models on every rank
        if args.shape in CARRIED:
            self.carried = carried(args, self.watch, lambda: self._be_late(self.iteration))
            return
        self.models = self._models()
        self.optimizer = torch.optim.SGD([p for model in self.models for p in model.parameters()], lr=0.01)
        torch.manual_seed(1 + self.rank)
        self.inputs, self.targets = torch.randn(2, args.batch, layer_width(args))

    def _models(self) -> list[nn.Module]:
        if self.args.shape in _SHARDED:
            mesh = _replicas() if self.args.shape == "hybrid" else None
            return [sharded(Network(self.args, Stopwatch()).layers, mesh)]
        group = _pair() if self.args.shape == "pairs" else None
        count = 2 if self.args.shape.startswith("two") else 1
        return [self._ddp(group) for _ in range(count)]

    def _ddp(self, group: dist.ProcessGroup | None) -> nn.Module:
        model = DistributedDataParallel(
            Network(self.args, self.watch),
            process_group=group,
            bucket_cap_mb=self.args.bucket_mb,
            find_unused_parameters=self.args.shape == "unused",
        )
        if self.args.hook != "none":
            model.register_comm_hook(None, HOOKS[self.args.hook](self.args))
        return model

    def iterate(self, iteration: int) -> None:
        """Train for one step, and log it."""
        self.watch.reset()
        begin_ns, self.iteration = time.monotonic_ns(), iteration
        if self.args.shape in CARRIED:
            self.carried.step()
            self._write(iteration, begin_ns)
            return
        self._be_late(iteration)
        for part in range(1, self.args.accumulate + 1):
            self._pass(exchanges=part == self.args.accumulate)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.args.metric:
            with self.watch.waiting():
                dist.all_reduce(torch.ones(1))
        if self.args.gather:
            with self.watch.waiting():
                self._gather()
        self._write(iteration, begin_ns)

    def _gather(self) -> None:
        """Send as much as the gradients to rank 0, all ranks at once."""
        mine = torch.zeros(round(self.args.gradient_mb * 1e6 / 4))
        every = [torch.zeros_like(mine) for _ in range(dist.get_world_size())] if self.rank == 0 else None
        dist.gather(mine, every, dst=0)

    def _be_late(self, iteration: int) -> None:
        """Sleep or write if it is this rank's turn to be late, or have the forward pass compute for longer."""
        late, every = self.args.late_ranks, self.args.late_every
        self.computes_longer = False
        if not late or iteration % every != every - 1 or late[iteration // every % len(late)] != self.rank:
            return
        if self.args.late_file and not self.args.late_file.exists():
            return
        begin_ns = time.monotonic_ns()
        if self.args.late_by == "compute":
            self.computes_longer = True
        else:
            BEFORE_ITS_FORWARD_PASS[self.args.late_by](self.args.late_ms / 1e3)
        self.watch.slept_ns = time.monotonic_ns() - begin_ns

    def _pass(self, exchanges: bool) -> None:
        """Run forward and backward once: through all models as one, or through one after the other."""
        chains = [[model] for model in self.models] if self.args.shape == "two-in-turn" else [self.models]
        for chain in chains:
            with contextlib.ExitStack() as local:
                if not exchanges:
                    for model in chain:
                        local.enter_context(model.no_sync())
                loss = self.watch.forward(functools.partial(self._loss, chain))
                self.watch.backward(loss, exchanges)

    def _loss(self, chain: Sequence[nn.Module]) -> torch.Tensor:
        output: torch.Tensor = functools.reduce(lambda x, model: model(x), chain, self.inputs)
        if self.computes_longer:
            compute(self.args.late_ms / 1e3)
        return nn.functional.mse_loss(output, self.targets)

    def _write(self, iteration: int, begin_ns: int) -> None:
        watch = self.watch
        waited_ns = -1 if self.args.shape in _SHARDED else watch.waited_ns
        spent_ns = (watch.slept_ns, watch.forward_ns, watch.backward_ns, waited_ns)
        if self.log:
            self.log.write(",".join(map(str, (iteration, begin_ns, *spent_ns, time.monotonic_ns()))) + "\n")


def _pair() -> dist.ProcessGroup:
    """Return the group of this rank and the one half the world away; every rank has to make all of them."""
    half = dist.get_world_size() // 2
    pairs: list[dist.ProcessGroup] = [dist.new_group([first, first + half]) for first in range(half)]
    return pairs[dist.get_rank() % half]


def _replicas() -> DeviceMesh:
    """Return the ranks as two replicas of a model, each sharded over its half of them."""
    half = dist.get_world_size() // 2
    return init_device_mesh("cpu", (2, half), mesh_dim_names=("replicate", "shard"))


def hold_a_collective_open(group: dist.ProcessGroup) -> None:
    """Ask again and again for an all-reduce to which rank 0 comes 1.5 s before the others."""
    while True:
        if dist.get_rank():
            time.sleep(1.5)
        dist.all_reduce(torch.ones(1), group=group)


def send_heartbeats() -> None:
    """Write to the store every 20 ms: a few packets that are no gradients."""
    store = dist.distributed_c10d._get_default_store()
    while True:
        store.set(f"heartbeat{dist.get_rank()}", "")
        time.sleep(0.02)


def train(args: argparse.Namespace) -> None:
    """Train for ever; the process group is there."""
    if args.background:
        threading.Thread(target=hold_a_collective_open, args=[dist.new_group()], daemon=True).start()
    if args.heartbeats:
        threading.Thread(target=send_heartbeats, daemon=True).start()
    path = Path(args.log) / f"rank{dist.get_rank()}.csv" if args.log else None
    with path.open("w", buffering=1) if path else contextlib.nullcontext() as log:
        job = Job(args, log)
        for iteration in itertools.count():
            job.iterate(iteration)
            if not iteration:
                # At once: ranks that one of them started write to the same pipe.
                os.write(1, f"training pid={os.getpid()} rank={job.rank}\n".encode())


def run_rank(args: argparse.Namespace) -> None:
    """Train as a rank whose process group is there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end at once: a collective would keep ctrl-C waiting
    signal.alarm(args.seconds)
    torch.set_num_threads(1)
    train(args)


def numbers(text: str) -> list[int]:
    """Read a list of ranks."""
    return [int(number) for number in text.split(",") if number]


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--log", help="folder for the time of every step")
    parser.add_argument("--seconds", type=int, default=600, help="it is killed after so long at the latest")
    parser.add_argument("--start", choices=STARTS, default="each", help="how the ranks come to be: see causes_start.py")
    parser.add_argument(
        "--hosts", type=lambda text: text.split(","), help="network namespaces of the ranks, for --start"
    )
    parser.add_argument("--shape", choices=SHAPES, default="one", help="which models, and how they are trained")
    parser.add_argument("--gradient-mb", type=float, default=12.0, help="gradients of a model in 10^6 bytes")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8, help="rows of a batch: compute time grows with it")
    parser.add_argument("--compute-ms", type=float, default=0.0, help="that the passes take longer, without any CPU")
    parser.add_argument("--bucket-mb", type=float, help="as of DistributedDataParallel, in MiB; default: its own")
    parser.add_argument("--hook", choices=["none", *HOOKS], default="none", help="see causes_hooks.py")
    parser.add_argument("--shared", help="the file through which --hook shared-memory exchanges")
    parser.add_argument("--accumulate", type=int, default=1, metavar="N", help="N passes before a step")
    parser.add_argument("--late-ranks", type=numbers, default=[], help="who is late, in turn")
    parser.add_argument("--late-ms", type=float, default=0.0, help="by how much")
    parser.add_argument("--late-by", choices=LATE_BY, default="data", help="what the late rank does")
    parser.add_argument("--late-file", type=Path, help="nobody is late while there is no such file")
    parser.add_argument("--late-every", type=int, default=1, metavar="N", help="only in every Nth step")
    parser.add_argument("--metric", action="store_true", help="a blocking all-reduce of 4 bytes after every step")
    parser.add_argument("--gather", action="store_true", help="rank 0 gathers as many bytes from each after every step")
    parser.add_argument("--background", action="store_true", help="a thread that holds a collective open")
    parser.add_argument("--heartbeats", action="store_true", help="a thread that sends a little all the time")
    return parser.parse_args()


if __name__ == "__main__":
    start(parse_args(), run_rank)
