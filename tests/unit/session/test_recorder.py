"""A recording from attach to detach, without rights: what is kept, what is left out, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from netprof.errors import NetprofError, NotPermittedError, TraceError, UsageError
from netprof.files import Directory
from netprof.model import Meta, Target
from netprof.probes.job.processes import find_job
from netprof.probes.kernel.targets import NoTargets
from netprof.probes.probe import Description, Probe, Shared, Tables
from netprof.schema import MarkKind, tables
from netprof.session import recorder as recorder_module
from netprof.session.options import RecordingOptions
from netprof.session.recorder import Recorder
from netprof.trace import TraceReader, TraceWriter

REFUSED = NotPermittedError("not permitted", "get the rights")
SECOND_NS = 1_000_000_000


def rows(table: str, **values: Sequence[int]) -> dict[str, Any]:
    """Rows of a table: zeros, but for `values`."""
    count = len(next(iter(values.values())))
    zeros = {field.name: np.zeros(count, field.type.to_pandas_dtype()) for field in tables()[table]}
    return zeros | {name: np.array(value, zeros[name].dtype) for name, value in values.items()}


def counted(recorder: Recorder, value: int) -> dict[str, Any]:
    """A row of table counters, as of now."""
    return rows("counters", time_ns=[max(recorder.started_ns, 1)], value=[value])


class Given(Probe):
    """A probe that hands over what it is given."""

    name = "given"
    period_s = 0.05
    gives: ClassVar[list[Tables]] = []
    shared: ClassVar[list[Shared]] = []

    @classmethod
    def open(cls, shared: Shared) -> Given:
        cls.gives, cls.shared = [], [shared]
        return cls()

    def drain(self, *, final: bool = False) -> Tables:
        return self.gives.pop(0) if self.gives else {}

    def describe(self) -> Description:
        return Description()


@pytest.fixture
def job() -> Iterator[list[Target]]:
    with subprocess.Popen(["sh", "-c", "echo started; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
            time.sleep(0.001)
        yield find_job([process.pid])
        process.kill()


@pytest.fixture
def recorder(job: list[Target], tmp_path: Path) -> Recorder:
    made = Recorder(job, RecordingOptions(tmp_path / "t"), ["netprof", "--token=x"], [Given], refused=REFUSED)
    made.start()
    return made


@pytest.mark.parametrize("refused", [None, REFUSED])
def test_the_kernel_is_told_of_the_job_only_where_that_is_permitted(
    refused: NotPermittedError | None, job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[NoTargets] = []

    def target_map() -> NoTargets:
        made.append(NoTargets())
        return made[0]

    monkeypatch.setattr(recorder_module, "TargetMap", target_map)
    Recorder(job, RecordingOptions(tmp_path / "t"), ["netprof"], [], refused=refused).abandon()
    assert bool(made) == (refused is None)


def test_a_job_that_is_still_starting_is_looked_at_again_from_the_attach_on(recorder: Recorder) -> None:
    assert recorder.job._expect_until_s > time.monotonic()
    recorder.abandon()


def recorded(recorder: Recorder, *batches: Tables) -> TraceReader:
    for batch in batches:
        Given.gives.append(batch)
        recorder.tick()
        time.sleep(0.06)
    recorder.stop("enough")
    return TraceReader(recorder.options.out)


def test_marks_of_before_and_after_are_left_out(recorder: Recorder) -> None:
    begin_ns, kind = recorder.started_ns, [int(MarkKind.DDP_FORWARD)]
    times = [begin_ns - 1, begin_ns, begin_ns + 1, begin_ns + 600 * SECOND_NS]
    reader = recorded(recorder, {"marks": rows("marks", time_ns=times, kind=kind * 4)})
    assert reader.table("marks").column("time_ns").to_pylist() == [begin_ns, begin_ns + 1]
    assert reader.table("outside").num_rows == 0


def test_communicators_of_while_probes_were_attached_are_kept(recorder: Recorder) -> None:
    begin_ns, kind = recorder.started_ns, int(MarkKind.NCCL_COMM_INIT)
    times = [begin_ns - SECOND_NS, begin_ns + 600 * SECOND_NS]
    reader = recorded(recorder, {"marks": rows("marks", time_ns=times, kind=[kind, kind])})
    assert reader.table("marks").column("time_ns").to_pylist() == times[:1]


def test_bytes_of_before_and_after_are_added_up_outside(recorder: Recorder) -> None:
    begin_ns = recorder.started_ns
    late_ns = begin_ns + 600 * SECOND_NS
    reader = recorded(
        recorder,
        {
            "wire": rows(
                "wire",
                flow_id=[1, 1, 1, 1, 2],
                first_ns=[begin_ns - 9, begin_ns - 9, begin_ns, late_ns, late_ns],
                last_ns=[begin_ns - 1, begin_ns, begin_ns, late_ns, late_ns],
                bin_start_ns=[begin_ns] * 5,
                payload_bytes=[1, 2, 4, 8, 16],
                wire_bytes=[1, 2, 4, 8, 16],
                packets=[1] * 5,
            )
        },
    )
    assert reader.table("wire").column("payload_bytes").to_pylist() == [2, 4]
    outside = reader.table("outside").to_pydict()
    assert (outside["flow_id"], outside["payload_bytes"], outside["packets"]) == ([1, 2], [9, 16], [2, 1])
    assert outside["time_ns"] == [reader.meta.stopped_ns] * 2


def test_other_tables_are_kept_whenever_their_rows_are_of(recorder: Recorder) -> None:
    times = [recorder.started_ns - SECOND_NS, recorder.started_ns]
    reader = recorded(recorder, {"counters": rows("counters", series=[1, 1], time_ns=times, value=[5, 6])})
    assert reader.table("counters").column("value").to_pylist() == [5, 6]


def test_nothing_is_no_batch(recorder: Recorder) -> None:
    seen: list[str] = []
    recorder.observe(lambda name, columns: seen.append(name))
    empty = {name: values[:0] for name, values in rows("wire", flow_id=[1]).items()}
    recorded(recorder, {"wire": empty}, {"counters": counted(recorder, 1)})
    assert seen == ["counters"]


def test_what_is_not_measured_is_said_with_the_remedy(recorder: Recorder) -> None:
    meta = recorded(recorder).meta
    assert [(probe.name, probe.reason, probe.remedy) for probe in meta.probes_skipped] == [
        ("flows", "not permitted: bytes are sampled, not counted packet by packet", "get the rights"),
        ("marks", "not permitted: iterations can only be inferred", "get the rights"),
    ]


def test_the_description_is_this_machine_s(recorder: Recorder) -> None:
    before_ns = time.time_ns()
    meta = recorded(recorder).meta
    assert meta.command == ("netprof", "--token=***")
    assert meta.stop_reason == "enough"
    assert meta.bin_ns == 1_000_000
    assert meta.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert meta.stopped_ns is not None
    assert 0 < meta.stopped_ns - meta.started_ns < 60 * SECOND_NS
    assert abs(meta.clock.realtime_ns - before_ns) < 60 * SECOND_NS
    assert abs((time.time_ns() - time.monotonic_ns()) - (meta.clock.realtime_ns - meta.clock.monotonic_ns)) < SECOND_NS
    assert meta.clock.monotonic_ns <= meta.started_ns


def test_command_lines_can_be_left_out(job: list[Target], tmp_path: Path) -> None:
    options = RecordingOptions(tmp_path / "t", command_lines=False)
    recorder = Recorder(job, options, ["netprof", "secret"], [Given], refused=REFUSED)
    recorder.start()
    meta = recorded(recorder).meta
    assert meta.command == ()
    assert [target.command for target in meta.targets] == [""]
    assert "sleep" in job[0].command


def test_long_words_of_the_command_are_cut(job: list[Target], tmp_path: Path) -> None:
    recorder = Recorder(job, RecordingOptions(tmp_path / "t"), ["x" * 5000], [Given], refused=REFUSED)
    recorder.start()
    assert recorded(recorder).meta.command == ("x" * 1000,)


def test_probes_are_told_what_was_chosen(job: list[Target], tmp_path: Path) -> None:
    options = RecordingOptions(tmp_path / "t", bin_ns=7_000_000, line_rate_bps=5.0)
    recorder = Recorder(job, options, [], [Given], refused=REFUSED)
    (shared,) = Given.shared
    recorder.abandon()
    assert (shared.bin_ns, shared.line_rate_bps, shared.devices) == (7_000_000, 5.0, ())
    assert not (tmp_path / "t").exists()


def test_a_device_that_the_job_does_not_have(job: list[Target], tmp_path: Path) -> None:
    options = RecordingOptions(tmp_path / "t", devices=("no-such-device",))
    with pytest.raises(UsageError, match="no-such-device"):
        Recorder(job, options, [], [Given], refused=REFUSED)
    assert not (tmp_path / "t").exists()


def test_rows_are_written_within_a_second_and_the_description_within_two(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, begin_s = recorder.options.out, time.monotonic()

    def at(after_s: float) -> tuple[int, int]:
        """Return how many rows are there after a tick at some time, and how often they were described."""
        now_s = begin_s + after_s
        clock = SimpleNamespace(monotonic=lambda: now_s, monotonic_ns=lambda: round(now_s * 1e9))
        monkeypatch.setattr(recorder_module, "time", clock)
        Given.gives.append({"counters": counted(recorder, 1)})
        recorder.tick()
        return TraceReader(out).table("counters").num_rows, len(described)

    described: list[Meta] = []
    monkeypatch.setattr(TraceWriter, "update_meta", lambda self, meta: described.append(meta))
    assert at(1.0) == (1, 1), "the first at once"
    assert at(1.4) == (1, 1), "then together with what comes"
    assert at(1.79) == (1, 1)
    assert at(1.81) == (4, 1), "what is written is complete until then"
    assert at(2.99) == (5, 1)
    assert at(3.01) == (5, 2)
    recorder.stop("enough")


def test_while_it_runs_the_trace_says_what_is_known(recorder: Recorder) -> None:
    recorder.tick()
    meta = TraceReader(recorder.options.out).meta
    assert meta.stopped_ns is None
    assert meta.stop_reason == ""
    assert [target.pid for target in meta.targets] == [target.pid for target in recorder.job.targets]
    assert recorder.meta == meta
    recorder.stop("enough")


def test_who_joins_is_counted_by_the_kernel_too_unless_it_has_ended(
    recorder: Recorder, job: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(job[0], start_ticks=1)
    added, dropped = list[int](), list[int]()
    monkeypatch.setattr(recorder, "_targets", SimpleNamespace(add=added.append, discard=dropped.append))
    for each, expected in ((job[0], []), (gone, [gone.pid])):
        monkeypatch.setattr(recorder.job, "changed", lambda each=each: [each])
        recorder.tick()
        assert dropped == expected
    assert added == [job[0].pid] * 2
    recorder.stop("enough")


def test_more_processes_than_the_kernel_has_room_for_end_no_recording(
    recorder: Recorder, job: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(pid: int) -> None:
        raise NetprofError("cannot write to a BPF map: Argument list too long")

    monkeypatch.setattr(recorder, "_targets", SimpleNamespace(add=full, discard=lambda pid: None))
    monkeypatch.setattr(recorder.job, "changed", lambda: job)
    recorder.tick()
    (said,) = recorded(recorder).meta.warnings
    assert said == "processes of the job may be missing: cannot write to a BPF map: Argument list too long"


@pytest.mark.parametrize("refused", [None, REFUSED])
def test_the_kernel_is_asked_of_processes_only_where_it_may_be(
    refused: NotPermittedError | None, job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, closed = list[bool](), list[str]()

    def made(*given: Any, **named: Any) -> Any:
        asked.append(named["asks_kernel"])
        return SimpleNamespace(targets=(), rank_of=None, close=lambda: closed.append("job"))

    monkeypatch.setattr(recorder_module, "Job", made)
    monkeypatch.setattr(recorder_module, "TargetMap", NoTargets)
    recorder = Recorder(job, RecordingOptions(tmp_path / "t"), [], [Given], refused=refused)
    assert asked == [refused is None]
    assert closed == []
    recorder.abandon()
    assert closed == ["job"]


def fails(*given: Any, **named: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_ends_the_recording_with_its_name(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TraceWriter, "append", fails)
    Given.gives.append({"counters": counted(recorder, 1)})
    with pytest.raises(TraceError, match=r"cannot write the trace to .*: No space left on device"):
        recorder.tick()
    Given.gives.append({"counters": counted(recorder, 1)})
    meta = recorder.stop("enough")
    assert meta.warnings == ("the last part could not be written: No space left on device",)


def test_a_disk_that_is_full_at_the_end_is_no_failure(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraceWriter, "close", fails)
    assert recorder.stop("enough").stop_reason == "enough"


def test_an_attach_that_fails_is_undone(job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Given):
        required = True

        def follow(self, targets: Sequence[Target]) -> None:
            raise NetprofError("out of order")

    recorder = Recorder(job, RecordingOptions(tmp_path / "t"), [], [Failing], refused=REFUSED)
    with pytest.raises(NetprofError, match="out of order"):
        recorder.start()
    assert not (tmp_path / "t").exists()


def test_what_cannot_be_seen_of_the_job_is_said_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> Sequence[Target]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(recorder.job, "changed", lost)
    recorder.tick()
    recorder.tick()
    (said,) = recorded(recorder).meta.warnings
    assert said == "processes that joined the job may be missing: [Errno 24] Too many open files"


def test_probes_learn_from_each_other_s_rows_and_so_does_the_job(
    job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed: list[str] = []

    class Learns(Given):
        name = "learns"
        notices = frozenset({"counters"})

        def drain(self, *, final: bool = False) -> Tables:
            return {}

        def notice(self, table: str, columns: Mapping[str, Any]) -> None:
            noticed.append(table)

    recorder = Recorder(job, RecordingOptions(tmp_path / "t"), [], [Given, Learns], refused=REFUSED)
    recorder.start()
    monkeypatch.setattr(recorder.job, "notice", lambda table, columns: noticed.append(f"job {table}"))
    Given.gives.append({"counters": counted(recorder, 1)})
    recorder.tick()
    assert noticed == ["job counters", "counters"]
    recorder.stop("enough")


def test_how_far_everything_was_handed_over_is_known(recorder: Recorder) -> None:
    assert recorder.collected_ns == 0
    before_ns = time.monotonic_ns()
    recorder.tick()
    assert before_ns - 1000 <= recorder.collected_ns <= time.monotonic_ns()
    recorder.stop("enough")


def test_the_cost_is_told(recorder: Recorder) -> None:
    cost = recorded(recorder, {"counters": counted(recorder, 1)}).meta.cost
    assert [probe.name for probe in cost.probes] == ["given"]
    assert cost.trace_bytes > 100
    assert cost.wall_s > cost.start_s > 0
    assert cost.cpu_s > 0


def test_progress_is_counted_of_what_is_kept(recorder: Recorder) -> None:
    times = [recorder.started_ns - SECOND_NS, recorder.started_ns + 5]
    Given.gives.append({"marks": rows("marks", time_ns=times, kind=[int(MarkKind.DDP_FORWARD)] * 2)})
    recorder.tick()
    assert recorder.progress.first_event_ns == recorder.started_ns + 5
    recorder.stop("enough")


def test_an_old_trace_is_overwritten_only_when_that_is_asked_for(job: list[Target], tmp_path: Path) -> None:
    out = tmp_path / "t"
    for force in (False, True):
        recorder = Recorder(job, RecordingOptions(out, force=force), [], [Given], refused=REFUSED)
        recorder.start()
        recorder.stop("enough")
    with pytest.raises(TraceError, match="exists already"):
        Recorder(job, RecordingOptions(out), [], [Given], refused=REFUSED)
    assert json.loads((out / "meta.json").read_text())["stop_reason"] == "enough"
    assert Directory(out).names()


class Sampling(Given):
    """A probe that samples between two drains, and notes of each drain whether it was the last."""

    name = "sampling"
    period_s = 1000.0
    sample_s = 0.001
    sampled: ClassVar[list[None]] = []
    finals: ClassVar[list[bool]] = []

    @classmethod
    def open(cls, shared: Shared) -> Sampling:
        cls.gives, cls.shared, cls.sampled, cls.finals = [], [shared], [], []
        return cls()

    def sample(self) -> None:
        self.sampled.append(None)

    def drain(self, *, final: bool = False) -> Tables:
        self.finals.append(final)
        return {}


def test_a_probe_that_is_not_due_samples_and_only_its_last_rows_are_final(job: list[Target], tmp_path: Path) -> None:
    made = Recorder(job, RecordingOptions(tmp_path / "t"), ["netprof"], [Sampling], refused=REFUSED)
    made.start()
    for _ in range(3):
        made.tick()
        time.sleep(0.005)
    assert Sampling.finals == [False], "not due again for a while"
    assert len(Sampling.sampled) == 2
    made.stop("enough")
    assert Sampling.finals == [False, True]


@pytest.mark.slow
def test_the_job_is_looked_at_when_it_ends_and_by_itself_where_the_kernel_may_not_be_asked(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Recorder] = []

    def changed() -> list[Target]:
        looked.append(recorder)
        return []

    monkeypatch.setattr(recorder.job, "changed", changed)
    recorder.stop("enough")
    assert looked == [recorder]
    assert recorder.job._starts is None


def test_what_is_sampled_and_what_is_drained_are_due_to_half_a_tick(
    job: list[Target], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sampling, "sample_s", 1.0)
    made = Recorder(job, RecordingOptions(tmp_path / "t"), ["netprof"], [Sampling], refused=REFUSED)
    made.start()
    tick, (probe,) = recorder_module.TICK_S, made._probes
    made._collect(1000.0, everything=True)
    for at_s in (1000.0, 1001.0 - tick, 1001.0 - tick / 2, 1001.0, 1002.0):
        made._collect(at_s, everything=False)
    assert len(Sampling.sampled) == 3, "now, half a tick before its time, and a second after that"
    assert (probe.is_due(2000.0, 0.0), probe.is_due(1999.9, 0.0)) == (True, False)
    made.stop("enough")


def test_the_instant_of_the_stop_is_the_last_that_is_recorded(recorder: Recorder) -> None:
    last_ns = recorder.started_ns + SECOND_NS
    recorder._meta = replace(recorder._meta, stopped_ns=last_ns)
    found = recorder._recorded("marks", rows("marks", time_ns=[last_ns - 1, last_ns, last_ns + 1]))
    assert list(found["time_ns"]) == [last_ns - 1, last_ns]
