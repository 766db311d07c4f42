"""A real DDP training job on gloo, or with `--device cuda` on NCCL, for netprof to look at.

    torchrun --nproc-per-node 2 examples/train.py --seconds 30
    python examples/train.py --rank 0 --world-size 2 --master 10.0.0.1:29500     # one per host

Rank, world size and master come from the environment, as torchrun sets it (that is where netprof looks for them), or
from the options. A line `training pid=... rank=...` on stdout says that all ranks are connected and the first iteration
begins. With `--log FILE` every forward pass gets a CSV line of CLOCK_MONOTONIC nanoseconds:

    iteration,kind,begin_ns,forward_done_ns,backward_done_ns,end_ns,gradient_ns

`kind` is `sync` (gradients are averaged in this backward pass), `local` (accumulated only, --no-sync) or `eval` (no
backward pass). `begin_ns` is taken just before the forward pass, `end_ns` after optimizer and simulated data loading,
`gradient_ns` when the last gradient was there (0: none was computed). On GPUs these are the host's times, which
launches and does not wait, but for the loss: see `--loss-every`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import time
from typing import TextIO

import psutil
import torch
import torch.distributed as dist
from dgc_hook import Dgc, DgcOptions, dgc_hook
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


class Job:
    """The model, its data, and the log of one rank."""

    def __init__(self, args: argparse.Namespace, log: TextIO | None) -> None:
        self.args, self.log = args, log
        torch.manual_seed(args.seed)  # the same model on every rank
        device = device_of(args)
        self.model = DistributedDataParallel(_network(args).to(device), bucket_cap_mb=args.bucket_cap_mb)
        compress(self.model, args)
        momentum = 0.0 if args.hook.startswith("dgc") else args.momentum  # there the hook has it
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=momentum)
        torch.manual_seed(args.seed + 1 + dist.get_rank())  # other data on every rank
        self.inputs = torch.randn(args.batch, args.width, device=device)
        self.targets = torch.randn(args.batch, args.width, device=device)
        self.loss = float("nan")
        self.gradient_ns = 0
        for parameter in next(iter(self.model.module.children())).parameters():  # whose gradients come last
            parameter.register_hook(self._note_gradient)
        self.jitter = random.Random(args.seed)

    def iterate(self, iteration: int) -> None:
        """Train for one optimizer step, and evaluate where it is time to."""
        for part in range(1, self.args.no_sync + 1):
            self._train(iteration, last=part == self.args.no_sync)
        if self.args.eval_every and iteration % self.args.eval_every == self.args.eval_every - 1:
            self._evaluate(iteration)

    def _train(self, iteration: int, last: bool) -> None:
        self.gradient_ns, begin_ns = 0, time.monotonic_ns()
        with contextlib.nullcontext() if last else self.model.no_sync():
            loss = torch.nn.functional.mse_loss(self.model(self.inputs), self.targets)
            forward_done_ns = time.monotonic_ns()
            loss.backward()
        backward_done_ns = time.monotonic_ns()
        if last:
            self.optimizer.step()
            self.optimizer.zero_grad()
        if iteration % self.args.loss_every == 0:
            self.loss = loss.item()
        if self.args.data_ms:
            time.sleep(self._data_s())
        self._write(iteration, "sync" if last else "local", begin_ns, forward_done_ns, backward_done_ns)

    def _note_gradient(self, gradient: torch.Tensor) -> None:
        self.gradient_ns = time.monotonic_ns()

    def _data_s(self) -> float:
        """Return how long the next batch takes to load; drawn alike on every rank."""
        drawn_s = float(self.args.data_ms / 1e3 * (1 + self.args.data_jitter * self.jitter.gauss(0, 1)))
        return max(0.0, drawn_s)

    def _evaluate(self, iteration: int) -> None:
        self.model.eval()
        self.gradient_ns, begin_ns = 0, time.monotonic_ns()
        with torch.no_grad():
            self.loss = torch.nn.functional.mse_loss(self.model(self.inputs), self.targets).item()
        done_ns = time.monotonic_ns()
        self.model.train()
        self._write(iteration, "eval", begin_ns, done_ns, done_ns)

    def _write(self, iteration: int, kind: str, *times_ns: int) -> None:
        if self.log:
            row = (iteration, kind, *times_ns, time.monotonic_ns(), self.gradient_ns)
            self.log.write(",".join(map(str, row)) + "\n")


class Clock:
    """Says when to stop, on every rank after the same iteration."""

    def __init__(self, iterations: int | None, seconds: float | None) -> None:
        self.last = iterations - 1 if iterations else None
        self.deadline = time.monotonic() + seconds if seconds else float("inf")
        self.store = dist.distributed_c10d._get_default_store()

    def is_over(self, iteration: int) -> bool:
        """Tell whether `iteration` lies behind the last one."""
        if self.deadline < float("inf") and (self.last is None or self.last >= iteration):
            self._agree(iteration)
        return self.last is not None and iteration > self.last

    def _agree(self, iteration: int) -> None:
        """Rank 0 names the last iteration when time is up; the others begin to ask a second before.

        They ask in time: no rank gets past the all-reduce of an iteration that rank 0 has not begun.
        """
        left_s = self.deadline - time.monotonic()
        if dist.get_rank() == 0 and left_s <= 0:
            self.store.set("last", str(iteration))
        if left_s <= 1 and self.store.check(["last"]):
            named = int(self.store.get("last"))
            self.last = named if self.last is None else min(self.last, named)
            self.deadline = float("inf")


def compress(model: DistributedDataParallel, args: argparse.Namespace) -> None:
    """Register the communication hook that `--hook` names."""
    name, _, amount = args.hook.partition(":")
    if name == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif name == "powersgd":
        low_rank = powerSGD_hook.PowerSGDState(None, int(amount or 1), start_powerSGD_iter=2)
        model.register_comm_hook(low_rank, powerSGD_hook.powerSGD_hook)
    elif name == "dgc":
        density = float(amount.removesuffix("%") or 0.1) / 100
        model.register_comm_hook(
            Dgc(DgcOptions(density, momentum=args.momentum, warmup_steps=args.warmup_steps)), dgc_hook
        )
    elif name != "none":
        raise SystemExit(f"--hook {args.hook}: none, fp16, bf16, powersgd:RANK or dgc:PERCENT")


def _network(args: argparse.Namespace) -> torch.nn.Module:
    """Return as many square layers as make the gradients `--gradient-mb` large (at least one)."""
    layer_bytes = 4 * (args.width * args.width + args.width)
    layers = max(1, round(args.gradient_mb * 1e6 / layer_bytes))
    parts = (part for _ in range(layers) for part in (torch.nn.Linear(args.width, args.width), torch.nn.Tanh()))
    return torch.nn.Sequential(*parts)


def interface_towards(address: str) -> str | None:
    """Return the interface whose address this host uses to talk to `address`; gloo would ask the host's name."""
    family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        own = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == own for entry in addresses):
            return name
    return None


def device_of(args: argparse.Namespace) -> torch.device:
    """Return where this rank computes: ranks of a host take its GPUs in turn."""
    if args.device == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", dist.get_rank() % torch.cuda.device_count())


def connect(args: argparse.Namespace) -> None:
    """Join the process group, over the interface that leads to the master."""
    if args.master:
        os.environ["MASTER_ADDR"], _, os.environ["MASTER_PORT"] = args.master.rpartition(":")
    if args.rank is not None:
        os.environ["RANK"] = str(args.rank)
    if args.world_size is not None:
        os.environ["WORLD_SIZE"] = str(args.world_size)
    interface = interface_towards(os.environ.setdefault("MASTER_ADDR", "127.0.0.1"))
    os.environ.setdefault("MASTER_PORT", "29500")
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if args.device == "cuda":
        # NCCL refuses ranks that share a GPU, unless they say to be on hosts of their own: it takes the network then.
        os.environ.setdefault("NCCL_HOSTID", f"host {os.environ['RANK']}")
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    if args.device == "cuda":
        torch.cuda.set_device(device_of(args))


def train(args: argparse.Namespace, log: TextIO | None) -> None:
    """Train until --iterations or --seconds are over, and say how far it came."""
    job = Job(args, log)
    dist.barrier()
    print(f"training pid={os.getpid()} rank={dist.get_rank()}\n", end="", flush=True)  # whole: ranks may share a pipe
    clock, iteration = Clock(args.iterations, args.seconds), 0
    while not clock.is_over(iteration):
        job.iterate(iteration)
        iteration += 1
    print(f"done iterations={iteration} loss={job.loss:.6f}", flush=True)


def parse_args() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rank", type=int, help="default: $RANK")
    parser.add_argument("--world-size", type=int, help="default: $WORLD_SIZE")
    parser.add_argument("--master", help="host:port of rank 0; default: $MASTER_ADDR:$MASTER_PORT")
    parser.add_argument("--iterations", type=int, help="stop after so many optimizer steps")
    parser.add_argument("--seconds", type=float, help="stop after about so long, all ranks after the same step")
    parser.add_argument("--log", help="write the time of every step to this file")
    parser.add_argument("--gradient-mb", type=float, default=25.2, help="size of the gradients in 10^6 bytes")
    parser.add_argument("--width", type=int, default=1024, help="width of a layer; a layer has width^2 parameters")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch: compute time grows with it")
    parser.add_argument("--bucket-cap-mb", type=float, help="as of DistributedDataParallel, in MiB; default: its own")
    parser.add_argument("--hook", default="none", help="none, or gradients as fp16, bf16, powersgd:RANK, dgc:PERCENT")
    parser.add_argument("--warmup-steps", type=int, default=4, metavar="N", help="of each stage of dgc's warm-up")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--no-sync", type=int, default=1, metavar="N", help="accumulate N passes before a step")
    parser.add_argument("--eval-every", type=int, default=0, metavar="N", help="evaluate after every N steps")
    parser.add_argument("--data-ms", type=float, default=0.0, help="time that loading a batch takes")
    parser.add_argument("--data-jitter", type=float, default=0.0, help="standard deviation of that, as a share of it")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: on GPUs, over NCCL's network")
    parser.add_argument("--loss-every", type=int, default=1, metavar="N", help="read the loss, which waits for the GPU")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Run one rank."""
    args = parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end at once: a collective would keep ctrl-C waiting
    torch.set_num_threads(args.threads)
    connect(args)
    with open(args.log, "w", buffering=1) if args.log else contextlib.nullcontext() as log:
        if log:
            log.write("iteration,kind,begin_ns,forward_done_ns,backward_done_ns,end_ns,gradient_ns\n")
        train(args, log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
