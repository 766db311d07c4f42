"""One rank of two that learn a noisy teacher from fresh data; prints the loss on data that no rank has seen.

    learn.py none|dgc|plain-top-k STEPS

`plain-top-k` sends the largest gradients and forgets the rest: what Deep Gradient Compression improves on.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from dgc_hook import Dgc, DgcOptions, Memory, dgc_hook
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH, NOISE, MOMENTUM = 128, 32, 0.1, 0.9
DENSITY = 0.01


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH))
    return torch.nn.Sequential(*layers)


class Forgetful(Memory):
    """Starts anew with each gradient."""

    def add(self, gradient: torch.Tensor, momentum: float) -> None:
        self.accumulated.copy_(gradient)


def main() -> None:
    how, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    teacher = network(7)
    model = DistributedDataParallel(network(1))
    if how != "none":
        state = Dgc(DgcOptions(DENSITY, MOMENTUM, clip=10.0, warmup_steps=10))
        if how == "plain-top-k":
            state.new_memory = Forgetful.like
        model.register_comm_hook(state, dgc_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=MOMENTUM if how == "none" else 0.0)
    torch.manual_seed(100 + dist.get_rank())
    for step in range(steps):
        if step == steps // 2:
            optimizer.param_groups[0]["lr"] /= 10
        inputs = torch.randn(BATCH, WIDTH)
        targets = teacher(inputs).detach() + NOISE * torch.randn(BATCH, WIDTH)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.manual_seed(5)
    unseen = torch.randn(2048, WIDTH)
    with torch.no_grad():
        print(f"{torch.nn.functional.mse_loss(model.module(unseen), teacher(unseen)).item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
