"""Jobs of examples/causes_train.py without DDP: a pipeline of messages, and gradients over plain sockets.

`pipeline`: each rank is a stage; it receives activations, computes, sends them on, and the gradients come back the
same way. `pipeline-batched` posts its messages by `batch_isend_irecv`. `sockets`: every rank sends its gradients to the
first one over a TCP connection of its own, which adds them up and sends the sum to all.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from causes_models import Network, Stopwatch, layer_width
from torch import nn
from torch.nn.utils import parameters_to_vector

SHAPES = ("pipeline", "pipeline-batched", "sockets")


class Carried:
    """One rank: what it computes, and how it gets what it needs from the others."""

    def __init__(self, args: argparse.Namespace, watch: Stopwatch, be_late: Callable[[], None]) -> None:
        self.watch, self.be_late, self.rank, self.ranks = watch, be_late, dist.get_rank(), dist.get_world_size()
        self.model = Network(args, Stopwatch())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.inputs = torch.randn(args.batch, layer_width(args))

    def step(self) -> None:
        """Train for one step."""
        raise NotImplementedError


class Pipeline(Carried):
    """A stage of it."""

    def __init__(self, args: argparse.Namespace, watch: Stopwatch, be_late: Callable[[], None]) -> None:
        super().__init__(args, watch, be_late)
        self.batched = args.shape == "pipeline-batched"
        self.buffer = torch.empty_like(self.inputs)

    def step(self) -> None:
        """Pass activations on, and gradients back."""
        inputs, last = self.inputs, self.rank == self.ranks - 1
        if self.rank:
            self._exchange(dist.irecv, self.buffer, self.rank - 1)
            inputs = self.buffer.clone().requires_grad_()
        self.be_late()
        outputs: Any = self.watch.forward(lambda: self.model(inputs))
        if last:
            self.watch.backward(outputs.square().mean(), exchanges=False)
        else:
            self._exchange(dist.isend, outputs.detach(), self.rank + 1)
            self._exchange(dist.irecv, self.buffer, self.rank + 1)
            begin_ns = time.monotonic_ns()
            outputs.backward(self.buffer.clone())
            self.watch.backward_ns += time.monotonic_ns() - begin_ns
        if self.rank and inputs.grad is not None:
            self._exchange(dist.isend, inputs.grad.contiguous(), self.rank - 1)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _exchange(self, how: Any, tensor: torch.Tensor, peer: int) -> None:
        with self.watch.waiting():
            if self.batched:
                for work in dist.batch_isend_irecv([dist.P2POp(how, tensor, peer)]):
                    work.wait()
            else:
                how(tensor, peer).wait()


class Sockets(Carried):
    """A rank whose gradients go over a connection that no framework has made."""

    def __init__(self, args: argparse.Namespace, watch: Stopwatch, be_late: Callable[[], None]) -> None:
        super().__init__(args, watch, be_late)
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 1)
        if self.rank == 0:
            server = socket.create_server(place)
            dist.barrier()
            self.peers = [server.accept()[0] for _ in range(self.ranks - 1)]
        else:
            dist.barrier()
            self.peers = [socket.create_connection(place)]
        self.bytes = 4 * sum(parameter.numel() for parameter in self.model.parameters())

    def step(self) -> None:
        """Train, and add up the gradients of all."""
        self.be_late()
        outputs: Any = self.watch.forward(lambda: self.model(self.inputs))
        self.watch.backward(outputs.square().mean(), exchanges=False)
        mine = parameters_to_vector([parameter.grad for parameter in self.model.parameters()])
        with self.watch.waiting():
            summed = self._summed(mine) / self.ranks
        _fill(self.model, summed)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _summed(self, mine: torch.Tensor) -> torch.Tensor:
        if self.rank:
            self.peers[0].sendall(memoryview(mine.numpy()).cast("B"))
            return self._received(self.peers[0])
        summed = mine.clone()
        for peer in self.peers:
            summed += self._received(peer)
        for peer in self.peers:
            peer.sendall(memoryview(summed.numpy()).cast("B"))
        return summed

    def _received(self, peer: socket.socket) -> torch.Tensor:
        buffer = bytearray(self.bytes)
        view, at = memoryview(buffer), 0
        while at < len(buffer):
            count = peer.recv_into(view[at:])
            if not count:
                raise ConnectionError("a rank has ended")
            at += count
        return torch.frombuffer(buffer, dtype=torch.float32)


def _fill(model: nn.Module, gradients: torch.Tensor) -> None:
    at = 0
    for parameter in model.parameters():
        parameter.grad.copy_(gradients[at : at + parameter.numel()].view_as(parameter))
        at += parameter.numel()


def carried(args: argparse.Namespace, watch: Stopwatch, be_late: Callable[[], None]) -> Carried:
    """Return the job of that shape."""
    return (Sockets if args.shape == "sockets" else Pipeline)(args, watch, be_late)
