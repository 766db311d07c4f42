"""Deep Gradient Compression (Lin et al., ICLR 2018, arXiv 1712.01887) as a communication hook of DDP.

    state = Dgc(DgcOptions(density=0.001, warmup=(0.25, 0.0625, 0.015625, 0.004), warmup_steps=100))
    model.register_comm_hook(state, dgc_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)     # no momentum: the hook has it

Each rank sends the few largest of its accumulated gradients as values with their indices, over an all-gather, and keeps
the rest for later. What keeps the training as good as with dense gradients, in the paper's words:

- momentum correction: momentum is applied to each rank's own gradient before it is accumulated (u = m u + g, v = v + u)
- local gradient clipping: that gradient's norm is limited to 1/sqrt(N) of the limit for all ranks' together
- momentum factor masking: what was sent is set to zero in v and in u
- warm-up: the first steps send more, a smaller share in each stage

Two things differ from the paper. A hook sees one bucket at a time, so that a gradient is clipped tensor by tensor.
And vectors (biases, norms) stay dense, as in the authors' own code: they are small, and get their momentum here too.

(No `from __future__ import annotations`: DDP looks at the annotations of a hook.)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

_SAMPLED = 0.01  # share of a tensor that its threshold is estimated from
_LEAST_SAMPLE = 4096  # values; where there are not many more, the largest are found exactly
_DRAWING = torch.Generator()  # its own: sampling must not change what the training draws


@dataclass(frozen=True)
class DgcOptions:
    """What to send, and how to begin.

    `density` is the share of a matrix that is sent; in the first steps the shares of `warmup`, each for
    `warmup_steps` steps. `clip` is the largest norm of a tensor's gradient over all ranks, None for no limit.
    """

    density: float = 0.001
    momentum: float = 0.9
    clip: float | None = None
    warmup: Sequence[float] = (0.25, 0.0625, 0.015625, 0.004)
    warmup_steps: int = 100

    def density_at(self, step: int) -> float:
        """Return the share of a matrix that is sent at a step, never less than `density`."""
        stage = step // self.warmup_steps if self.warmup_steps else len(self.warmup)
        return max(self.warmup[stage], self.density) if stage < len(self.warmup) else self.density


@dataclass
class Memory:
    """What one rank holds back of one parameter: `velocity` (u) and `accumulated` (v), both of its shape, flat."""

    velocity: torch.Tensor
    accumulated: torch.Tensor

    @classmethod
    def like(cls, gradient: torch.Tensor) -> "Memory":
        """Return an empty memory for a gradient."""
        return cls(torch.zeros(gradient.numel()), torch.zeros(gradient.numel()))

    def add(self, gradient: torch.Tensor, momentum: float) -> None:
        """Take a gradient in: momentum correction."""
        self.velocity.mul_(momentum).add_(gradient)
        self.accumulated.add_(self.velocity)

    def take_largest(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Remove the `count` largest and return their values and indices, (count,): momentum factor masking.

        Where sampling finds fewer, indices 0 with values 0 fill up: adding them changes nothing.
        """
        chosen = largest(self.accumulated, count)
        values, indices = torch.zeros(count), torch.zeros(count, dtype=torch.int32)
        values[: len(chosen)] = self.accumulated[chosen]
        indices[: len(chosen)] = chosen.to(torch.int32)
        self.accumulated[chosen] = 0.0
        self.velocity[chosen] = 0.0
        return values, indices


def largest(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return the indices of at most `count` values of a flat tensor that are largest by magnitude.

    Of a large tensor a sample gives the threshold, as the paper does it, and if that lets too many pass, the largest
    of those that passed are taken.
    """
    size = tensor.abs()
    sample = max(int(_SAMPLED * len(size)), _LEAST_SAMPLE)
    if sample * 2 > len(size):
        return torch.topk(size, count, sorted=False).indices
    sampled = size[torch.randint(len(size), (sample,), generator=_DRAWING)]
    threshold = torch.topk(sampled, max(1, math.ceil(sample * count / len(size))), sorted=False).values.min()
    passed = torch.nonzero(size >= threshold).flatten()
    if len(passed) <= count:
        return passed
    return passed[torch.topk(size[passed], count, sorted=False).indices]


def clipped(gradient: torch.Tensor, limit: float | None, ranks: int) -> torch.Tensor:
    """Return a gradient whose norm is at most limit / sqrt(ranks): the sum over the ranks then keeps to the limit."""
    if limit is None:
        return gradient
    norm = float(gradient.norm())
    return gradient * min(1.0, limit / math.sqrt(ranks) / (norm + 1e-12))


@dataclass
class Dgc:
    """The state of the hook on one rank: every parameter's memory, by its index in the model."""

    options: DgcOptions = field(default_factory=DgcOptions)
    group: dist.ProcessGroup | None = None
    step: int = 0
    memories: dict[torch.nn.Parameter, Memory] = field(default_factory=dict)
    new_memory: Callable[[torch.Tensor], Memory] = Memory.like

    def compress(self, bucket: dist.GradBucket) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Return a bucket's dense part, its sparse part (values, then the bits of their indices), and counts.

        The counts are how many values each matrix of the bucket sends.
        """
        ranks, density = dist.get_world_size(self.group), self.options.density_at(self.step)
        dense, values, indices = [], [], []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            memory = self._memory(parameter, gradient)
            own = clipped(gradient.flatten(), self.options.clip, ranks)
            if is_dense(gradient):
                dense.append(memory.velocity.mul_(self.options.momentum).add_(own))
            else:
                memory.add(own, self.options.momentum)
                taken = memory.take_largest(max(1, int(density * gradient.numel())))
                values.append(taken[0])
                indices.append(taken[1])
        self.step += bucket.is_last()
        nothing = torch.zeros(0)
        sparse = torch.cat([*values, *(each.view(torch.float32) for each in indices)]) if values else nothing
        return torch.cat(dense) if dense else nothing, sparse, [len(each) for each in values]

    def _memory(self, parameter: torch.nn.Parameter, gradient: torch.Tensor) -> Memory:
        if parameter not in self.memories:
            self.memories[parameter] = self.new_memory(gradient)
        return self.memories[parameter]


def is_dense(gradient: torch.Tensor) -> bool:
    """Tell whether a gradient travels whole: a vector does."""
    return bool(gradient.dim() < 2)


def dgc_hook(state: Dgc, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients over the ranks, matrices by their largest values only."""
    ranks = dist.get_world_size(state.group)
    dense, sparse, counts = state.compress(bucket)
    reduced = dist.all_reduce(dense, group=state.group, async_op=True) if len(dense) else None
    gathered = torch.empty(ranks * len(sparse))
    if not len(sparse):
        assert reduced is not None
        return reduced.get_future().then(lambda _: _unpack(bucket, dense, gathered, counts, ranks))
    work = dist.all_gather(list(gathered.chunk(ranks)), sparse, group=state.group, async_op=True)

    def unpack(_: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        if reduced is not None:
            reduced.wait()  # was begun before the all-gather
        return _unpack(bucket, dense, gathered, counts, ranks)

    return work.get_future().then(unpack)


def _unpack(
    bucket: dist.GradBucket, dense: torch.Tensor, gathered: torch.Tensor, counts: list[int], ranks: int
) -> torch.Tensor:
    """Write the means over the ranks into the bucket's gradients, and return its buffer."""
    values, indices = gathered.view(ranks, 2, sum(counts)).unbind(1)
    places = indices.contiguous().view(torch.int32).long()
    at_dense = at_sparse = 0
    left = iter(counts)
    for gradient in bucket.gradients():
        flat, size = gradient.view(-1), gradient.numel()
        if is_dense(gradient):
            flat.copy_(dense[at_dense : at_dense + size] / ranks)
            at_dense += size
            continue
        part = slice(at_sparse, at_sparse + next(left))
        flat.zero_().index_add_(0, places[:, part].flatten(), values[:, part].flatten() / ranks)
        at_sparse = part.stop
    return bucket.buffer()
