"""The models of examples/causes_train.py, and the clock that tells what a step of theirs spends its time with."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Stopwatch:
    """What the step that runs has spent its time with so far."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin a step."""
        self.slept_ns = self.forward_ns = self.backward_ns = self.waited_ns = 0
        self.last_gradient_ns = 0

    def gradient(self, gradient: torch.Tensor) -> None:
        """Note that a gradient of the first layer exists: the last of them ends the computing."""
        self.last_gradient_ns = time.monotonic_ns()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the block, a blocking collective, as waiting."""
        begin_ns = time.monotonic_ns()
        yield
        self.waited_ns += time.monotonic_ns() - begin_ns

    def forward(self, run: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run a forward pass, and count it without the waiting in it."""
        begin_ns, waited_ns = time.monotonic_ns(), self.waited_ns
        loss = run()
        self.forward_ns += time.monotonic_ns() - begin_ns - (self.waited_ns - waited_ns)
        return loss

    def backward(self, loss: torch.Tensor, exchanges: bool) -> None:
        """Run a backward pass; what follows its last gradient is waiting if the gradients are exchanged."""
        begin_ns, waited_ns = time.monotonic_ns(), self.waited_ns
        self.last_gradient_ns = 0
        loss.backward()
        end_ns = time.monotonic_ns()
        computed_ns = self.last_gradient_ns if exchanges and self.last_gradient_ns else end_ns
        self.backward_ns += computed_ns - begin_ns - (self.waited_ns - waited_ns)
        self.waited_ns += end_ns - computed_ns


class SyncedSum(torch.autograd.Function):  # type: ignore[misc]
    """A blocking all-reduce in the forward pass and one in the backward pass, as SyncBatchNorm has them."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, watch: Stopwatch) -> torch.Tensor:
        """Return the sum over the ranks."""
        ctx.watch, summed = watch, values.clone()
        with watch.waiting():
            dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the sum of the gradients over the ranks."""
        summed = gradients[0].clone()
        with ctx.watch.waiting():
            dist.all_reduce(summed)
        return summed, None


class Pause(torch.autograd.Function):  # type: ignore[misc]
    """Computing that needs no CPU, as on a GPU: a sleep in the forward pass, and one twice as long in the backward."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, seconds: float) -> torch.Tensor:
        """Sleep."""
        ctx.seconds = seconds
        time.sleep(seconds)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Sleep twice as long."""
        time.sleep(2 * ctx.seconds)
        return gradients[0], None


class Computing(nn.Module):  # type: ignore[misc]
    """A layer's part of --compute-ms."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.seconds = args.compute_ms / 1e3 / 3 / args.layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, later."""
        result: torch.Tensor = Pause.apply(x, self.seconds)
        return result


class SyncedNorm(nn.Module):  # type: ignore[misc]
    """Normalise over the batches of all ranks (torch's own SyncBatchNorm wants a GPU)."""

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self.watch = watch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with mean 0 and variance 1 over all ranks."""
        sums = SyncedSum.apply(torch.stack((x.mean(0), (x * x).mean(0))), self.watch) / dist.get_world_size()
        return (x - sums[0]) / torch.sqrt((sums[1] - sums[0] ** 2).clamp(min=0) + 1e-5)


class Network(nn.Module):  # type: ignore[misc]
    """Square layers with gradients of `--gradient-mb` in all; with --shape unused, one more that is never used."""

    def __init__(self, args: argparse.Namespace, watch: Stopwatch) -> None:
        super().__init__()
        width = layer_width(args)
        norm = [functools.partial(SyncedNorm, watch)] if args.shape == "synced-norm" else []
        computing = [functools.partial(Computing, args)] if args.compute_ms else []
        parts = [functools.partial(nn.Linear, width, width), *norm, *computing, nn.Tanh]
        self.layers = nn.Sequential(*(nn.Sequential(*(make() for make in parts)) for _ in range(args.layers)))
        self.spare = nn.Linear(width, 8) if args.shape == "unused" else None
        for parameter in self.layers[0].parameters():
            parameter.register_hook(watch.gradient)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the layers."""
        result: torch.Tensor = self.layers(x)
        return result


def layer_width(args: argparse.Namespace) -> int:
    """Return how wide a layer is: it has width^2 weights of 4 bytes."""
    return max(8, round(math.sqrt(args.gradient_mb * 1e6 / args.layers / 4)))
