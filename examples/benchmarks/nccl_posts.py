"""What a job loses while netprof counts what it posts to NCCL's network: a stub that posts 100,000 times a second.

    examples/benchmarks/nccl_posts.py [PAIRS]

Two figures, each the median over pairs of windows with and without the probe, in turn (ABBA), with a 95 % interval,
and a control without the probe in either window:

- `paced`: the stub's thread posts at that rate and polls in between, as NCCL's proxy thread does: of the rate.
- `never waits`: it computes for 10 µs after each post, so that nothing is hidden: of the CPU time.

Beside it what a post costs more, the least of all windows, and what was counted of what was posted. Needs root and g++.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.nccl_net import Poster, compiled

from netprof.model import Target
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.nccl.probe import NcclNetworkProbe
from netprof.probes.probe import Shared

RATE = 100_000
POSTS = 20_000  # of a window: 0.2 s
BYTES = 524_288
SPIN_NS = 10_000


class Counting:
    """A process of its own, watched or not."""

    def __init__(self, library: Path) -> None:
        self.poster = Poster(library)
        self.poster.say(f"busy dry 1000 {BYTES} 0")
        self.counted = self.posted = 0

    def window(self, command: str, *, watched: bool) -> float:
        """Return for how long the stub took, in s."""
        if not watched:
            return self.poster.say(command) / 1e9
        with TargetMap() as targets:
            targets.add(self.poster.pid)
            shared = SimpleNamespace(targets=targets, bin_ns=1_000_000, series_ids=count())
            with NcclNetworkProbe(cast(Shared, shared)) as probe:
                probe.follow([Target(self.poster.pid, 1, frameworks=("nccl",))])
                took_s = self.poster.say(command) / 1e9
                rows = probe.drain(final=True)["nccl_posted"]
        self.counted += int(rows["posts"].sum())
        self.posted += POSTS
        return took_s


def ratios(window: Callable[..., float], command: str, pairs: int, *, watched: bool) -> Any:
    """Return time without over time with, of each pair; the order is turned from pair to pair."""
    found = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 else (True, False)
        times = {second: window(command, watched=second and watched) for second in order}
        found.append(times[False] / times[True])
    return np.array(found)


def interval(values: Any) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    medians = [np.median(rng.choice(values, len(values))) for _ in range(2000)]
    low, high = np.percentile(medians, (2.5, 97.5))
    return float(low), float(high)


def _least(window: Callable[..., float], command: str, windows: int, watched: bool) -> float:
    """Return the least CPU time of a post, in ns."""
    return min(window(command, watched=watched) for _ in range(windows)) * 1e9 / POSTS


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        counting = Counting(compiled(Path(folder) / "libnccl.so.2"))
        commands = {
            f"paced, {RATE} a second": f"send dry {POSTS} {BYTES} 0 {RATE}",
            f"never waits, {SPIN_NS / 1000:.0f} µs between posts": f"busy dry {POSTS} {BYTES} {SPIN_NS}",
        }
        for name, command in commands.items():
            for watched in (True, False):
                found = ratios(counting.window, command, pairs, watched=watched)
                low, high = interval(found)
                said = "with the probe" if watched else "control       "
                print(f"{name}: {said} {np.median(found):.4f} of it without ({low:.4f} to {high:.4f})", flush=True)
        bare = {
            watched: _least(counting.window, f"busy dry {POSTS} {BYTES} 0", pairs, watched) for watched in (True, False)
        }
        print(f"a post costs {bare[True] - bare[False]:.0f} ns more, {bare[False]:.0f} ns without the probe")
        print(f"counted {counting.counted} of {counting.posted} posts")
        counting.poster.end()


if __name__ == "__main__":
    main()
