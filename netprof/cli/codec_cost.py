"""What encoding and decoding gradients costs on this machine: a short measurement, once a run and method.

Ranks of one machine share its memory and its cores' caches, and encode at the same time: so as many processes as there
were ranks beside each other (as far as there are CPUs) do each step at once, each on one thread. The median of some
runs counts: the job's own computing was recorded as it is on such a machine too. The fastest and the slowest run say
how sure that is; where there are more ranks than CPUs, they may also compute one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import cache
from statistics import fmean, median
from typing import NamedTuple

from netprof.analysis.whatif.compression import Codec, Method
from netprof.cli.codec_steps import BYTES, Beside, CodecTimes, all_times
from netprof.errors import NetprofError
from netprof.session.pool import SPAWN, pool

_WORKERS = 2  # that the sum which is said is for
_HOW = {"torch": "torch", "numpy": "numpy, since torch cannot be imported here: the real hooks may differ"}


class Costs(NamedTuple):
    """What methods' codecs cost, by label: typically, at best and at worst."""

    typical: dict[str, Codec]
    fastest: dict[str, Codec]
    slowest: dict[str, Codec]


def codecs(methods: Sequence[Method], ns_per_byte: float | None, ranks: int = 1) -> tuple[Costs, tuple[str, ...]]:
    """Return what each method's codec costs where `ranks` share a machine, and what there is to say.

    `ns_per_byte` of encoding and decoding together overrides what is measured, and holds for bare ratios ("") too.
    Raises NetprofError where it cannot be measured.
    """
    if ns_per_byte is not None:
        half_s = ns_per_byte * 1e-9 / 2
        given = dict.fromkeys(["", *(method.label for method in methods)], Codec(half_s, half_s))
        return Costs(given, given, given), ()
    if not methods:
        return Costs({}, {}, {}), ()
    cpus = os.cpu_count() or 1
    beside = max(1, min(ranks, cpus))
    costs, computed_by = measured(tuple(methods), beside)
    ranks_a_cpu = max(ranks / cpus, 1.0)
    slowest = {label: Codec(*(s * ranks_a_cpu for s in astuple(codec))) for label, codec in costs.slowest.items()}
    described = ", ".join(f"{label} {_ns(codec):.2g} ns a byte" for label, codec in costs.typical.items())
    where = "in one process" if beside == 1 else f"in {beside} processes at once"
    note = f"encoding and decoding measured on this machine, {where}, with {_HOW[computed_by]}: {described}"
    return costs._replace(slowest=slowest), (note,)


def _ns(codec: Codec) -> float:
    of_workers = codec.decode_s_per_byte_and_worker * _WORKERS
    return (codec.encode_s_per_byte + codec.decode_s_per_byte + of_workers) * 1e9


@cache
def measured(methods: tuple[Method, ...], beside: int) -> tuple[Costs, str]:
    """Return what methods' codecs take here, and what computed: "torch" or "numpy".

    Raises NetprofError where the processes do not come to an end.
    """
    try:
        with pool(beside, Beside.join, SPAWN.Barrier(beside)) as processes:
            ranks = [processes.submit(all_times, methods) for _ in range(beside)]
            times = [rank.result() for rank in ranks]
    except (RuntimeError, OSError, MemoryError) as error:  # a process ended, or torch says that there is no memory
        raise NetprofError(
            "what encoding and decoding costs here could not be measured", "give it with --codec-ns-per-byte"
        ) from error
    of_methods = list(zip(methods, zip(*times, strict=True), strict=True))
    costs = (
        {method.label: _codec(of_ranks, chosen) for method, of_ranks in of_methods} for chosen in (median, min, max)
    )
    return Costs(*costs), times[0][0].computed_by


def _codec(of_ranks: Sequence[CodecTimes], chosen: Callable[[list[float]], float]) -> Codec:
    """Return what a codec takes in the chosen one of the runs, each the mean of what the ranks took."""

    def of(steps: list[list[float]]) -> float:
        return chosen([fmean(run) for run in zip(*steps, strict=True)]) / BYTES

    return Codec(
        of([rank.encode_s for rank in of_ranks]),
        of([rank.decode_s for rank in of_ranks]),
        of([rank.decode_each_s for rank in of_ranks]),
    )
