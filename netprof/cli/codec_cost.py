"""What encoding and decoding gradients costs on this machine: a short measurement, once a run and method.

Ranks of one machine share its memory and its cores' caches, and encode at the same time: so as many processes as there
were ranks beside each other (as far as there are CPUs) do each step at once, each on one thread. The median of some
runs counts: the job's own computing was recorded as it is on such a machine too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from statistics import fmean, median
from threading import BrokenBarrierError
from typing import TYPE_CHECKING

from netprof.cli.codec_steps import BYTES, Beside, Times, all_times
from netprof.errors import NetprofError
from netprof.session.pool import SPAWN, pool

if TYPE_CHECKING:
    from netprof.analysis.whatif.compression import Codec, Method

_WORKERS = 2  # that the sum which is said is for
_HOW = {"torch": "torch", "numpy": "numpy, since torch cannot be imported here: the real hooks may differ"}


def codecs(
    methods: Sequence[Method], ns_per_byte: float | None, ranks: int = 1
) -> tuple[dict[str, Codec], tuple[str, ...]]:
    """Return what each method's codec costs where `ranks` share a machine, by its label, and what there is to say.

    `ns_per_byte` of encoding and decoding together overrides what is measured, and holds for bare ratios ("") too.
    Raises NetprofError where it cannot be measured.
    """
    from netprof.analysis.whatif.compression import Codec

    if ns_per_byte is not None:
        half_s = ns_per_byte * 1e-9 / 2
        return dict.fromkeys(["", *(method.label for method in methods)], Codec(half_s, half_s)), ()
    if not methods:
        return {}, ()
    beside = max(1, min(ranks, os.cpu_count() or 1))
    found, by = measured(tuple(methods), beside)
    costs = ", ".join(f"{label} {_ns(codec):.2g} ns a byte" for label, codec in found.items())
    where = "in one process" if beside == 1 else f"in {beside} processes at once"
    return found, (f"encoding and decoding measured on this machine, {where}, with {_HOW[by]}: {costs}",)


def _ns(codec: Codec) -> float:
    each = codec.decode_s_per_byte_and_worker * _WORKERS
    return (codec.encode_s_per_byte + codec.decode_s_per_byte + each) * 1e9


@cache
def measured(methods: tuple[Method, ...], beside: int) -> tuple[dict[str, Codec], str]:
    """Return what methods' codecs take here, by label, and what computed: "torch" or "numpy".

    Raises NetprofError where the processes do not come to an end.
    """
    try:
        with pool(beside, Beside.join, SPAWN.Barrier(beside)) as processes:
            ranks = [processes.submit(all_times, methods) for _ in range(beside)]
            found = [rank.result() for rank in ranks]
    except (BrokenProcessPool, BrokenBarrierError, OSError, MemoryError) as error:
        raise NetprofError(
            "what encoding and decoding costs here could not be measured", "give it with --codec-ns-per-byte"
        ) from error
    costs = {method.label: _codec(of_ranks) for method, of_ranks in zip(methods, zip(*found, strict=True), strict=True)}
    return costs, found[0][0].computed_by


def _codec(of_ranks: Sequence[Times]) -> Codec:
    from netprof.analysis.whatif.compression import Codec

    return Codec(
        _typical_s([rank.encode_s for rank in of_ranks]) / BYTES,
        _typical_s([rank.decode_s for rank in of_ranks]) / BYTES,
        _typical_s([rank.decode_each_s for rank in of_ranks]) / BYTES,
    )


def _typical_s(ranks: Sequence[Sequence[float]]) -> float:
    """Return the median of the runs, each the mean of what the ranks took."""
    return median(fmean(run) for run in zip(*ranks, strict=True))
