"""GPU samples against arithmetic: means weighted by time, and phases only of samples that are of one phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from netprof.analysis import analyze
from netprof.analysis.events.iterations import Iterations
from netprof.analysis.findings.host.gpu_summary import MetricSummary, PhaseMean, gpu_notes, summarize_gpus
from netprof.analysis.findings.host.gpus import GPUS
from netprof.analysis.tables.columns import empty
from netprof.analysis.tables.gpu_samples import GpuSamples, GpuSeries, read_gpu_samples
from netprof.analysis.tables.intervals import Intervals, interval
from netprof.model import Clock, Gpu, Meta
from netprof.schema import GpuMetric
from netprof.trace import TraceReader, TraceWriter
from netprof.views.console_form import print_part

MS = 1_000_000
PID = 17
M = GpuMetric
RECORDING = interval(0, 1000 * MS)


def iterations(*begins_ms: int, pid: int = PID) -> Iterations:
    """Iterations of 100 ms each: forward 10, backward 30, exposed communication 40, rest 20."""
    begin = np.array(begins_ms, np.int64) * MS
    ends = [begin + edge * MS for edge in (10, 40, 80, 100)]
    return Iterations(np.full(len(begin), pid), begin, *ends)


def samples(*rows: tuple[M, float, float, float], gpu: int = 0, pid: int = 0) -> dict[str, Any]:
    """Rows (metric, end in ms, period in ms, value) as the table's columns."""
    return {
        "gpu": [gpu] * len(rows),
        "pid": [pid] * len(rows),
        "metric": [int(row[0]) for row in rows],
        "time_ns": [round(row[1] * MS) for row in rows],
        "period_ns": [round(row[2] * MS) for row in rows],
        "value": [float(row[3]) for row in rows],
    }


def metric_of(table: dict[str, Any], found: Iterations, metric: M, recording: Intervals = RECORDING) -> MetricSummary:
    (summary,) = summarize_gpus(read_gpu_samples(table), [Gpu(0, pids=(PID,))], found, {PID: 3}, recording)
    return summary.metrics[metric]


def test_a_mean_is_weighted_by_the_time_inside_the_window() -> None:
    table = samples((M.BUSY_PERCENT, 150, 100, 80), (M.BUSY_PERCENT, 250, 100, 20), (M.BUSY_PERCENT, 700, 100, 99))
    found = metric_of(table, iterations(100), M.BUSY_PERCENT)  # 100 to 200 ms: half of each of the first two
    assert (found.mean, found.samples, found.minimum, found.maximum) == (50, 2, 20, 80)
    found = metric_of(table, iterations(100, 150), M.BUSY_PERCENT)  # 100 to 250 ms: 50 of 80 and 100 of 20
    assert found.mean == pytest.approx(40)


def test_without_iterations_of_the_gpus_process_the_whole_recording_counts() -> None:
    table = samples((M.POWER_W, 100, 0, 300), (M.POWER_W, 200, 0, 500), (M.POWER_W, 300, 0, 500))
    (summary,) = summarize_gpus(
        read_gpu_samples(table), [Gpu(0, pids=(PID,))], iterations(100, pid=PID + 1), {}, RECORDING
    )
    assert (summary.window, summary.window_ns, summary.ranks) == ("recording", 1000 * MS, ())
    assert summary.metrics[M.POWER_W].mean == pytest.approx(1300 / 3)
    assert summary.metrics[M.POWER_W].phases == {}


def test_bytes_are_rates_times_their_periods() -> None:
    rows = [(M.PCIE_TX_BYTES_PER_S, end, 40, 2e9) for end in range(40, 401, 40)]
    found = metric_of(samples(*rows), iterations(100, 200), M.PCIE_TX_BYTES_PER_S)
    assert found.bytes == pytest.approx(2e9 * 0.2)
    assert (found.interval_ns, found.mean_over_ns, found.resolution_ns) == (40 * MS, 40 * MS, 40 * MS)


def test_a_phase_has_only_the_samples_that_lie_wholly_in_it() -> None:
    begins = [100, 200, 300]
    rows = [(M.SM_ACTIVE_PERCENT, begin + 80, 40, 5) for begin in begins]  # the exposed communication, exactly
    rows += [(M.SM_ACTIVE_PERCENT, begin + 41, 40, 77) for begin in begins]  # 1 ms too late: of two phases
    rows += [(M.SM_ACTIVE_PERCENT, 140, 30, 90), (M.SM_ACTIVE_PERCENT, 240, 30, 90)]  # backward, too few
    found = metric_of(samples(*rows), iterations(*begins), M.SM_ACTIVE_PERCENT)
    assert found.phases == {
        "forward": PhaseMean(None, 0),
        "backward": PhaseMean(None, 2),
        "exposed_communication": PhaseMean(5.0, 3),
        "rest": PhaseMean(None, 0),
    }


def test_a_mean_longer_than_every_phase_is_of_none() -> None:
    rows = [(M.BUSY_PERCENT, end, 166.667, 50) for end in np.arange(200, 900, 166.667)]
    found = metric_of(samples(*rows), iterations(*range(100, 900, 100)), M.BUSY_PERCENT)
    assert set(found.phases.values()) == {PhaseMean(None, 0)}
    assert found.resolution_ns == pytest.approx(166_667_000, abs=1000)


def test_an_instant_belongs_to_the_phase_that_it_falls_into() -> None:
    rows = [(M.SM_CLOCK_MHZ, begin + at, 0, 1000 + at) for begin in (100, 200, 300) for at in (5, 25, 60, 90)]
    found = metric_of(samples(*rows), iterations(100, 200, 300), M.SM_CLOCK_MHZ)
    assert [part.mean for part in found.phases.values()] == [1005, 1025, 1060, 1090]


def test_power_that_is_measured_more_rarely_than_read_is_as_coarse_as_it_is_measured() -> None:
    rows = [(M.POWER_W, at, 0, 100 + at // 100) for at in range(0, 1000, 20)]  # a new value every 100 ms
    found = metric_of(samples(*rows), iterations(*range(0, 1000, 100)), M.POWER_W)
    assert (found.interval_ns, found.held_ns, found.resolution_ns) == (20 * MS, 100 * MS, 100 * MS)
    assert all(part == PhaseMean(None, 0) for part in found.phases.values())
    steady = [(M.SM_CLOCK_MHZ, at, 0, 1000 + at // 100) for at in range(0, 1000, 20)]
    assert metric_of(samples(*steady), iterations(0), M.SM_CLOCK_MHZ).held_ns == 0


def test_a_gap_in_the_sampling_is_not_filled() -> None:
    series = GpuSeries(np.array([10, 20, 30, 40, 500]) * MS, np.zeros(5, np.int64), value=np.arange(5.0))
    assert series.weights(RECORDING).tolist() == [10 * MS, 10 * MS, 10 * MS, 10 * MS, 40 * MS]


def test_throttling_is_a_share_of_samples_and_a_note_where_it_slows_down() -> None:
    bits = [0, 4, 4 | 0x40, 1, 0, 0, 0, 0, 0, 0]
    table = samples(*((M.THROTTLE_REASONS, 110 + 5 * place, 0, value) for place, value in enumerate(bits)))
    (summary,) = summarize_gpus(read_gpu_samples(table), [Gpu(0, pids=(PID,))], iterations(100), {}, RECORDING)
    assert summary.throttled == {"idle": 0.1, "power cap": 0.2, "hardware thermal slowdown": 0.1}
    assert M.THROTTLE_REASONS not in summary.metrics
    assert list(gpu_notes([summary])) == [
        "GPU 0 was slowed down in 20% of the samples: power cap",
        "GPU 0 was slowed down in 10% of the samples: hardware thermal slowdown",
    ]


def test_processes_are_told_apart_from_the_gpu() -> None:
    parts = [samples((M.PROCESS_BUSY_PERCENT, 150, 50, 30), pid=PID), samples((M.BUSY_PERCENT, 150, 50, 60))]
    table = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    (summary,) = summarize_gpus(read_gpu_samples(table), [Gpu(0, pids=(PID,))], iterations(100), {PID: 3}, RECORDING)
    assert summary.ranks == (3,)
    assert list(summary.metrics) == [M.BUSY_PERCENT]
    assert summary.processes[PID][M.PROCESS_BUSY_PERCENT].mean == 30


def test_nonsense_in_a_trace_is_left_out() -> None:
    table = samples(
        (M.BUSY_PERCENT, 150, 50, 60), (M.BUSY_PERCENT, 160, -50, 1), (M.POWER_W, 150, 0, np.nan), (M.POWER_W, 1, 0, 5)
    )
    table["metric"][-1] = 250  # of a later netprof
    (summary,) = summarize_gpus(read_gpu_samples(table), [], iterations(), {}, RECORDING)
    assert list(summary.metrics) == [M.BUSY_PERCENT]
    assert summary.gpu == Gpu(0)
    assert summarize_gpus(empty(GpuSamples), [Gpu(0)], iterations(), {}, RECORDING) == ()


def test_a_trace_with_gpus_is_read_and_drawn(tmp_path: Path) -> None:
    gpu = Gpu(2, "Test \x1b[31mGPU", pids=(PID,), found_by="inferred: the processes hold its device file open")
    meta = Meta("0", "host", "", "", Clock(0, 0), (), MS, started_ns=0, stopped_ns=1000 * MS, gpus=(gpu,))
    writer = TraceWriter(tmp_path / "t.netprof", meta)
    rows = [(M.BUSY_PERCENT, end, 200, 75) for end in range(200, 1001, 200)]
    writer.append("gpu", samples(*rows, gpu=2))
    writer.close(meta)
    analysis = analyze(TraceReader(tmp_path / "t.netprof"))
    (summary,) = analysis.of(GPUS)
    assert summary.metrics[M.BUSY_PERCENT].mean == 75
    assert "that the job uses GPU 2 is inferred: the processes hold its device file open" in analysis.notes
    document = GPUS.document((summary,))["gpus"][0]
    assert document["metrics"]["busy_percent"]["resolution_s"] == 0.2
    for width in (40, 80, 200):
        console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        for part in analysis.parts(GPUS):
            print_part(part, console)
        text = console.export_text()
        assert "\x1b" not in text
        assert "75.0 %" in text
        assert "200.0 ms" in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= width
