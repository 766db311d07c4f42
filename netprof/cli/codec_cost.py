"""What encoding and decoding gradients costs on this machine: a short measurement, once a run and method.

On one thread, with torch where it can be imported, as the real hooks compute, else with numpy. Each step is timed some
times on a buffer of 16 MiB, more than caches hold, and the least counts: what it takes when nothing else runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from netprof.analysis.whatif.compression import Codec, Method

_SIDE, _MATRICES = 1024, 4  # of float32: 16 MiB
_COUNT = _MATRICES * _SIDE * _SIDE
_BYTES = _COUNT * 4
_REPEATS = 9
_BUDGET_S = 0.3  # of each step
_WORKERS = 2

Work = Callable[[], object]


class Steps(NamedTuple):
    """What a method computes: before a bucket is sent, after it came, and then for each worker."""

    encode: Work
    decode: Work
    decode_each: Work | None = None


def codecs(methods: Sequence[Method], ns_per_byte: float | None) -> tuple[dict[str, Codec], tuple[str, ...]]:
    """Return what each method's codec costs, by its label, and what there is to say about it.

    `ns_per_byte` of encoding and decoding together overrides what is measured, and holds for bare ratios ("") too.
    """
    from netprof.analysis.whatif.compression import Codec

    if ns_per_byte is not None:
        half_s = ns_per_byte * 1e-9 / 2
        return dict.fromkeys(["", *(method.label for method in methods)], Codec(half_s, half_s)), ()
    found = {method.label: measured(method) for method in methods}
    if not found:
        return {}, ()
    how = "torch" if _torch() is not None else "numpy, since torch cannot be imported here: the real hooks may differ"
    costs = ", ".join(f"{label} {_ns(codec):.2g} ns a byte" for label, codec in found.items())
    return found, (f"encoding and decoding measured on this machine, on one thread, with {how}: {costs}",)


def _ns(codec: Codec) -> float:
    each = codec.decode_s_per_byte_and_worker * _WORKERS
    return (codec.encode_s_per_byte + codec.decode_s_per_byte + each) * 1e9


@cache
def measured(method: Method) -> Codec:
    """Return what a method's codec takes on this machine."""
    from netprof.analysis.whatif.compression import Codec, Half, PowerSgd, TopK

    torch = _torch()
    if isinstance(method, Half):
        steps = _half(method.label, torch)
    elif isinstance(method, PowerSgd):
        steps = _power_sgd(method.rank, torch)
    elif isinstance(method, TopK):
        steps = _top_k(method.share, torch)
    else:
        return Codec()
    with _OneThread(torch):
        encode_s, decode_s = _least_s(steps.encode), _least_s(steps.decode)
        each_s = _least_s(steps.decode_each) if steps.decode_each else 0.0
    return Codec(encode_s / _BYTES, decode_s / _BYTES, each_s / _BYTES)


def _half(label: str, torch: Any) -> Steps:
    """DDP's fp16_compress_hook and bf16_compress_hook: to 16 bits and divided, and back."""
    import numpy as np

    if torch is not None:
        kind = torch.float16 if label == "fp16" else torch.bfloat16
        buffer = torch.randn(_COUNT)
        half = buffer.to(kind)
        return Steps(lambda: buffer.to(kind).div_(_WORKERS), lambda: buffer.copy_(half))
    values = np.random.default_rng(0).standard_normal(_COUNT, np.float32)
    small = values.astype(np.float16)
    if label == "fp16":
        return Steps(lambda: np.divide(values.astype(np.float16), _WORKERS), lambda: np.copyto(values, small))
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return Steps(
        lambda: (np.divide(values, _WORKERS).view(np.uint32) >> 16).astype(np.uint16),
        lambda: bits.astype(np.uint32) << 16,
    )


def _power_sgd(rank: int, torch: Any) -> Steps:
    """powerSGD_hook: error feedback and the one factor before, orthogonalizing, the other and the product after."""
    import numpy as np

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

        return Steps(before, after)
    rng = np.random.default_rng(0)
    table = rng.standard_normal((_MATRICES, _SIDE, _SIDE), np.float32)
    left, right = (rng.standard_normal((_MATRICES, _SIDE, columns), np.float32) for _ in range(2))
    return Steps(
        lambda: ((table + 1e-9).copy(), np.linalg.qr(right), table @ right),
        lambda: (np.linalg.qr(left), table - left @ (table.swapaxes(1, 2) @ left).swapaxes(1, 2)),
    )


def _top_k(share: float, torch: Any) -> Steps:
    """Deep Gradient Compression: momentum correction, a sampled threshold, selection, masking; then adding up."""
    import numpy as np

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

        return Steps(before, lambda: g.zero_(), lambda: g.index_add_(0, places, values))
    rng = np.random.default_rng(0)
    own, kept, grown = (rng.standard_normal(_COUNT, np.float32) for _ in range(3))
    where, what = rng.integers(_COUNT, size=count), rng.standard_normal(count, np.float32)

    def choose() -> object:
        np.add(kept, np.add(np.multiply(grown, 0.9, out=grown), own, out=grown), out=kept)
        size = np.abs(kept)
        least = np.quantile(size[::100], 1 - share)
        chosen = np.flatnonzero(size >= least)
        taken = kept[chosen]
        grown[chosen] = kept[chosen] = 0.0
        return taken

    return Steps(choose, lambda: own.fill(0.0), lambda: np.add.at(own, where, what))


def _least_s(work: Work) -> float:
    """Return the shortest of some runs, the first one aside."""
    work()
    times: list[float] = []
    deadline = time.perf_counter() + _BUDGET_S
    while len(times) < _REPEATS and (not times or time.perf_counter() < deadline):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


class _OneThread:
    """Lets torch compute on one thread for a while, as a rank among others does."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __enter__(self) -> None:
        if self.torch is not None:
            self.before = self.torch.get_num_threads()
            self.torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self.torch is not None:
            self.torch.set_num_threads(self.before)


@cache
def _torch() -> Any:
    """Return torch, None where it cannot be imported."""
    try:
        import torch
    except (ImportError, OSError):
        return None
    return torch
