"""The exported trace, read back by a reader that knows nothing of netprof: slices nest, counts and bytes agree."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import BYTES_PER_BIN, MS, START_NS, Job

from netprof.analysis import Analysis, analyze
from netprof.trace import TraceReader
from netprof.views import perfetto


def exported(analysis: Analysis) -> dict[str, Any]:
    out = io.BytesIO()
    perfetto.write_analysis(analysis, out)
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def analysed(job: Job, path: Path) -> Analysis:
    return analyze(TraceReader(job.write(path / "t.netprof")))


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return analysed(Job(ranks=3, world_size=3).fill(), tmp_path)


def test_slices_agree_with_the_analysis(analysis: Analysis) -> None:
    events = exported(analysis)["traceEvents"]
    slices = Counter((e["cat"], e["pid"]) for e in events if e["ph"] == "X")
    tables = analysis.evidence
    for pid in (100, 101, 102):
        count = int((tables.iterations.pid == pid).sum())
        assert slices["iteration", pid] == count == 10
        assert slices["phase", pid] == 4 * count
        assert slices["collective", pid] == int((tables.collectives.pid == pid).sum()) == 22
        assert sum(e["ph"] == "X" and e["name"] == "bucket" and e["pid"] == pid for e in events) == 20
    lengths = [e["dur"] for e in events if e["ph"] == "X" and e["cat"] == "iteration"]
    np.testing.assert_allclose(lengths, tables.iterations.duration_ns / 1000)


def test_slices_nest_on_every_track(analysis: Analysis) -> None:
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in exported(analysis)["traceEvents"]:
        if event["ph"] == "X":
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, begin + length))
    assert len(tracks) >= 3 * 3
    for slices in tracks.values():
        open_until: list[int] = []
        for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], "a slice leaves the one around it"
            open_until.append(end)


def test_phases_fill_their_iteration_exactly(analysis: Analysis) -> None:
    events = [e for e in exported(analysis)["traceEvents"] if e["ph"] == "X" and e["tid"] == 1 and e["pid"] == 100]
    for index in range(0, len(events), 5):
        iteration, *phases = events[index : index + 5]
        assert [p["name"] for p in phases] == ["forward", "backward", "exposed communication", "rest"]
        assert sum(round(p["dur"] * 1000) for p in phases) == round(iteration["dur"] * 1000)


@pytest.mark.slow
def test_counters_hold_every_byte(analysis: Analysis) -> None:
    samples: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for event in exported(analysis)["traceEvents"]:
        if event["ph"] == "C":
            samples[event["pid"], event["name"]].append((event["ts"], event["args"]["value"]))
    assert len(samples) == 6
    for (_, name), points in samples.items():
        assert name in ("sent, % of line rate", "received, % of line rate")
        assert points[-1][1] == 0
        assert max(value for _, value in points) == 100
        times, values = np.array(points).T
        moved = float((np.diff(times) * values[:-1] / 100 * 1e9 / 8 / 1e6).sum())
        assert moved == pytest.approx(11 * 80 * BYTES_PER_BIN)


def test_a_long_recording_keeps_its_peaks(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "_MOST_CELLS", 60)
    events = [e for e in exported(analysis)["traceEvents"] if e["ph"] == "C"]
    peaks = [e["args"]["value"] for e in events if "peak" in e["name"]]
    assert max(peaks) == 100
    assert max(e["args"]["value"] for e in events if "peak" not in e["name"]) < 100
    assert len(events) < 6 * 2 * 12


def test_without_a_line_rate_counters_are_in_gigabits(tmp_path: Path) -> None:
    events = exported(analysed(Job(rate_bps=None).fill(), tmp_path))["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    assert {e["name"] for e in counters} == {"sent, Gbit/s", "received, Gbit/s"}
    assert max(e["args"]["value"] for e in counters) == pytest.approx(1.0)


def test_processes_have_names_and_hostile_ones_are_harmless(tmp_path: Path) -> None:
    job = Job(changes={"host": "\x1b]0;x\x07"}).fill()
    document = exported(analysed(job, tmp_path))
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1", "link eth0 (7)", "link eth1 (7)"}
    assert document["otherData"]["host"] == "\\x1b]0;x\\x07"


@pytest.mark.parametrize("lost", ["marks", "wire"])
def test_a_trace_without_marks_or_wire_is_still_valid(lost: str, tmp_path: Path) -> None:
    job = Job().fill()
    getattr(job, lost).clear()
    assert isinstance(exported(analysed(job, tmp_path))["traceEvents"], list)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_no_two_slices_on_a_track_overlap(spans: list[tuple[int, int]]) -> None:
    spans = sorted(spans)
    begin = np.array([b for b, _ in spans], np.int64)
    end = begin + np.array([length for _, length in spans], np.int64)
    tracks = perfetto.tracks_of(begin, end)
    busy = max((sum(b <= at < e for b, e in zip(begin, end, strict=True)) for at in range(80)), default=0)
    assert len(set(tracks)) <= max(busy, 1) + (end == begin).sum()
    for track in set(tracks):
        mine = [(b, e) for b, e, t in zip(begin, end, tracks, strict=True) if t == track]
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(mine))


def test_nothing_begins_before_the_recording(tmp_path: Path) -> None:
    """The recording begins inside a bin, and a bin before it was still collected."""
    job = Job(ranks=1).fill()
    begin_ns = START_NS - 10 * MS
    job.wire += [(1, 0, begin_ns - k * MS, 900, BYTES_PER_BIN // 10 * k) for k in (3, 2, 1, 0)]
    job.changes["started_ns"] = begin_ns + MS // 2
    events = exported(analysed(job, tmp_path))["traceEvents"]
    sent = [(e["ts"], e["args"]["value"]) for e in events if e["ph"] == "C" and e["name"].startswith("sent")]
    assert min(time for time, _ in sent) == 0
    assert [time for time, _ in sent] == sorted({time for time, _ in sent})
    before = Job(ranks=1).fill()
    before.wire += [(1, 0, begin_ns - k * MS, 900, BYTES_PER_BIN // 10 * k) for k in (3, 2, 1)]
    before.changes["started_ns"] = begin_ns - 3 * MS // 2
    place = tmp_path / "before"
    place.mkdir()
    events = exported(analysed(before, place))["traceEvents"]
    sent = [(e["ts"], e["args"]["value"]) for e in events if e["ph"] == "C" and e["name"].startswith("sent")]
    assert sent[:3] == [(0, 20.0), (500, 10.0), (1500, 0.0)]  # half a bin, a whole one, and then nothing


def test_drops_of_the_interface_are_a_counter(tmp_path: Path) -> None:
    events = exported(analysed(Job(ranks=1, drops=4).fill(), tmp_path))["traceEvents"]
    drops = [(e["ts"], e["args"]["value"]) for e in events if e["ph"] == "C" and e["name"] == "packets dropped"]
    assert drops == [(0, 0), (2_210_000, 4)]
