"""Bad input and faults: each ends in one line with a remedy and the documented exit code, and the job never notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab
from support.kernel import programs_of, still_loaded
from support.traffic import Peer
from support.training import TrainingJob, netprof, training
from support.unprivileged import NOBODY

from netprof.analysis import analyze
from netprof.analysis.findings.iterations.iterations import ITERATIONS
from netprof.analysis.findings.recording.recording import RECORDING
from netprof.trace import TraceReader

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")
NETPROF = [sys.executable, "-m", "netprof"]
SMALL = ["--gradient-mb", "2", "--width", "256", "--batch", "32"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(["sleep", "60"], text=True)
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TrainingJob]:
    pytest.importorskip("torch", reason="the job is a PyTorch one")
    with training([subprocess.Popen] * 2, tmp_path, *SMALL) as running:
        yield running


def one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Check for one line that holds `words`, a line of remedy, no traceback, and the exit code."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert "Traceback" not in done.stderr
    assert lines[-2].startswith("netprof: ") or lines[-1].startswith("netprof: "), done.stderr
    assert lines[-1].startswith("  "), f"no remedy: {done.stderr}"
    for word in words:
        assert word in done.stderr


def is_attached(process: subprocess.Popen[Any], trace: Path) -> None:
    """Wait until a recorder has attached its probes."""
    meta = trace / "meta.json"
    while not (meta.exists() and json.loads(meta.read_text())["probes_started"]):
        assert process.poll() is None, "the recorder ended"
        time.sleep(0.05)


def records(process: subprocess.Popen[Any], trace: Path) -> None:
    """Wait until a recorder has written something."""
    file = trace / "wire.arrows"
    while not (file.exists() and file.stat().st_size):
        assert process.poll() is None, "the recorder ended"
        time.sleep(0.05)


def trains_on(job: TrainingJob) -> None:
    """Check that the job is alive and makes progress."""
    before = len(job.log(0)["iteration"])
    deadline = time.monotonic() + 20
    while len(job.log(0)["iteration"]) < before + 3:
        assert all(rank.poll() is None for rank in job.ranks)
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.core
def test_no_such_process(tmp_path: Path) -> None:
    one_line(netprof("attach", "4194000", "--out", str(tmp_path / "t")), 1, "no process 4194000")
    assert not (tmp_path / "t").exists()


@pytest.mark.core
def test_not_permitted(tmp_path: Path, sleeper: subprocess.Popen[str]) -> None:
    command = [*NOBODY, *NETPROF, "attach", str(sleeper.pid), "--out", str(tmp_path / "t")]
    one_line(subprocess.run(command, capture_output=True, text=True, check=False), 3, "CAP_SYS_PTRACE")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("bin_width", ["1us", "2s", "fast"])
def test_bins_out_of_range(bin_width: str, sleeper: subprocess.Popen[str]) -> None:
    one_line(netprof("attach", str(sleeper.pid), "--bin", bin_width), 2)


def test_a_process_without_torch_and_without_traffic(tmp_path: Path, sleeper: subprocess.Popen[str]) -> None:
    trace = tmp_path / "t.netprof"
    done = netprof("attach", str(sleeper.pid), "--duration", "1s", "--out", str(trace), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["iterations"]["count"] is None
    assert report["links"] == []
    assert "neither iterations nor traffic" in report["verdict"]
    reader = TraceReader(trace)
    counted = reader.table("counters").to_pandas()
    assert set(counted.series) == {series.id for series in reader.meta.series} != set()
    assert {series.source for series in reader.meta.series} == {"host"}
    seen_ns = counted.groupby("series").time_ns.agg(["min", "max"])
    assert (seen_ns["max"] > seen_ns["min"]).all(), "first and last value of each"


def test_a_process_without_torch_that_talks(tmp_path: Path) -> None:
    with Lab() as lab:
        receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4)
        port = str(receiver.until("listening")["port"])
        sender = Peer(lab[0].popen, "send", "--addr", lab[1].ipv4, "--port", port, "--wait", "send", "--wait", "close")
        sender.until("connected")
        command = [*NETPROF, "attach", str(sender.pid), "--out", str(tmp_path / "t"), "--duration", "4s", "--json"]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        is_attached(recorder, tmp_path / "t")
        sender.go()
        sender.until("finished")
        report = json.loads(recorder.communicate(timeout=30)[0])
        sender.go()
    assert set(report["iterations"]["phases_s"].values()) == {None}
    assert report["iterations"]["inferred"] or report["iterations"]["count"] is None  # bursts have a rhythm, too
    link = report["links"][0]
    assert (link["device"], link["line_rate_bps"], link["utilization_tx"]) == ("eth0", None, None)
    assert sum(flow["tx"]["payload_bytes"] for flow in report["flows"]) == 10_000_000
    reader = TraceReader(tmp_path / "t")
    counted_ns = np.array([reader.meta.started_ns, *reader.table("nic").to_pandas().time_ns, reader.meta.stopped_ns])
    assert np.diff(counted_ns).max() < 1_800_000_000, "a device that stands still has a row every second"
    assert len(counted_ns) > 6


def test_what_is_in_the_way_stays(tmp_path: Path, sleeper: subprocess.Popen[str]) -> None:
    attach = ["attach", str(sleeper.pid), "--duration", "0.3s", "--out"]
    trace = tmp_path / "t.netprof"
    assert netprof(*attach, str(trace)).returncode == 0
    before = (trace / "meta.json").read_text()
    one_line(netprof(*attach, str(trace)), 1, "exists already", "--force")
    assert (trace / "meta.json").read_text() == before
    assert netprof(*attach, str(trace), "--force").returncode == 0
    assert (trace / "meta.json").read_text() != before
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    one_line(netprof(*attach, str(tmp_path / "precious"), "--force"), 1, "other than a trace")
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    one_line(netprof(*attach, str(tmp_path / "link"), "--force"), 1)
    one_line(netprof(*attach, "/proc/nowhere/t"), 1, "cannot write")


@pytest.mark.core
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(tmp_path: Path, job: TrainingJob, kill: signal.Signals) -> None:
    trace = tmp_path / "t.netprof"
    recorder = subprocess.Popen([*NETPROF, "attach", str(job.pids[0]), "--out", str(trace)], stdout=subprocess.PIPE)
    records(recorder, trace)
    programs = programs_of(recorder.pid)
    assert len(programs) > 5
    recorder.send_signal(kill)
    output = recorder.communicate(timeout=20)[0]
    assert recorder.returncode == 130
    assert b" steps of " in output
    reader = TraceReader(trace)
    assert reader.meta.stop_reason == "interrupted"
    assert not reader.truncated
    assert still_loaded(programs) == set()
    trains_on(job)


def test_the_recorder_is_killed(tmp_path: Path, job: TrainingJob) -> None:
    trace = tmp_path / "t.netprof"
    recorder = subprocess.Popen([*NETPROF, "attach", str(job.pids[0]), "--out", str(trace)], stderr=subprocess.DEVNULL)
    records(recorder, trace)
    time.sleep(3)
    programs = programs_of(recorder.pid)
    assert len(programs) > 5
    killed_ns = time.monotonic_ns()
    recorder.kill()
    recorder.wait()
    deadline = time.monotonic() + 5  # the kernel frees them after a grace period
    while still_loaded(programs) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert still_loaded(programs) == set()
    trains_on(job)
    reader = TraceReader(trace)
    analysis = analyze(reader)
    assert reader.truncated
    assert analysis.of(RECORDING).recorded.truncated
    assert analysis.of(ITERATIONS).count
    last_ns = max(reader.table("marks").column("time_ns").to_numpy())
    assert killed_ns - last_ns < 1_000_000_000
    done = netprof("report", str(trace))
    assert done.returncode == 0
    assert "end" in done.stdout


@pytest.mark.core
def test_the_job_is_killed(tmp_path: Path, job: TrainingJob) -> None:
    trace = tmp_path / "t.netprof"
    recorder = subprocess.Popen([*NETPROF, "attach", str(job.pids[0]), "--out", str(trace)], stdout=subprocess.PIPE)
    records(recorder, trace)
    for rank in job.ranks:
        rank.kill()
    recorder.communicate(timeout=20)
    assert recorder.returncode == 0
    reader = TraceReader(trace)
    assert reader.meta.stop_reason == "the job ended"
    assert not reader.truncated


def check_stopped_by_the_disk(trace: Path) -> None:
    reader = TraceReader(trace)
    assert reader.meta.stopped_ns is not None
    assert "No space left" in reader.meta.stop_reason
    assert analyze(reader).of(ITERATIONS).count
    assert not reader.truncated


@pytest.mark.core
def test_the_disk_is_full(tmp_path: Path, job: TrainingJob) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)], check=True)
    try:
        done = netprof("attach", str(job.pids[0]), "--out", str(disk / "t"), "--bin", "100us", "--duration", "60s")
        assert done.returncode == 1
        assert "No space left" in done.stderr
        assert "Traceback" not in done.stderr
        check_stopped_by_the_disk(disk / "t")  # the reader, which holds the trace's directory, goes with the call
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    trains_on(job)
