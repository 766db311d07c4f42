"""Ranks that share a model in the usual ways, one of them late in every step, against what each logged of itself."""

from __future__ import annotations

import csv
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from lab import Lab
from support.training import netprof, training

from netprof.analysis import analyze
from netprof.analysis.account.causes import LATE_RANK
from netprof.analysis.findings.waiting.bubbles import BUBBLES
from netprof.analysis.section import Analysis
from netprof.analysis.tables.intervals import Intervals, interval, merge
from netprof.trace import TraceReader

pytest.importorskip("torch", reason="the job to profile is a PyTorch one")
pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

PROGRAM = Path(__file__).parents[1] / "programs" / "parallel_train.py"
POINTS = 0.02
SECONDS = 6
_SLEEPS = ("fsdp2",)
"""Where ranks do not wait in the same calls, or compute in them: late is what the late rank sleeps, or more."""
_STILL_SENDS = ("sparse",)
"""Where a rank may wait for what the last step still sends to the late one: that is late once it sleeps."""


@dataclass(frozen=True)
class Log:
    """What a rank wrote down, kind by kind."""

    rows: tuple[tuple[str, str, int, int], ...]

    @classmethod
    def read(cls, path: Path) -> Log:
        rows = [row for row in csv.reader(path.read_text().splitlines()) if len(row) == 4]
        return cls(tuple((kind, what, int(begin), int(end)) for kind, what, begin, end in rows))

    def times(self, kind: str) -> Intervals:
        own = [(begin, end) for what, _, begin, end in self.rows if what == kind]
        begin, end = np.array(own, np.int64).reshape(-1, 2).T
        return merge(begin, end)

    def waits(self) -> list[tuple[int, int]]:
        """Return the waits for all others, one after the other: the k-th of a rank is the k-th of all."""
        found: list[tuple[int, int]] = []
        names = {what for kind, what, _, _ in self.rows if kind == "wait" and ":" not in what and what != "store"}
        names = names & {"backward", "monitored_barrier"} or names
        for begin, end in sorted((begin, end) for _, what, begin, end in self.rows if what in names):
            if not found or begin >= found[-1][1]:  # else it is a part of the last one
                found.append((begin, end))
        return found

    def messages(self, kind: str, what: str) -> list[tuple[int, int]]:
        """Return when messages of one kind, to or from one peer, were posted or waited for."""
        return [
            (begin, end)
            for own, names, begin, end in self.rows
            if own == kind
            for each in names.split()
            if each == what
        ]

    def steps_in(self, begin_ns: int, end_ns: int) -> int:
        return sum(kind == "step" and begin_ns <= begin and end <= end_ns for kind, _, begin, end in self.rows)


@dataclass(frozen=True)
class Recorded:
    """A recording, and what the ranks logged meanwhile."""

    shape: str
    analysis: Analysis
    pids: list[int]
    logs: list[Log]

    @property
    def of_all_time(self) -> Intervals:
        """The time in which both tell of the job."""
        recording = self.analysis.evidence.recording
        begin = max(log.times("step").begin_ns[0] for log in self.logs)
        end = min(log.times("step").end_ns[-1] for log in self.logs)
        return recording & interval(int(begin), int(end))

    def waited(self, rank: int) -> tuple[float, float]:
        """Return for which share of the time a rank waits, by netprof and by its log."""
        waiting = self.analysis.evidence.account.waiting
        own, span = waiting.where(waiting.pid == self.pids[rank]), self.span(rank)
        told = (merge(own.begin_ns, own.end_ns) & span).total_ns
        logged = (self.logs[rank].times("wait") & span).total_ns
        return told / span.total_ns, logged / span.total_ns

    def late(self, rank: int, other: int) -> tuple[float, float]:
        """Return for which share of the time a rank waits for one that has not come yet, by netprof and both logs."""
        waiting = self.analysis.evidence.account.waiting
        own, span = waiting.where(waiting.pid == self.pids[rank]).of(LATE_RANK), self.span(rank)
        own = own.where(own.culprit == self.pids[other])
        if self.shape in _SLEEPS:
            logged = self.logs[rank].times("wait") & self.logs[other].times("late")
        elif self.shape in _STILL_SENDS:
            asleep = self.logs[other].times("late").begin_ns
            waits = [
                (max(begin, int(slept)), end)
                for (begin, end), slept in zip(self.logs[rank].waits(), asleep, strict=False)
            ]
            logged = _until_come(zip(waits, self.logs[other].waits(), strict=False))
        else:
            come = self.logs[other].messages("posted", "all_reduce") or self.logs[other].waits()
            logged = _until_come(zip(self.logs[rank].waits(), come, strict=False))
        told = (merge(own.begin_ns, own.end_ns) & span).total_ns
        return told / span.total_ns, (logged & span).total_ns / span.total_ns

    def bubble(self, rank: int, other: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return how much of the time a rank waits for messages of another one, and until that comes, by both."""
        (told,) = (each for each in self.analysis.of(BUBBLES) if (each.rank, each.peer_rank) == (rank, other))
        span, mine, theirs = self.span(rank), self.logs[rank], self.logs[other]
        waits = {way: mine.messages("wait", f"{way}:{other}") for way in ("irecv", "isend")}
        begin, end = np.array([*waits["irecv"], *waits["isend"]], np.int64).reshape(-1, 2).T
        both = [
            pair
            for way, back in (("irecv", "isend"), ("isend", "irecv"))
            for pair in zip(waits[way], theirs.messages("posted", f"{back}:{rank}"), strict=False)
        ]
        logged = (merge(begin, end) & span).total_ns, (_until_come(both) & span).total_ns
        return (
            (told.waits_ns / told.window_ns, logged[0] / span.total_ns),
            (told.late_ns / told.window_ns, logged[1] / span.total_ns),
        )

    def checks_s(self, rank: int) -> float:
        """Return how long DETAIL's wrapper takes of a step of a rank that is never kept waiting, by its log.

        Until it waits for what it has asked for, a collective is only compared and handed over.
        """
        rows = sorted(row[2:] for row in self.logs[rank].rows if row[0] == "wait" and row[1] in ("all_reduce", "wait"))
        inside = self.of_all_time
        spent = [
            inner - outer
            for (outer, end), (inner, _) in pairwise(rows)
            if inner < end and inside.begin_ns[0] <= outer <= inside.end_ns[-1]
        ]
        return sum(spent) / self.logs[rank].steps_in(int(inside.begin_ns[0]), int(inside.end_ns[-1])) / 1e9

    def span(self, rank: int) -> Intervals:
        """Return the time of the iterations of a rank."""
        known = self.analysis.evidence.accounted
        known = known.where(known.pid == self.pids[rank])
        return merge(known.begin_ns, known.end_ns) & self.of_all_time

    def steps(self, rank: int) -> tuple[int, int]:
        """Return how many steps a rank made in the time that netprof's iterations of it span, by both."""
        its = self.analysis.evidence.iterations
        its = its.where(its.pid == self.pids[rank])
        span = int(its.begin_ns.min()) - 5_000_000, int(its.end_ns.max()) + 5_000_000
        return len(its), self.logs[rank].steps_in(*span)


def _until_come(pairs: Iterable[tuple[tuple[int, int], tuple[int, int]]]) -> Intervals:
    """Return the parts of waits in which the other one, whose own wait or message it is, has not come yet."""
    found = [(begin, min(end, come)) for (begin, end), (come, _) in pairs if min(end, come) > begin]
    begin_ns, end_ns = np.array(found, np.int64).reshape(-1, 2).T
    return merge(begin_ns, end_ns)


def record(shape: str, folder: Path, ranks: int = 2) -> Recorded:
    with (
        Lab(hosts=ranks, rate="400mbit") as lab,
        training(
            [host.popen for host in lab], folder, "--shape", shape, master=f"{lab[0].ipv4}:29500", program=PROGRAM
        ) as job,
    ):
        done = netprof(
            "attach", *map(str, job.pids), "--out", str(folder / "t.netprof"), "--duration", f"{SECONDS}s", "--no-live"
        )
        assert done.returncode == 0, done.stderr
        (folder / "stop").touch()
        assert job.wait() == [0] * ranks
        logs = [Log.read(folder / f"rank{rank}.csv") for rank in range(ranks)]
        return Recorded(shape, analyze(TraceReader(folder / "t.netprof")), job.pids, logs)


def beside(shape: str, found: Recorded) -> None:
    """Print netprof's figures beside the job's own."""
    ranks = range(len(found.pids))
    for rank in ranks:
        told, logged = found.waited(rank)
        print(f"{shape} rank {rank}: steps {found.steps(rank)}, waits {told:.1%} log {logged:.1%}", end="")
        for other in ranks:
            if other != rank and not found.logs[other].messages("posted", f"isend:{rank}"):
                told, logged = found.late(rank, other)
                print(f", {other} late {told:.1%} log {logged:.1%}", end="")
        print()
    for rank, other in _pairs(found) if found.logs[0].messages("posted", "isend:1") else ():
        (waits, logged), (late, late_logged) = found.bubble(rank, other)
        print(f"  {rank} waits for {other} {waits:.1%} log {logged:.1%}, late {late:.1%} log {late_logged:.1%}")


def _pairs(found: Recorded) -> list[tuple[int, int]]:
    """Return the ranks that wait for messages of each other."""
    known = [(each.rank, each.peer_rank) for each in found.analysis.of(BUBBLES)]
    return [(rank, other) for rank, other in known if rank is not None and other is not None]


def steps_are_right(found: Recorded) -> None:
    for rank in range(len(found.pids)):
        told, logged = found.steps(rank)
        assert logged >= 10
        assert abs(told - logged) <= 1, "counts"


@pytest.mark.parametrize("shape", ["fsdp2", "tensor"])
def test_what_ranks_of_a_shared_model_wait_and_for_whom(shape: str, tmp_path: Path) -> None:
    found = record(shape, tmp_path)
    beside(shape, found)
    steps_are_right(found)
    for rank in range(2):
        told, logged = found.waited(rank)
        assert told == pytest.approx(logged, abs=POINTS)
    told, logged = found.late(0, 1)
    if shape == "fsdp2":
        assert told > logged - POINTS, "it comes late by what it sleeps, and by what it takes longer besides"
    else:
        assert told == pytest.approx(logged, abs=POINTS)
    assert logged > 0.1


@pytest.mark.parametrize("shape", ["sparse", "zero1", "no_sync", "monitored"])
def test_the_late_rank_of_data_parallel_jobs(shape: str, tmp_path: Path) -> None:
    found = record(shape, tmp_path)
    beside(shape, found)
    steps_are_right(found)
    assert not [note for note in found.analysis.notes if "fewer bytes" in note or "flow time" in note]
    late, waited = found.late(0, 1), [found.waited(rank) for rank in range(2)]
    assert late[1] > 0.1
    assert late[0] > 0.8 * late[1], "most of it is seen, whatever the shape"
    off = [told - logged for told, logged in (late, *waited) if told != pytest.approx(logged, abs=POINTS)]
    assert not off


@pytest.mark.parametrize(("shape", "ranks"), [("gpipe", 3), ("context", 2)])
def test_bubbles_stage_by_stage(shape: str, ranks: int, tmp_path: Path) -> None:
    found = record(shape, tmp_path, ranks)
    beside(shape, found)
    steps_are_right(found)
    assert len(_pairs(found)) == 2 * (ranks - 1)
    for rank, other in _pairs(found):
        waits, late = found.bubble(rank, other)
        assert waits[0] == pytest.approx(waits[1], abs=POINTS)
        assert late[0] == pytest.approx(late[1], abs=POINTS)
    for rank in range(ranks):
        told, logged = found.waited(rank)
        assert told == pytest.approx(logged, abs=POINTS)
    assert "RANK 1" in found.analysis.document()["headline"], "the slow stage; the late rank"


def test_debug_detail_costs_what_the_job_says_and_hides_no_late_rank(tmp_path: Path) -> None:
    found = record("detail", tmp_path)
    beside("detail", found)
    steps_are_right(found)
    told, logged = found.late(0, 1)
    assert told == pytest.approx(logged, abs=POINTS)
    assert logged > 0.1
    checks, step_s = found.analysis.document()["collective_checks"], found.analysis.document()["step"]["seconds"]
    print(f"detail: checks {checks['step_s'] * 1e3:.1f} ms of a step, log {found.checks_s(1) * 1e3:.1f} ms")
    assert checks["step_s"] == pytest.approx(found.checks_s(1), abs=POINTS * step_s)


def test_a_rank_out_of_data_shadows_the_others(tmp_path: Path) -> None:
    leaving = threading.Thread(target=_leave_soon, args=(tmp_path,))
    leaving.start()
    found = record("join", tmp_path)
    leaving.join()
    told, logged = found.steps(0)
    assert abs(told - logged) <= 1
    (shadow,) = found.analysis.document()["out_of_data"]
    recorded = found.analysis.evidence.recording
    before = found.logs[1].steps_in(int(recorded.begin_ns[0]), int(recorded.end_ns[-1]))
    print(f"join: {shadow}, by the log after {before} steps of the recording; rank 0 {told} steps, log {logged}")
    assert before >= 5
    assert shadow["rank"] == "rank 1"
    assert shadow["since_step"] == pytest.approx(before, abs=1)


def _leave_soon(folder: Path) -> None:
    """Let the last rank run out of data two seconds after the recording has begun."""
    marks, deadline = folder / "t.netprof" / "marks.arrows", time.monotonic() + 60
    while not (marks.exists() and marks.stat().st_size > 4096) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)
    (folder / "leave").touch()
