"""A job on two hosts with a recorder each: what these tell together is what one that sees all tells."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clock_trials import trial
from separate_recorders import record
from shifted_clock import shift

from netprof.analysis import analyze
from netprof.analysis.findings.flows.flow_properties import FLOW_PROPERTIES, FlowProperties
from netprof.analysis.hosts.open_job import open_job
from netprof.analysis.section import Analysis
from netprof.trace import TraceReader
from netprof.views.json_report import to_json

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces and BPF need root")]

S = 10**9
_OF_RECORDERS = ("hosts", "host", "cost", "notes", "probes", "command", "definitions", "losses", "counters")
_OF_SAMPLES = (
    *("nic", "tcp", "history", "reconciliation", "threads_wait_for_cpus"),
    *("own_pid", "pid", "pids", "netns", "flow_id"),
)
"""What a recorder samples when it likes, and how things are called."""
_SEEN_ALIKE = {".waiting": 0.01, ".thread_time": 0.001}
"""Share that may be called otherwise. Of the waiting: recorders look at counters, and take up bytes, when they can. Of
a thread's time: two recorders' probes of one wakeup run one after the other, and the thread may be preempted between.
"""

_LOADING_NS = 15_000_000
"""After the begin of a step: `--data-ms` is twice that."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("hosts")
    return record(folder, hosts=2, seconds=6, job=["--gradient-mb", "10", "--data-ms", "30"], same_bins=True)


@pytest.mark.core
def test_two_recorders_tell_what_one_tells(recorded, tmp_path):
    parts, whole = recorded
    within = inside(parts, whole)
    mine = shift(parts[0], tmp_path / "mine.netprof", within_ns=within)
    other = shift(parts[1], tmp_path / "other.netprof", -412_345_678, 50e-6, host="other", within_ns=within)
    job = open_job([mine, other])
    clock = job.hosts[1].clock
    assert clock.source == "flows"
    assert clock.bound_ns is not None
    assert clock.bound_ns < 100_000
    assert job.meta.warnings == ()
    one = TraceReader(shift(whole, tmp_path / "one.netprof", within_ns=within))
    analyses = analyze(job), analyze(one)
    together, alone = (document(analysis) for analysis in analyses)
    assert together["iterations"]["count"] > 10
    assert_alike(together, alone)
    assert_medians_alike(*(analysis.of(FLOW_PROPERTIES) for analysis in analyses))


def test_one_trace_in_parts_tells_what_it_tells(recorded, tmp_path):
    _, whole = recorded
    meta = TraceReader(whole).meta
    parts = [
        shift(whole, tmp_path / f"{number}.netprof", number * 987_654_321, host=f"{number}", pids=[target.pid])
        for number, target in enumerate(meta.targets)
    ]
    assert_alike(*(document(analyze(source)) for source in (open_job(parts), TraceReader(whole))))


@pytest.mark.core
def test_the_truth_is_inside_the_bound(recorded, tmp_path):
    parts, _ = recorded
    random = np.random.default_rng(1)
    found = [one for _ in range(10) for one in trial(parts, tmp_path, random)]
    assert [one.source for one in found] == ["flows"] * 10
    assert all(one.holds for one in found)
    assert np.median([one.error_ns for one in found]) < 20_000


def inside(parts: list[Path], whole: Path) -> tuple[int, int]:
    """Return a time in which all recorders were at work for a while already, and still are.

    It begins and ends while ranks load data, so that a step is inside for all recorders or for none.
    """
    metas = [TraceReader(part).meta for part in parts]
    begin_ns = max(meta.started_ns for meta in metas) + S // 2
    end_ns = min(meta.stopped_ns or 0 for meta in metas) - S // 2
    steps = analyze(TraceReader(whole)).evidence.iterations
    steps_ns = np.sort(steps.begin_ns[(steps.begin_ns > begin_ns) & (steps.begin_ns < end_ns)])
    return int(steps_ns[0]) + _LOADING_NS, int(steps_ns[-1]) + _LOADING_NS


def assert_medians_alike(found: FlowProperties | None, wanted: FlowProperties | None) -> None:
    """Compare medians over windows: two windows at the edges of the recording may be on either side of them."""
    assert found is not None
    assert wanted is not None
    for one, other in ((found.by_iteration, wanted.by_iteration), (found.by_collective, wanted.by_collective)):
        assert one is not None
        assert other is not None
        for spread, all_seen in zip(one.spreads, other.spreads, strict=True):
            low, high = (all_seen.quantile(0.5 + windows / other.windows) for windows in (-2, 2))
            median = spread.quantile(0.5)
            assert median is not None
            assert (low or 0) * 0.99 - 2e-4 <= median <= (high or 0) * 1.01 + 2e-4


def document(analysis: Analysis) -> Any:
    """Return the report without what differs by nature."""
    found = {name: value for name, value in to_json(analysis).items() if name not in _OF_RECORDERS}
    for medians in (found["flow_properties"], found["flow_properties"]["per_collective"]):
        for name in ("data_flows", "start_skew_s", "size_equality", "completion"):
            del medians[name]
    found["flows"].sort(key=lambda flow: flow["local"])
    found["links"].sort(key=lambda link: link["ranks"])
    found["waiting"] = _shares(found["waiting"])
    for rank in found["thread_time"]:
        rank["parts_s"] = {part: seconds / rank["seconds"] for part, seconds in rank["parts_s"].items()}
    for path in found["paths"]:
        for name in ("rate_bps", "rate_to_siblings", "rtt_s"):  # by samples of TCP's clocks
            del path[name]
    return json.loads(re.sub(r" on (\w+)", "", json.dumps(_without(found))))


def _shares(waiting: Any) -> Any:
    """Return what of the waiting is for which cause, of all ranks and of each."""
    causes = {cause["cause"]: cause["share"] for cause in waiting["causes"]}
    ranks = {
        rank["rank"]: {cause: seconds / rank["exposed_s"] for cause, seconds in rank["causes_s"].items()}
        for rank in waiting["by_rank"]
    }
    every = dict.fromkeys(waiting["by_rank"][0]["causes_s"], 0.0) | causes
    return {"exposed_s": waiting["exposed_s"], "all": every, "ranks": ranks, "most": max(every, key=lambda c: every[c])}


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        named = {name for name, each in value.items() if name == "host" and isinstance(each, str)}
        return {name: _without(each) for name, each in value.items() if name not in _OF_SAMPLES and name not in named}
    return [_without(each) for each in value] if isinstance(value, list) else value


def assert_alike(found: Any, wanted: Any, where: str = "") -> None:
    """Compare documents: what lies at the edges of the recording may be on either side of them."""
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for name, value in wanted.items():
            assert_alike(found[name], value, f"{where}.{name}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_alike(one, other, f"{where}[{number}]")
    elif isinstance(wanted, float | int) and not isinstance(wanted, bool):
        least = next((share for name, share in _SEEN_ALIKE.items() if where.startswith(name)), 2e-4)
        assert found == pytest.approx(wanted, rel=0.01, abs=least if isinstance(wanted, float) else 2), where
    elif isinstance(wanted, str):
        assert re.sub(r"[\d.]+", "#", found) == re.sub(r"[\d.]+", "#", wanted), where
    else:
        assert found == wanted, where
