"""How well `netprof diff` tells two runs apart. Needs root and torch.

    python examples/benchmarks/diff_accuracy.py [--runs 4] [--seconds 40] [--keep FOLDER]

Real jobs of two ranks are recorded between network namespaces: some runs of the same job, and as many of each change of
3 %: a slower link, a rank that sleeps longer, a larger model. A trial compares 50 iterations of one run with 50 of
another; no two trials of a row share an iteration. `found` is how many trials of a change tell it, by the quantity that
it changes first, and `fails` how many `--fail-above 3%` would fail. Two runs of the same job that seem to differ in
anything are false alarms, unless they do differ: what the ranks took of a CPU in each run is printed too, and as a
control parts of one run are compared, which follow each other. --keep keeps the recordings, and takes those that are
there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import _places  # noqa: F401 (where the examples are)
import numpy as np
from _pairs import share_interval
from _results import keep
from causes import play
from causes_cases import Setting

from netprof.analysis.compare.compared_run import Run, read_run
from netprof.analysis.compare.difference import LESS, MORE, Change, Difference, compare
from netprof.trace import TraceReader

_ITERATIONS = 50
_MORE = 0.03
_JOB = Setting(rate="200mbit", gradient_mb=2.4, compute_ms=60.0)
"""Hardly any CPU: what else the machine does matters little."""
_COLUMNS = ("iteration", "undisturbed_iteration", "undisturbed_exposed_communication", "wire_bytes")


def main() -> None:
    """Record the runs and print a table of the trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=4, help="of the same job, and of each changed one; even")
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        job = replace(_JOB, seconds=args.seconds)
        same = [_run(folder / f"same{number}", job) for number in range(args.runs)]
        iteration_s = float(np.median(same[0].values["iteration"]))
        slower = replace(job, rate=f"{200_000 / (1 + _MORE):.0f}kbit")
        changes = {
            "link 3 % slower": (slower, "undisturbed_exposed_communication"),
            "a rank sleeps 3 % of the iteration": (
                replace(job, late_ranks=(1,), late_ms=round(1e3 * _MORE * iteration_s, 1)),
                "undisturbed_iteration",
            ),
            "model 3 % larger": (replace(job, gradient_mb=round(job.gradient_mb * (1 + _MORE), 3)), "wire_bytes"),
        }
        print(f"iterations of {iteration_s * 1e3:.0f} ms, {_ITERATIONS} in each half of a trial")
        print(f"in which a rank of the same job is on a CPU for {', '.join(map(_cpu_ms, same))} ms, run by run\n")
        names = "| changed | trials | told at all | fails | by | found"
        print(f"{names} | iteration | undisturbed | its exposed | bytes | intervals |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        parts = [_parts(run) for run in same]
        print(_row("nothing: parts of one run", "", [pair for own in parts for pair in _pairs(own[::2], own[1::2])]))
        of_two = [pair for one, other in zip(parts[::2], parts[1::2], strict=False) for pair in _pairs(one, other)]
        print(_row("nothing: two runs", "", of_two), flush=True)
        for name, (setting, first) in changes.items():
            where = folder / name.replace(" ", "-").replace("%", "percent")
            changed = [_parts(_run(where / f"{number}", setting)) for number in range(args.runs)]
            found = [pair for one, other in zip(parts, changed, strict=True) for pair in _pairs(one, other)]
            print(_row(name, first, found), flush=True)


def _run(folder: Path, setting: Setting) -> Run:
    trace = folder / "undisturbed.netprof"
    if not trace.exists():
        play("undisturbed", setting, folder)
    return read_run(TraceReader(trace))


def _parts(run: Run) -> list[Run]:
    """Return a run's iterations in parts that share none."""
    return [_from(run, first) for first in range(0, run.iterations - _ITERATIONS + 1, _ITERATIONS)]


def _pairs(before: list[Run], after: list[Run]) -> Iterator[Difference]:
    """Compare as many as there are of both."""
    for one, other in zip(before, after, strict=False):
        yield compare(one, other)


def _from(run: Run, first: int) -> Run:
    return replace(run, values={name: each[:, first : first + _ITERATIONS] for name, each in run.values.items()})


def _row(name: str, first: str, found: list[Difference]) -> str:
    own = [_of(each, first) for each in found] if first else []
    for each in found:
        told = {column: asdict(_of(each, column)) for column in _COLUMNS}
        keep(row=name, changed=each.changed, fails=_fails(each), told={k: _plain(v) for k, v in told.items()})
    cells = [
        name,
        str(len(found)),
        _share(sum(each.changed for each in found), len(found)),
        str(sum(_fails(each) for each in found)),
        first.replace("_", " "),
        _share(sum(change.verdict == MORE for change in own), len(own)) if own else "",
        *(_told(found, column) for column in _COLUMNS),
        ", ".join(f"{100 * _half_width(found, column):.2f} %" for column in _COLUMNS),
    ]
    return f"| {' | '.join(cells)} |"


def _fails(found: Difference) -> bool:
    return any(each.quantity.main and each.worse_share > _MORE for each in found.changes)


def _share(right: int, count: int) -> str:
    low, high = share_interval(right, count)
    return f"{right} ({low:.0%} to {high:.0%})"


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in change.items() if isinstance(value, (bool, int, float, str))}


def _cpu_ms(run: Run) -> str:
    return f"{1e3 * np.nanmean(run.values['cpu_time']):.1f}"


def _told(found: list[Difference], name: str) -> str:
    """Return the median change, and how often it is told as more and as less."""
    changes = [_of(each, name) for each in found]
    share = float(np.median([change.share(change.difference) or 0.0 for change in changes]))
    told = [sum(change.verdict == verdict for change in changes) for verdict in (MORE, LESS)]
    return f"{100 * share:+.2f} %: {told[0]} more, {told[1]} less"


def _half_width(found: list[Difference], name: str) -> float:
    changes = [_of(each, name) for each in found]
    return float(np.median([(change.high - change.low) / 2 / change.before for change in changes]))


def _of(difference: Difference, name: str) -> Change:
    change = difference.of(name)
    if change is None:
        raise RuntimeError(f"nothing is known of {name}")
    return change


if __name__ == "__main__":
    main()
