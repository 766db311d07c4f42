"""A rank of a real job that begins to be late: the report names it, what it does, and when that could be known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from causes import Played, play
from causes_cases import Setting
from straggler_live import detected_ns

from netprof.analysis.result_tables import result_table
from netprof.analysis.sections import analyze
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the jobs are PyTorch ones")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

LATE = Setting(
    ranks=3,
    rate="200mbit",
    gradient_mb=1.0,
    layers=4,
    compute_ms=40.0,
    seconds=11.0,
    late_ranks=(1,),
    late_ms=80.0,
    after_s=5.0,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play("late-rank", LATE, tmp_path_factory.mktemp("late"))


def test_the_late_rank_is_named_with_what_it_does_and_since_when(played: Played) -> None:
    first, *_ = played.report["stragglers"]
    assert (first["kind"], first["rank"], first["cause"], first["doing"]) == ("rank", 1, "late_rank", "data")
    assert first["confidence"] >= 0.95
    since_ns = played.truth["events"][0]["effective_ns"]
    assert abs(first["since_ns"] - since_ns) < 10**9
    assert 0 < first["known_ns"] - since_ns < 5 * 10**9
    assert "late rank" in played.report["sentence"]


def test_a_live_view_names_it_within_five_seconds(played: Played) -> None:
    since_ns = played.truth["events"][0]["effective_ns"]
    seen_ns = detected_ns(played.trace, since_ns, lambda each: each.who.rank == 1, 1)
    assert seen_ns is not None
    assert seen_ns - since_ns < 5 * 10**9


def test_it_is_the_last_one_of_its_iterations(played: Played) -> None:
    since_ns = played.truth["events"][0]["effective_ns"]
    table = result_table(analyze(TraceReader(played.trace)), "arrivals")
    late = table["rank"][table["begin_ns"] > since_ns + 10**9]
    assert (late == 1).mean() > 0.9


def test_the_kernel_says_what_each_process_did(played: Played, tmp_path: Path) -> None:
    counters = {(each["source"], each["name"]): each for each in played.report["counters"]}
    assert counters["process", "on_cpu"]["subjects"] == LATE.ranks
    assert 0 < counters["process", "on_cpu"]["total"] < LATE.ranks * LATE.seconds * 1e6
