"""The seam between a recording and its probes, with probes made up for it: order, notices, filters and failures."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from netprof.errors import NetprofError, NotPermittedError
from netprof.model import Device, LineRate, Losses, SkippedProbe, StartedProbe, Target
from netprof.probes.job.processes import find_job
from netprof.probes.kernel.targets import TargetMap
from netprof.probes.measurements import PROBES
from netprof.probes.probe import Columns, Description, Probe, Shared, Tables
from netprof.probes.series import Measure, SeriesRows
from netprof.schema import COUNT, UNKNOWN_RANK, MarkKind, tables
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder
from netprof.session.running import RunningProbe
from netprof.trace import TraceReader

SHARED = Shared(cast(TargetMap, None), lambda pid: UNKNOWN_RANK, 1_000_000)
TARGET = Target(7, 8)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the map of the job's processes needs root")


def rows(table: str, count: int = 1, **values: Any) -> dict[str, Any]:
    """Build rows of a table, as of now: zeros, but for `values`; a bin of the wire lasts until after any recording."""
    now_ns, minute_ns = time.monotonic_ns(), 60_000_000_000
    times = {"time_ns": now_ns, "bin_start_ns": now_ns, "first_ns": now_ns, "last_ns": now_ns + minute_ns}
    values = {name: when for name, when in times.items() if name in tables()[table].names} | values
    columns: dict[str, Any] = {}
    for field in tables()[table]:
        text = str(field.type) == "string"
        columns[field.name] = [""] * count if text else np.zeros(count, field.type.to_pandas_dtype())
    return columns | {name: np.full(count, value) for name, value in values.items()}


class Fake(Probe):
    """A probe that does as it is told, and says what happened to it. Subclasses are made by `fake`."""

    name = "fake"
    period_s = TICK_S
    said: ClassVar[list[str]]
    fails_in: ClassVar[str] = ""
    error: ClassVar[Exception] = NetprofError("out of order", "repair it")
    batches: ClassVar[Tables] = {}
    noticed: ClassVar[list[str]]
    notices = frozenset({"flows", "wire", "nic", "gpu"})

    def happens(self, what: str) -> None:
        self.said.append(what)
        if what == self.fails_in:
            raise self.error

    @classmethod
    def open(cls, shared: Shared) -> Fake:
        made = cls()
        made.happens("open")
        return made

    def follow(self, targets: Sequence[Target]) -> None:
        self.happens("follow")

    def sample(self) -> None:
        self.happens("sample")

    def drain(self, *, final: bool = False) -> Tables:
        self.happens("final drain" if final else "drain")
        return self.batches

    def notice(self, table: str, columns: Columns) -> None:
        self.happens("notice")
        self.noticed.append(table)

    def describe(self) -> Description:
        self.happens("describe")
        device = Device(self.name, 1, LineRate(None, "unknown"))
        return Description((StartedProbe(self.name),), warnings=("w",), losses=Losses(lost_marks=2), devices=(device,))

    def close(self) -> None:
        self.happens("close")


def fake(name: str = "fake", **behaviour: Any) -> type[Fake]:
    return type(name, (Fake,), {"name": name, "said": [], "noticed": [], **behaviour})


def run_through(kind: type[Fake]) -> RunningProbe:
    running = RunningProbe(kind, SHARED)
    running.follow([TARGET])
    running.drain(1.0)
    running.notice("flows", rows("flows"))
    running.describe()
    return running


def test_a_probe_that_works_is_called_in_order_and_says_what_it_found() -> None:
    kind = fake(batches={"nic": rows("nic")})
    running = run_through(kind)
    assert kind.said == ["open", "follow", "drain", "notice", "describe"]
    assert list(running.drain(2.0)) == ["nic"]
    assert running.describe().skipped == ()
    assert running.drained_ns == 2_000_000_000
    running.close()
    running.close()
    assert kind.said.count("close") == 1


@pytest.mark.parametrize("method", ["open", "follow", "drain", "notice", "describe"])
def test_a_probe_that_fails_is_closed_and_named_with_its_remedy(method: str) -> None:
    kind = fake(fails_in=method)
    running = run_through(kind)
    calls = len(kind.said)
    assert not running.is_open
    assert running.drain(2.0) == {}
    running.notice("flows", rows("flows"))
    running.follow([TARGET])
    assert running.describe().skipped == (SkippedProbe("fake", "out of order", "repair it"),)
    running.close()
    assert len(kind.said) == calls, "it was called again"
    assert kind.said.count("close") == (method != "open")
    kept = () if method in ("open", "describe") else ("fake",)
    assert tuple(device.device for device in running.describe().devices) == kept


def test_an_error_that_nobody_foresaw_is_named_too() -> None:
    running = run_through(fake(fails_in="drain", error=ZeroDivisionError("division by zero")))
    (skipped,) = running.describe().skipped
    assert skipped.reason == "it failed: ZeroDivisionError: division by zero"
    assert "bug" in skipped.remedy


def test_a_probe_that_does_not_even_close_ends_nothing() -> None:
    running = run_through(fake(fails_in="close", error=OSError("busy")))
    running.close()
    assert not running.is_open


@pytest.mark.parametrize("method", ["open", "follow"])
@pytest.mark.parametrize(
    ("required", "error"), [(True, NetprofError("no")), (True, OSError("no")), (False, NotPermittedError("no"))]
)
def test_what_must_not_be_missing_ends_the_attach(method: str, required: bool, error: Exception) -> None:
    with pytest.raises(type(error)):
        run_through(fake(fails_in=method, required=required, error=error))


@pytest.mark.parametrize("required", [True, False])
def test_in_the_middle_of_a_recording_nothing_ends_it(required: bool) -> None:
    running = run_through(fake(fails_in="drain", required=required, error=NotPermittedError("no more")))
    assert [skipped.reason for skipped in running.describe().skipped] == ["no more"]


@pytest.mark.parametrize("method", ["open", "follow", "drain", "notice", "describe"])
def test_the_cpu_time_of_every_call_is_counted_and_no_waiting(method: str) -> None:
    def happens(self: Fake, what: str) -> None:
        if what == method:
            end_s = time.thread_time() + 0.02
            while time.thread_time() < end_s:
                pass
        time.sleep(0.01)

    cost = run_through(fake("busy", happens=happens)).cost
    assert cost.name == "busy"
    assert 0.02 <= cost.cpu_s < 0.03


def test_a_probe_is_drained_at_its_own_pace() -> None:
    running = RunningProbe(fake(period_s=0.5), SHARED)
    assert running.is_due(10.0, 0.05)
    running.drain(10.0)
    assert [running.is_due(10.0 + tenths / 10, 0.05) for tenths in range(6)] == [False] * 5 + [True]


def test_a_probe_that_has_something_to_do_is_drained_before_its_time() -> None:
    kind = fake(period_s=0.5, has_news=False)
    running = RunningProbe(kind, SHARED)
    running.drain(10.0)
    assert not running.is_due(10.1, 0.05)
    kind.has_news = True  # type: ignore[assignment]
    assert running.is_due(10.1, 0.05)


def test_descriptions_add_up() -> None:
    first = Description(skipped=(SkippedProbe("a", "b"),), losses=Losses(1, 2, 3, 4))
    more = Losses(10, 20, 30, 40, truncated=True)
    second = Description((StartedProbe("c"),), (SkippedProbe("d", "e"),), ("f",), more)
    assert first + second == Description(
        (StartedProbe("c"),),
        (SkippedProbe("a", "b"), SkippedProbe("d", "e")),
        ("f",),
        Losses(11, 22, 33, 44, truncated=True),
    )


@pytest.fixture
def job() -> Iterator[list[Target]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield find_job([process.pid])
        process.kill()


def record(job: list[Target], trace: Path, *kinds: type[Probe], ticks: int = 4) -> TraceReader:
    """Record a job that does nothing with made-up probes."""
    recorder = Recorder(job, RecordingOptions(trace), [], kinds)
    recorder.start()
    for _ in range(ticks):
        recorder.job.wait(TICK_S)
        recorder.tick()
    recorder.stop("it is enough")
    return TraceReader(trace)


def test_a_probe_samples_between_drains_as_often_as_it_wants() -> None:
    """Ten looks in ten twentieths of a second, of which every fourth drains."""
    kind = fake("often", period_s=0.2, sample_s=0.05)
    running = RunningProbe(kind, SHARED)
    running.follow([TARGET])
    for tick in range(1, 11):
        if running.is_due(tick * 0.05, 0.025):
            running.drain(tick * 0.05)
        else:
            running.sample(tick * 0.05, 0.025)
    assert kind.said.count("sample") == 7
    assert kind.said.count("drain") == 3
    seldom = fake("seldom")
    RunningProbe(seldom, SHARED).sample(1.0, 0.0)
    assert "sample" not in seldom.said


@needs_root
def test_every_probe_sees_the_tables_that_it_names_and_one_that_fails_does_not_end_the_recording(
    job: list[Target], tmp_path: Path
) -> None:
    first = fake("first", batches={"flows": rows("flows", flow_id=3), "wire": rows("wire", flow_id=3)})
    failing = fake("failing", fails_in="notice")
    absent = fake("absent", fails_in="open")
    last = fake("last", batches={"nic": rows("nic"), "gpu": rows("gpu", 0)})
    other = fake("other", notices=frozenset({"wire"}))
    reader = record(job, tmp_path / "t", first, failing, absent, last, other)
    assert reader.table("wire").num_rows == reader.table("nic").num_rows == 5, "four ticks and the end"
    assert first.noticed == last.noticed == ["flows", "wire", "nic"] * 5
    assert other.noticed == ["wire"] * 5
    assert first.said[-3:] == last.said[-3:] == ["notice", "describe", "close"]
    assert "final drain" in first.said
    meta = reader.meta
    assert [probe.name for probe in meta.probes_started] == ["first", "failing", "last", "other"]
    assert {skipped.name: skipped.reason for skipped in meta.probes_skipped} == {
        "failing": "out of order",
        "absent": "out of order",
    }
    assert [device.device for device in meta.devices] == ["first", "failing", "last", "other"], (
        "what it had found stays"
    )
    assert meta.losses.lost_marks == 8
    assert [cost.name for cost in meta.cost.probes] == ["first", "failing", "absent", "last", "other"]
    assert 0 < sum(cost.cpu_s for cost in meta.cost.probes) < meta.cost.cpu_s
    assert meta.stop_reason == "it is enough"


@needs_root
def test_series_of_several_probes_have_numbers_of_their_own(job: list[Target], tmp_path: Path) -> None:
    class One(Probe):
        name = "one"
        period_s = TICK_S

        def __init__(self, ids: Iterator[int]) -> None:
            self._rows = SeriesRows(self.name, ids)

        @classmethod
        def open(cls, shared: Shared) -> One:
            return cls(shared.series_ids)

        def drain(self, *, final: bool = False) -> Tables:
            for subject in "ab":
                self._rows.see(time.monotonic_ns(), subject, Measure("n", "times", COUNT, ""), 5)
            return {"counters": self._rows.drain()}

        def describe(self) -> Description:
            return Description(series=self._rows.series)

    class Two(One):
        name = "two"

    reader = record(job, tmp_path / "t", One, Two)
    told = [(series.source, series.subject) for series in sorted(reader.meta.series, key=lambda series: series.id)]
    assert told == [("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")]
    ids = [series.id for series in reader.meta.series]
    assert len(set(ids)) == 4
    assert set(reader.table("counters").column("series").to_pylist()) == set(ids)


@needs_root
def test_a_flow_s_row_is_written_before_its_bytes(
    job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr("netprof.trace.TraceWriter.append", lambda self, name, columns: written.append(name))
    record(job, tmp_path / "t", fake(batches={"wire": rows("wire"), "flows": rows("flows")}))
    assert written[:2] == ["flows", "wire"]
    assert written == written[:2] * (len(written) // 2)


@needs_root
@pytest.mark.parametrize("method", ["open", "follow"])
def test_an_attach_that_fails_leaves_neither_trace_nor_probe(method: str, job: list[Target], tmp_path: Path) -> None:
    first, failing = fake("first"), fake("failing", fails_in=method, required=True)
    with pytest.raises(NetprofError, match="out of order"):
        record(job, tmp_path / "t", first, failing)
    assert first.said[-1] == "close"
    assert not (tmp_path / "t").exists()


@needs_root
def test_processes_that_a_probe_saw_begin_are_looked_for_and_followed(tmp_path: Path) -> None:
    seen = fake(batches={"marks": rows("marks", kind=MarkKind.PROCESS_FORK)})
    with subprocess.Popen(["sh", "-c", "read line; cat; :"], stdin=subprocess.PIPE, text=True) as shell:
        recorder = Recorder(find_job([shell.pid]), RecordingOptions(tmp_path / "t"), [], [seen])
        recorder.start()
        assert seen.said == ["open", "follow"]
        assert shell.stdin is not None
        print("go", file=shell.stdin, flush=True)
        for _ in range(50):
            recorder.job.wait(TICK_S)
            recorder.tick()
            if len(recorder.job.targets) > 1:
                break
        meta = recorder.stop("it is enough")
    assert seen.said.count("follow") == 2
    assert len(meta.targets) == 2


def test_every_measurement_has_a_name_of_its_own_and_flows_come_first() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES)
    assert PROBES[0].required
    assert min(probe.sample_s or probe.period_s for probe in PROBES) == TICK_S
