"""What compression methods compute, on one thread: with torch where it can be imported, as the real hooks do, or numpy.

A process of its own runs this for each rank (`codec_cost`), so that memory is given and taken back as it is in a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Barrier
from typing import Any, NamedTuple

import numpy as np

from netprof.analysis.whatif.compression import Half, Method, PowerSgd, TopK

_SIDE, _MATRICES = 1024, 4  # of float32: 16 MiB, more than caches hold
_COUNT = _MATRICES * _SIDE * _SIDE
BYTES = _COUNT * 4
_REPEATS = 9
_PATIENCE_S = 60.0  # with the others, before it counts as ended
_WORKERS = 2

Work = Callable[[], object]


class CodecSteps(NamedTuple):
    """What a method computes: before a bucket is sent, after it came, and then for each worker."""

    encode: Work
    decode: Work
    decode_each: Work | None = None


class CodecTimes(NamedTuple):
    """Seconds that each run of each step took, and what computed: "torch" or "numpy"."""

    encode_s: list[float]
    decode_s: list[float]
    decode_each_s: list[float]
    computed_by: str


class Beside:
    """The processes that compute at the same time: none begins a run before all are there."""

    barrier: Any = None

    @classmethod
    def join(cls, barrier: Any) -> None:
        """Know the others: the first that a process of the pool does."""
        cls.barrier = barrier


def all_times(methods: Sequence[Method]) -> list[CodecTimes]:
    """Time every step of some methods together with the other processes."""
    torch = _torch()
    if torch is not None:
        torch.set_num_threads(1)
    barrier, computed_by = Beside.barrier or Barrier(1), "numpy" if torch is None else "torch"
    runs_s = ([_runs_s(step, barrier) for step in steps_of(method, torch)] for method in methods)
    return [CodecTimes(encode_s, decode_s, each_s, computed_by) for encode_s, decode_s, each_s in runs_s]


def steps_of(method: Method, torch: Any) -> CodecSteps:
    """Return the steps of a method; `torch` is None where numpy has to do."""
    if isinstance(method, Half):
        return _half(method.label, torch)
    if isinstance(method, PowerSgd):
        return _power_sgd(method.rank, torch)
    if isinstance(method, TopK):
        return _top_k(method.share, torch)
    raise TypeError(f"{method.label} computes nothing that is known")


def _runs_s(step: Work | None, together: Any) -> list[float]:
    """Return what some runs take, the first two aside: in both of them malloc gets memory that is new."""
    if step is None:
        return [0.0]
    step()
    step()
    runs_s = []
    for _ in range(_REPEATS):
        together.wait(_PATIENCE_S)
        begin = time.perf_counter()
        step()
        runs_s.append(time.perf_counter() - begin)
    return runs_s


def _half(label: str, torch: Any) -> CodecSteps:
    """DDP's fp16_compress_hook and bf16_compress_hook: to 16 bits and divided, and back."""
    if torch is not None:
        kind = torch.float16 if label == "fp16" else torch.bfloat16
        buffer = torch.randn(_COUNT)
        half = buffer.to(kind)
        return CodecSteps(lambda: buffer.to(kind).div_(_WORKERS), lambda: buffer.copy_(half))
    values = np.random.default_rng(0).standard_normal(_COUNT, np.float32)
    small = values.astype(np.float16)
    if label == "fp16":
        return CodecSteps(lambda: np.divide(values.astype(np.float16), _WORKERS), lambda: np.copyto(values, small))
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return CodecSteps(
        lambda: (np.divide(values, _WORKERS).view(np.uint32) >> 16).astype(np.uint16),
        lambda: bits.astype(np.uint32) << 16,
    )


def _power_sgd(rank: int, torch: Any) -> CodecSteps:
    """powerSGD_hook: error feedback and the one factor before, orthogonalizing, the other and the product after."""
    columns = min(rank, _SIDE)
    if torch is not None:
        matrices, error = torch.randn(_MATRICES, _SIDE, _SIDE), torch.randn(_MATRICES, _SIDE, _SIDE)
        ps, qs = (torch.randn(_MATRICES, _SIDE, columns) for _ in range(2))

        def before() -> object:
            copy = matrices.add_(error, alpha=1e-9).clone()
            for matrix, p, q in zip(matrices.split(1), ps.split(1), qs.split(1), strict=True):
                torch.linalg.qr(q)
                torch.bmm(matrix, q, out=p)
            return copy

        def after() -> object:
            for matrix, p, q in zip(matrices.split(1), ps.split(1), qs.split(1), strict=True):
                torch.linalg.qr(p)
                torch.bmm(matrix.transpose(1, 2), p, out=q)
                torch.bmm(p, q.transpose(1, 2), out=matrix)
            return torch.sub(error, matrices)

        return CodecSteps(before, after)
    rng = np.random.default_rng(0)
    table = rng.standard_normal((_MATRICES, _SIDE, _SIDE), np.float32)
    left, right = (rng.standard_normal((_MATRICES, _SIDE, columns), np.float32) for _ in range(2))
    return CodecSteps(
        lambda: ((table + 1e-9).copy(), np.linalg.qr(right), table @ right),
        lambda: (np.linalg.qr(left), table - left @ (table.swapaxes(1, 2) @ left).swapaxes(1, 2)),
    )


def _top_k(share: float, torch: Any) -> CodecSteps:
    """Deep Gradient Compression: momentum correction, a sampled threshold, selection, masking; then adding up."""
    count = max(1, int(share * _COUNT))
    if torch is not None:
        u, v, g = (torch.randn(_COUNT) for _ in range(3))
        places, values = torch.randint(_COUNT, (count,)), torch.randn(count)

        def before() -> object:
            v.add_(u.mul_(0.9).add_(g, alpha=0.1), alpha=0.1)
            size = v.abs()
            sampled = size[torch.randint(len(size), (len(size) // 100,))]
            least = torch.topk(sampled, max(1, int(share * len(sampled))), sorted=False).values.min()
            chosen = torch.nonzero(size >= least).flatten()
            taken = v[chosen]
            u[chosen] = v[chosen] = 0.0
            return taken

        return CodecSteps(before, lambda: g.zero_(), lambda: g.index_add_(0, places, values))
    rng = np.random.default_rng(0)
    gradient, kept, grown = (rng.standard_normal(_COUNT, np.float32) for _ in range(3))
    where, what = rng.integers(_COUNT, size=count), rng.standard_normal(count, np.float32)

    def choose() -> object:
        np.add(kept, np.add(np.multiply(grown, 0.9, out=grown), gradient, out=grown), out=kept)
        size = np.abs(kept)
        least = np.quantile(size[::100], 1 - share)
        chosen = np.flatnonzero(size >= least)
        taken = kept[chosen]
        grown[chosen] = kept[chosen] = 0.0
        return taken

    return CodecSteps(choose, lambda: gradient.fill(0.0), lambda: np.add.at(gradient, where, what))


def _torch() -> Any:
    """Return torch, None where it cannot be imported."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch
