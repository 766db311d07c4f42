"""Devices that change while they are recorded: the rate of the time counts, and nothing ends without a word."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab import Lab
from support.traffic import Peer

from netprof.trace import TraceReader

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF and network namespaces need root")]

NETPROF = [sys.executable, "-m", "netprof"]
BUSY = ["--bytes", "1000000", "--count", "1000", "--period-ms", "10"]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(rate="200mbit") as hosts:
        yield hosts


@contextmanager
def recorded(lab: Lab, trace: Path, *options: str) -> Iterator[None]:
    """Record a sender that keeps its link full, and stop after the block; it has to be short."""
    receiver = Peer(lab[1].popen, "receive", "--addr", lab[1].ipv4)
    port = str(receiver.until("listening")["port"])
    sender = Peer(lab[0].popen, "send", "--addr", lab[1].ipv4, "--port", port, *BUSY)
    receiver.until("burst")
    command = [*NETPROF, "attach", str(sender.pid), "--no-live", "--out", str(trace), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
        wait_for(lambda: (trace / "nic.arrows").exists() and (trace / "nic.arrows").stat().st_size > 0)
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(30)
            sender.stop()
            receiver.stop()


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def report(trace: Path) -> dict[str, Any]:
    done = subprocess.run([*NETPROF, "report", str(trace), "--json"], capture_output=True, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def change_rate(lab: Lab, rate: str) -> None:
    lab[0].tc("qdisc", "change", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")


def busy_by_counters(trace: Path) -> float:
    """Return for what share of the time a link was busy, by the device's own bytes and the rates of their time."""
    reader = TraceReader(trace)
    nic, history = reader.table("nic"), reader.table("link_changes")
    time_ns, sent = nic["time_ns"].to_numpy(), nic["tx_bytes"].to_numpy().astype(float)
    edges_ns = np.append(history["since_ns"].to_numpy(), time_ns[-1])
    needed_s = np.diff(np.interp(edges_ns, time_ns, sent)) * 8 / history["line_rate_bps"].to_numpy()
    return float(needed_s.sum() / (time_ns[-1] - time_ns[0]) * 1e9)


@pytest.mark.core
def test_a_rate_that_is_changed_counts_from_then_on(lab: Lab, tmp_path: Path) -> None:
    """A link is busy for its bytes at the rate of their time: at either rate alone it would be half or twice that."""
    with recorded(lab, tmp_path / "t.netprof"):
        time.sleep(1.5)
        change_rate(lab, "50mbit")
        time.sleep(2.5)
    document = report(tmp_path / "t.netprof")
    (link,) = document["links"]
    assert [each["line_rate_bps"] for each in link["history"]] == [2e8, 5e7]
    assert link["line_rate_bps"] == 5e7  # for the longest
    busy = busy_by_counters(tmp_path / "t.netprof")
    assert busy > 0.75, "TCP does not lose all its speed at the change"
    assert link["utilization_tx"] == pytest.approx(busy, abs=0.06)
    assert link["idle_tx_total_s"] < (1.06 - busy) * link["window_s"]
    (note,) = (note for note in document["notes"] if "went from" in note)
    assert note.startswith("eth0 went from 200.0 Mbit/s to 50.0 Mbit/s (tbf: 50 Mbit/s on eth0)")


def test_a_device_that_is_renamed_is_the_same(lab: Lab, tmp_path: Path) -> None:
    with recorded(lab, tmp_path / "t.netprof"):
        lab[0].ip("link", "set", "eth0", "name", "fast0")  # it may be up since Linux 6.2
        more = Peer(lab[0].popen, "receive", "--addr", lab[0].ipv4)
        more.until("listening")
        time.sleep(1.5)
        more.stop()
        lab[0].ip("link", "set", "fast0", "name", "eth0")
        time.sleep(0.3)
    document = report(tmp_path / "t.netprof")
    (link,) = document["links"]
    assert [each["name"] for each in link["history"]] == ["eth0", "fast0", "eth0"]
    assert link["nic"]["window_s"] > 1.5
    assert any(note.startswith("eth0 was renamed to fast0 ") for note in document["notes"])


def test_a_device_that_goes_down_and_comes_back(lab: Lab, tmp_path: Path) -> None:
    with recorded(lab, tmp_path / "t.netprof"):
        lab[0].ip("link", "set", "eth0", "down")
        time.sleep(0.7)
        lab[0].ip("link", "set", "eth0", "up")
        time.sleep(0.7)
    document = report(tmp_path / "t.netprof")
    (link,) = document["links"]
    states = [each["state"] for each in link["history"]]
    assert states[:2] == ["up", "down"]
    assert states[-1] == "up"
    assert any(note.startswith("eth0 went down ") for note in document["notes"])
    assert any(note.startswith("eth0 came up ") for note in document["notes"])


@pytest.mark.core
def test_a_device_that_is_deleted(lab: Lab, tmp_path: Path) -> None:
    with recorded(lab, tmp_path / "t.netprof"):
        lab[0].ip("link", "delete", "eth0")
        time.sleep(0.5)
    document = report(tmp_path / "t.netprof")
    (link,) = document["links"]
    assert [each["state"] for each in link["history"]] == ["up", "gone"]
    assert any(note.startswith("eth0 was removed, so its own counters end ") for note in document["notes"])


def test_a_device_that_is_not_there_is_an_error(lab: Lab, tmp_path: Path) -> None:
    process = lab[0].popen(["sleep", "60"])
    command = [*NETPROF, "attach", str(process.pid), "--device", "eth7", "--out", str(tmp_path / "t.netprof")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the job has no network device eth7" in done.stderr
    assert "--device: eth0, lo" in done.stderr
    assert not (tmp_path / "t.netprof").exists()
