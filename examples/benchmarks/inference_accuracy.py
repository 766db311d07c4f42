"""How well iterations are inferred where the framework's marks are hidden: made-up jobs, noise, and the confidence.

`count` is the number of jobs with as many iterations as the truth, within 1 in 100; `period` of those with a period
within 1 % of that of the same stretch of the truth, by the same definition (the truth from begin to begin, where the
inference sees onset to onset: over few iterations the two differ by the jitter over their number). A job has 100
iterations with an evaluation pause in the middle. `wire` sees only the bytes per bin, `collectives` begins, ends and
sizes, `launches` only when each collective was launched.

    python examples/benchmarks/inference_accuracy.py [--seeds N]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import _places  # noqa: F401 - finds rhythm
import numpy as np
from rhythm import MS, START_NS, Played, Rhythm, full_bins, play

from netprof.analysis.inference.infer import (
    InferredIterations,
    NoPeriod,
    infer_from_bins,
    infer_from_collectives,
    infer_from_launches,
    period_of,
)
from netprof.analysis.wire.bins import Bins

Inference = InferredIterations | NoPeriod
SOURCES: dict[str, Callable[[Played], Inference]] = {
    "wire": lambda played: infer_from_bins(played.bins),
    "collectives": lambda played: infer_from_collectives(
        played.bucket_begin_ns, played.bucket_end_ns, played.bucket_bytes
    ),
    "launches": lambda played: infer_from_launches(played.bucket_begin_ns),
}
BUCKETS: dict[str, tuple[float, ...]] = {
    "1": (8.0,),
    "2 equal": (4.0, 4.0),
    "3": (1.0, 6.0, 3.0),
    "6, 4 of them equal": (1.0, 3.0, 3.0, 3.0, 3.0, 1.5),
    "8 equal": (1.0,) * 8,
}
HARD: dict[str, dict[str, Any]] = {
    "stalls in 10 % of the busy bins": {"stall_share": 0.1},
    "heartbeats every 20 ms": {"heartbeat_ms": 20.0},
    "background of 2 % of line rate": {"background_share": 0.02},
    "background of 10 % of line rate": {"background_share": 0.10},
    "communication-bound": {"compute_ms": 12.0, "between_ms": 1.0},
    "compute-bound": {"compute_ms": 400.0, "between_ms": 100.0},
    "bins of 10 ms": {"bin_ns": 10 * MS},
    "20 iterations": {"iterations": 20},
    "10 iterations": {"iterations": 10},
    "5 iterations": {"iterations": 5},
}


HEADINGS = f"{'jobs':>5} {'count':>6} {'period':>7} {'none':>5} {'worst count':>12} {'worst period':>13}"


class Outcome(NamedTuple):
    """One job: the confidence of what was inferred (None: no period found), and whether the count was right."""

    confidence: float | None
    right: bool
    count_error: float
    period_error: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="jobs of each kind (default 10)")
    seeds = range(parser.parse_args().seeds)
    everything = [*steady(seeds), *hard(seeds)]
    noise(seeds)
    calibration(everything)
    speed()


def steady(seeds: range) -> Iterator[Outcome]:
    """The jobs that the inference is made for, by jitter."""
    print(f"{'jitter':>6} {'shape':>10} {'source':>12} {HEADINGS}")
    for jitter in (0.05, 0.2, 0.5):
        for shape in ("normal", "uniform", "lognormal"):
            for source, infer in SOURCES.items():
                jobs = [
                    Rhythm(buckets_mb=sizes, jitter=jitter, shape=shape, pause_ms=900, heartbeat_ms=200, seed=seed)
                    for sizes in BUCKETS.values()
                    for seed in seeds
                ]
                outcomes = [judge(play(job), infer) for job in jobs]
                show(f"{jitter:6.0%} {shape:>10} {source:>12}", outcomes)
                yield from outcomes


def hard(seeds: range) -> Iterator[Outcome]:
    """What disturbs, at a jitter of 20 %."""
    print(f"\n{'on the wire, jitter 20 %':>34} {HEADINGS}")
    for name, change in HARD.items():
        outcomes = []
        for sizes in BUCKETS.values():
            for seed in seeds:
                job = replace(Rhythm(buckets_mb=sizes, jitter=0.2, pause_ms=900.0, seed=seed), **change)
                outcomes.append(judge(play(job), SOURCES["wire"]))
        show(f"{name:>34}", outcomes)
        yield from outcomes


def noise(seeds: range) -> None:
    """Traffic without iterations: whatever is found is wrong."""
    print(f"\n{'no iterations':>34} {'jobs':>5} {'found':>6}")
    rng = np.random.default_rng(1)
    kinds: dict[str, Callable[[], Bins]] = {
        "constant stream": lambda: of_payload(np.full(20_000, 125_000)),
        "constant stream with stalls": lambda: of_payload(125_000 * (rng.random(20_000) > 0.05)),
        "white noise": lambda: of_payload(rng.exponential(50_000, 20_000)),
        "bursts at random, random sizes": lambda: random_bursts(rng, sizes=True),
        "bursts at random, equal sizes": lambda: random_bursts(rng, sizes=False),
        "1/f noise": lambda: of_payload(np.exp(pink(rng, 20_000)) * 20_000),
        "silence": lambda: of_payload(np.zeros(20_000)),
    }
    for name, make in kinds.items():
        found = [r for _ in range(5 * len(seeds)) if isinstance(r := infer_from_bins(make()), InferredIterations)]
        print(f"{name:>34} {5 * len(seeds):5d} {len(found):6d}", *(f"{r.confidence:.2f}" for r in found[:5]))


def calibration(outcomes: list[Outcome]) -> None:
    """Of what was said with a confidence, the share that was right."""
    print(f"\n{'confidence':>12} {'jobs':>6} {'mean':>6} {'right':>6}")
    edges = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.01)
    for low, high in itertools.pairwise(edges):
        inside = [o for o in outcomes if o.confidence is not None and low <= o.confidence < high]
        if inside:
            mean = np.mean([o.confidence for o in inside])
            right = np.mean([o.right for o in inside])
            print(f"{low:5.2f}-{min(high, 1):5.2f} {len(inside):6d} {mean:6.3f} {right:6.3f}")


def speed() -> None:
    """Seconds for millions of bins."""
    print(f"\n{'million bins':>12} {'iterations':>11} {'seconds':>8}")
    for iterations in (1_000, 10_000, 80_000):
        played = play(Rhythm(iterations=iterations, jitter=0.2, stall_share=0.05))
        begin = time.perf_counter()
        found = infer_from_bins(played.bins)
        seconds = time.perf_counter() - begin
        count = len(found) if isinstance(found, InferredIterations) else 0
        print(f"{len(played.bins) / 1e6:12.2f} {count:11d} {seconds:8.2f}")


def judge(played: Played, infer: Callable[[Played], Inference]) -> Outcome:
    """Compare what is inferred with the truth."""
    found = infer(played)
    if isinstance(found, NoPeriod):
        return Outcome(None, False, 0.0, 0.0)
    true_ns = np.diff(played.begin_ns)
    first, last = np.searchsorted(played.begin_ns, [found.begin_ns[0], found.end_ns[-1]], "right") - 1
    period_error = abs(found.period_ns / period_of(true_ns[first:last]) - 1)
    count_error = abs(len(found) - len(true_ns))
    return Outcome(found.confidence, count_error <= max(1, len(true_ns) // 100), count_error, period_error)


def show(name: str, outcomes: list[Outcome]) -> None:
    """Print a line of a table."""
    said = [o for o in outcomes if o.confidence is not None]
    right, none = sum(o.right for o in said), len(outcomes) - len(said)
    close = sum(o.period_error < 0.01 for o in said)
    count = max((o.count_error for o in said), default=0)
    worst = max((o.period_error for o in said), default=0)
    print(f"{name} {len(outcomes):5d} {right:6d} {close:7d} {none:5d} {count:12.0f} {worst:13.2%}", flush=True)


def of_payload(payload: np.ndarray) -> Bins:
    """Bins of 1 ms, full from end to end where there is anything."""
    return full_bins(payload, START_NS // MS)


def random_bursts(rng: np.random.Generator, *, sizes: bool) -> Bins:
    """Requests that come at random, as to a server."""
    payload = np.zeros(20_000)
    for at in np.cumsum(rng.exponential(60, 250)).astype(int):
        length = int(rng.integers(2, 30)) if sizes else 8
        payload[at : at + length] = 125_000
    return of_payload(payload)


def pink(rng: np.random.Generator, count: int) -> np.ndarray:
    """Noise whose power falls as 1/f, of standard deviation 1.5."""
    spectrum = np.fft.rfft(rng.normal(size=count))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    spectrum[0] = 0
    wave = np.fft.irfft(spectrum, count)
    return np.asarray(1.5 * wave / wave.std())


if __name__ == "__main__":
    main()
