"""The page as a file: complete, self-contained, its numbers exact, and nothing in it obeys the trace."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.synthetic import MS, START_NS, Job, with_findings

from netprof.analysis import Analysis, analyze, definitions
from netprof.analysis.events.horovod import HorovodSummary
from netprof.analysis.events.nccl import NcclSummary
from netprof.analysis.findings.collectives.collective_kinds import KindSummary, Timing
from netprof.analysis.findings.collectives.collectives import COLLECTIVES
from netprof.analysis.findings.collectives.horovod import HOROVOD, HorovodFinding
from netprof.analysis.findings.collectives.nccl import NCCL
from netprof.analysis.findings.host.gpu_summary import GpuSummary, MetricSummary, PhaseMean
from netprof.analysis.findings.host.gpus import GPUS
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.links.links import LINKS
from netprof.analysis.findings.verdict.verdict import VERDICT
from netprof.analysis.pieces import PieceSize
from netprof.analysis.section import Section
from netprof.model import Gpu, Target
from netprof.schema import GpuMetric
from netprof.trace import TraceReader
from netprof.views.html import render
from netprof.views.html.pack import json_for_script, pack_integers, pack_scaled, pack_times

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
TYPES = {"u1": "u1", "u2": "<u2", "i4": "<i4", "f8": "<f8"}


class Page(html.parser.HTMLParser):
    """What a browser would see: the elements with their attributes, scripts apart, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        self._stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._stack.append("/" + tag)

    def handle_data(self, data: str) -> None:
        if self._stack and self._stack[-1] == "script":
            self.scripts[-1] += data
        elif not self._stack or self._stack[-1] != "style":
            self.text += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


def analysed(job: Job, path: Path) -> Analysis:
    return analyze(TraceReader(job.write(path / "t.netprof")))


def unpack(packed: dict[str, Any]) -> np.ndarray:
    values: np.ndarray = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), TYPES[packed["type"]])
    if "unit" in packed:
        return values * float(packed["unit"])
    return np.cumsum(values) if packed["delta"] else values


@pytest.fixture
def analysis(tmp_path: Path) -> Analysis:
    return analysed(Job().fill(), tmp_path)


@pytest.mark.slow
def test_the_page_is_whole(analysis: Analysis) -> None:
    page = Page(render(analysis))
    assert analysis.of(VERDICT).sentence in page.text
    for section in ("tracks", "anatomy", "iterations", "collectives", "flows", "whatif", "recording", "definitions"):
        assert any(attributes.get("id") == section for tag, attributes in page.elements if tag == "section"), section
    for definition in analysis.definitions:
        assert definition.text in page.text
    assert "lost marks" in page.text
    assert "CPU (1.0 % of a core)" in page.text


@pytest.mark.slow
def test_nothing_is_loaded_from_anywhere(analysis: Analysis) -> None:
    page = Page(render(analysis))
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import", render(analysis).split("</style>")[0])


@pytest.mark.slow
def test_the_policy_lets_only_these_scripts_run(analysis: Analysis) -> None:
    page = Page(render(analysis))
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a) or ""
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    digests = re.findall(r"'sha256-([^']+)'", policy)
    assert digests == [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts[1:]]


@pytest.mark.slow
def test_the_tracks_hold_every_iteration_bucket_and_collective_to_the_microsecond(analysis: Analysis) -> None:
    data, tables = Page(render(analysis)).data["tracks"], analysis.evidence
    for rank, pid in zip(data["ranks"], (100, 101), strict=True):
        own = tables.iterations.where(tables.iterations.pid == pid)
        for name, packed in rank["iterations"].items():
            expected = (getattr(own, name) - analysis.meta.started_ns) / 1000
            np.testing.assert_allclose(unpack(packed), expected, atol=1.0)
        assert len(unpack(rank["buckets"]["launch_ns"])) == 20
        assert unpack(rank["buckets"]["number"]).tolist() == [0, 1] * 10
        assert len(unpack(rank["collectives"]["begin"])) == 22
        assert set(unpack(rank["collectives"]["row"])) == {0, 1}


@pytest.mark.slow
def test_the_tracks_hold_every_byte_of_every_bin(analysis: Analysis) -> None:
    data = Page(render(analysis)).data["tracks"]
    for link in data["links"]:
        for direction in ("tx", "rx"):
            lane = link[direction]
            rates = unpack(lane["mean"])
            assert lane["count"] == len(rates) == 10 * 200 + 80
            at_us = lane["first_us"] + lane["cell_us"] * np.arange(len(rates))
            within_ms = (at_us - (START_NS - analysis.meta.started_ns) / 1000) / 1000 % 200
            busy = (within_ms > 49.5) & (within_ms < 129.5)
            np.testing.assert_allclose(rates[busy], 1e9, rtol=1e-4)
            assert not rates[~busy].any()


@pytest.mark.slow
def test_a_lonely_packet_is_seen_from_afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for few cells a single small bin among silent ones keeps its peak, and is not rounded away."""
    monkeypatch.setattr("netprof.views.html.tracks._CELL_BUDGET_BYTES", 4096)
    monkeypatch.setattr("netprof.views.html.tracks._FINE_CELLS", 10)
    job = Job().fill()
    quiet = START_NS + 20_000 * 200 * MS
    job.wire.append((1, 0, quiet, 50, 66))
    job.changes["stopped_ns"] = quiet + 1000 * MS
    link = Page(render(analysed(job, tmp_path))).data["tracks"]["links"][0]
    assert link["levels"] == 255
    assert link["tx"]["cell_us"] > 1000
    peak = unpack(link["tx"]["peak"])
    assert peak.max() == pytest.approx(1e9)
    assert peak[-1] >= 66 * 8 * 1000
    assert unpack(link["tx"]["mean"])[-1] > 0


@pytest.mark.slow
def test_of_very_many_idle_times_the_longest_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = analysed(Job().fill(), tmp_path)

    def idle_us() -> tuple[np.ndarray, float]:
        link = Page(render(analysis)).data["tracks"]["links"][0]
        each = [unpack(spans["end"]) - unpack(spans["begin"]) for spans in link["idle"].values()]
        return np.sort(np.concatenate(each)), link["idle_not_drawn_us"]

    every, up_to = idle_us()
    assert up_to == 0
    monkeypatch.setattr("netprof.views.html.tracks._MOST_IDLE", 15 * len(analysis.of(LINKS)))
    drawn, up_to = idle_us()
    assert len(every) > 15
    assert drawn == pytest.approx(every[-15:], abs=1)
    assert up_to == pytest.approx(every[-16], abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["host", "kernel", "command", "target", "device", "stop", "warning", "address"])
def test_names_are_text(place: str, tmp_path: Path) -> None:
    job = Job().fill()
    target = dataclasses.replace(job.meta().targets[0], command=HOSTILE)
    changes: dict[str, dict[str, Any]] = {
        "host": {"host": HOSTILE},
        "kernel": {"kernel": HOSTILE},
        "command": {"command": ("netprof", HOSTILE)},
        "target": {"targets": (target, *job.meta().targets[1:])},
        "stop": {"stop_reason": HOSTILE},
        "warning": {"warnings": (HOSTILE,)},
    }
    job.changes |= changes.get(place, {})
    if place in ("device", "address"):
        column = "local_addr" if place == "address" else "device"
        job.flow_changes[column] = [HOSTILE] * 2
    text = render(analysed(job, tmp_path))
    page = Page(text)
    assert "<script>alert" not in text
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not re.search("[\x1b\u202e]", text)
    assert len(page.scripts) == 8
    everything = page.text + json.dumps(page.data)
    assert "<img src=x onerror=alert(1)>\\x1b[31m\\u202e" in everything.replace("\\\\", "\\")


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        Job(rate_bps=None),
        Job(world_size=None),
        Job(ranks=1, world_size=1),
        Job(iterations=0),
        Job(changes={"targets": (), "stop_reason": "", "stopped_ns": None}),
        Job(changes={"targets": (Target(100, 5),)}),
    ],
    ids=["no rate", "no world size", "alone", "one step", "no targets", "no rank"],
)
@pytest.mark.parametrize("without", ["nothing", "marks", "wire"])
def test_what_is_unknown_is_said(job: Job, without: str, tmp_path: Path) -> None:
    job = dataclasses.replace(job, marks=[], wire=[]).fill()
    if without != "nothing":
        getattr(job, without).clear()
    analysis = analysed(job, tmp_path)
    page = Page(render(analysis))
    assert "nan" not in page.text.lower()
    assert "None" not in page.text
    if without == "marks":
        why = "no DDP marks" if analysis.of(ITERATIONS).inferred is None else "these are inferred from"
        assert why in page.text
    if without == "wire":
        assert "no traffic of the job was seen" in page.text


@given(st.lists(st.integers(-(2**50), 2**50), max_size=50))
def test_packed_integers_come_back(values: list[int]) -> None:
    assert unpack(pack_integers(np.array(values, np.int64))).tolist() == values


@pytest.mark.slow
@given(st.lists(st.integers(0, 2**51), max_size=50), st.integers(0, 2**51))
def test_packed_times_come_back(values: list[int], origin: int) -> None:
    packed = pack_times(np.array(values, np.int64), origin)
    assert unpack(packed).tolist() == [(value - origin) // 1000 for value in values]


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=50), st.sampled_from([255, 65535]))
def test_scaled_values_round_up_by_less_than_a_level(values: list[float], levels: int) -> None:
    array = np.array(values)
    largest = float(array.max())
    back = unpack(pack_scaled(array, largest, levels))
    unit = largest / levels if largest >= 1 else 1.0
    assert (back >= array - 1e-9 * largest).all()
    assert (back - array <= unit * (1 + 1e-9)).all()


@given(st.text() | st.just("</script>") | st.just("<!--"))
def test_json_cannot_leave_its_element(text: str) -> None:
    shown = json_for_script({"text": text})
    assert not set(shown) & set("<>&")
    assert shown.isascii()
    assert json.loads(shown) == {"text": text}


def metric(mean: float, phases: dict[str, PhaseMean]) -> MetricSummary:
    return MetricSummary(GpuMetric.SM_ACTIVE_PERCENT, 100, 20 * MS, 20 * MS, 0, mean, 1.0, 99.5, None, phases)


@pytest.mark.slow
def test_gpus_have_their_table_and_only_where_there_are_any(analysis: Analysis) -> None:
    assert 'id="gpus"' not in render(analysis)
    metrics = {
        GpuMetric.SM_ACTIVE_PERCENT: metric(71.25, {"forward": PhaseMean(88.5, 40), "rest": PhaseMean(None, 1)}),
        GpuMetric.PCIE_TX_BYTES_PER_S: metric(2.5e9, {}),
    }
    summary = GpuSummary(Gpu(3, name=HOSTILE), (0,), "iterations", 10**9, metrics, {}, {"power cap": 0.25, "idle": 0.5})
    text = render(with_findings(analysis, {GPUS: (summary,)}))
    page = Page(text)
    assert "<img src=x" not in text
    assert re.search(r"SM active\s*71\.2 %\s*1\.0 %\s*99\.5 %\s*88\.5 %\s*-\s*20\.0 ms", page.text)
    assert re.search(r"PCIe tx\s*2\.50 GB/s", page.text)
    assert "lowered by power cap 25.0 % of the samples" in page.text
    assert "by idle" not in page.text


@pytest.mark.slow
def test_what_other_frameworks_communicate_is_shown(analysis: Analysis) -> None:
    kind = KindSummary("gloo", "all-gather", Timing.MEASURED, 7, 28_000_000, 90 * MS, 2.5e9, 0.5)
    horovod = HorovodSummary(100, 60, 6, 10.0, 100 * MS, 50 * MS, 20 * MS, 25 * MS, 5 * MS)
    nccl = NcclSummary(101, 40, 20, 1, (2,), "its environment", 4_000_000, 0.011, 375_000_000, 1.0, None)
    changes: dict[Section[Any], Any] = {
        COLLECTIVES: dataclasses.replace(
            found := analysis.of(COLLECTIVES), counted=dataclasses.replace(found.counted, kinds=(kind,))
        ),
        HOROVOD: HorovodFinding((horovod,), {100: 0}),
        NCCL: dataclasses.replace(analysis.of(NCCL), processes=(nccl,), names={101: "rank 1"}),
    }
    page = Page(render(with_findings(analysis, changes)))
    assert re.search(r"all-gather\s*gloo\s*7\s*28\.0 MB\s*90\.0 ms\s*2\.50 Gbit/s\s*1\.25 Gbit/s", page.text)
    assert re.search(r"0\s*60\s*6\s*10\.0\s*50\.0 %\s*20\.0 %\s*25\.0 %\s*5\.0 %", page.text)
    assert re.search(
        r"40 operations in 1 communicator\s*ranks\s*2  \(its environment\)\s*buffers\s*4\.00 MB", page.text
    )
    assert re.search(r"11\.0 ms a launch, 3\.00 Gbit/s meanwhile\s*wire / algorithm\s*unknown", page.text)
    for definition in (definitions.KINDS, definitions.HOROVOD, definitions.NCCL):
        assert definition.text in page.text


@pytest.mark.slow
def test_without_marks_of_the_forward_pass_it_is_part_of_the_rest(analysis: Analysis) -> None:
    stepped = dataclasses.replace(analysis.of(ITERATIONS), stepped=(100, 101))
    page = Page(render(with_findings(analysis, {ITERATIONS: stepped})))
    assert "rest + forward" in page.text
    assert list(page.data["phases"]) == ["backward", "exposed_communication", "rest"]
    assert definitions.STEPS.text in page.text


@pytest.mark.parametrize("most", [1, 100])
def test_of_what_is_too_long_a_typical_part_is_drawn_and_that_is_said(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations are drawn one by one in the part alone; their times and all tables are of the whole."""
    monkeypatch.setattr("netprof.analysis.sections._MOST_DRAWN", most)
    monkeypatch.setattr("netprof.analysis.sections.typical_piece", lambda pieces, times: pieces[1])
    reader = TraceReader(Job(iterations=40).fill().write(tmp_path / "t.netprof"))
    analysis = analyze(reader, size=PieceSize(rows=2_000, at_once=1, shortest_ns=1))
    page = Page(render(analysis))
    tracks, buttons = page.data["tracks"], [seen for name, seen in page.elements if seen.get("class") == "jump"]
    drawn = [len(unpack(rank["iterations"]["begin_ns"])) for rank in tracks["ranks"]]
    assert [run["count"] for run in page.data["iterations"]] == [40, 40]
    waiting = page.data["waiting"]["number"]
    if most == 100:
        assert drawn == [40, 40]
        assert (len(buttons), tracks["begin_us"], waiting) == (8, 0, list(range(1, 41)))
        assert "too long to be drawn" not in page.text
        return
    assert 2 <= drawn[0] == drawn[1] < 30
    begin_us = unpack(tracks["ranks"][0]["iterations"]["begin_ns"])
    first = page.data["iterations"][0]["begin_us"].index(pytest.approx(begin_us[0], abs=1.0)) + 1
    assert waiting == list(range(first, first + drawn[0]))
    assert 0 < tracks["begin_us"] <= begin_us[0]
    assert begin_us[-1] < tracks["begin_us"] + tracks["length_us"] < analysis.evidence.recording.total_ns / 1e3
    shown_us = [float(seen["data-begin"] or "nan") for seen in buttons]
    assert set(np.round(shown_us)) <= set(np.round(begin_us))
    assert 0 < len(shown_us) < 8
    assert "too long to be drawn event by event" in page.text
