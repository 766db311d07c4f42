"""Hostile digests: the tables and descriptions of digests as netprof makes them, with other entries or bytes."""

from __future__ import annotations

import json
import random
import tempfile
from functools import lru_cache
from pathlib import Path

from support.hidden_ends import ENDS, without
from support.made_alone import apart
from support.synthetic import MS, Job, in_parts, with_late_rank

from fuzz.traces import of_rank, write_trace
from fuzz.values import change_entry, flip
from netprof.analysis.hosts.open_job import open_job
from netprof.session.digest import write_digests

_JOB = "fuzz"


def make_digests(rng: random.Random, place: Path) -> None:
    """Write the digests of a job's hosts, of which files are damaged.

    Of some jobs only launches are seen, and some have no communicator but such as are a part of the job.
    """
    base = _base(wider=rng.random() < 0.5, launches=rng.random() < 0.4, parts=rng.random() < 0.4)
    for name, content in base.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    for name in rng.sample(sorted(base), rng.choice((1, 1, 2, 5))):
        _damage(rng, place / name)


@lru_cache(maxsize=8)
def _base(*, wider: bool, launches: bool, parts: bool) -> dict[str, bytes]:
    """Return the files of digests that are as netprof makes them."""
    with tempfile.TemporaryDirectory(prefix="fuzzed-") as folder:
        traces = _in_parts(Path(folder)) if parts else _of_both_ranks(Path(folder))
        if launches:
            traces = [without(trace, trace.with_suffix(".launches.netprof"), ENDS) for trace in traces]
        made = Path(folder, "digests")
        write_digests(open_job(traces), made, _JOB, bin_ns=10 * MS if wider else None)
        return {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*") if path.is_file()}


def _of_both_ranks(folder: Path) -> list[Path]:
    traces = [folder / f"h{rank}.netprof" for rank in range(2)]
    for rank, trace in enumerate(traces):
        write_trace(random.Random(0), trace, *of_rank(rank))
    return traces


def _in_parts(folder: Path) -> list[Path]:
    """Write the traces of four hosts' ranks, which are in two communicators."""
    job = with_late_rank(Job(ranks=4, world_size=4, iterations=3).fill(), 3, 40 * MS)
    return apart(in_parts(job, 2).write(folder / "whole.netprof"), folder)


def _damage(rng: random.Random, path: Path) -> None:
    if rng.random() < 0.1:
        path.unlink()
    elif path.suffix == ".json":
        document = json.loads(path.read_text())
        for _ in range(rng.choice((1, 1, 3, 10))):
            change_entry(rng, document)
        path.write_text(json.dumps(document, ensure_ascii=rng.random() < 0.5), errors="replace")
    else:
        flip(rng, path)
