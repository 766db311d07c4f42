"""A recorder that is held up: nothing is lost, and what cannot be placed in time is unknown, never idle."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netprof.analysis import analyze
from netprof.analysis.tables.intervals import interval
from netprof.probes.flow.probe import FlowProbe
from netprof.schema import RECEIVE, TRANSMIT
from netprof.trace import TraceReader

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]

SOURCE = Path(__file__).parent.parent / "programs" / "busy_flows.c"
FLOWS, MESSAGE_BYTES, STOPPED_S = 64, 512, 10.0


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """64 flows, each of which sends something and gets an answer in every millisecond; both ends are of the job."""
    program = tmp_path / "busy_flows"
    subprocess.run(["gcc", "-O2", str(SOURCE), "-o", str(program)], check=True)
    with subprocess.Popen([str(program), str(FLOWS)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_a_recorder_that_is_stopped(busy: subprocess.Popen[bytes], tmp_path: Path) -> None:
    trace = tmp_path / "t.netprof"
    command = [sys.executable, "-m", "netprof", "attach", str(busy.pid), "--no-live", "--out", str(trace)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as recorder:
        while not ((trace / "wire.arrows").exists() and (trace / "wire.arrows").stat().st_size > 100_000):
            assert recorder.poll() is None
            time.sleep(0.05)
        recorder.send_signal(signal.SIGSTOP)
        stopped_ns = time.monotonic_ns()
        time.sleep(STOPPED_S)
        recorder.send_signal(signal.SIGCONT)
        time.sleep(1)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
    analysis = analyze(TraceReader(trace))
    document = analysis.document()
    books = document["reconciliation"]
    assert books["holds"] is True
    assert len(books["flows"]) == 2 * FLOWS
    assert abs(books["tcp_sent_bytes"] - books["tcp_received_bytes"]) <= 2 * FLOWS * MESSAGE_BYTES  # the last ones
    (link,) = document["links"]
    assert 0 < link["unknown_s"] < STOPPED_S  # the ring held the first seconds
    seen = analysis.evidence.recording & interval(0, stopped_ns)
    links = analysis.evidence.links
    busy_before = (links.not_idle(links.lanes.links[0], TRANSMIT, RECEIVE) & seen).total_ns
    idle_share = 1 - busy_before / seen.total_ns
    assert link["idle_total_s"] / document["recording_s"] < idle_share + 0.1
    bins = links.lanes.of_link(links.lanes.links[0], TRANSMIT)
    assert bins is not None
    assert bins.wire_bytes.max() < 20 * sorted(bins.wire_bytes.tolist())[len(bins) // 2]


def test_reading_from_the_kernel_waits_for_nobody(busy: subprocess.Popen[bytes]) -> None:
    """For eight seconds the program does nothing and holds the interpreter's lock: twice what the ring has room for."""
    held_s = 8.0
    with FlowProbe(1_000_000) as probe:
        for pid in (busy.pid, *children(busy.pid)):
            probe.targets.add(pid)
        probe.follow(())
        probe.drain()
        ctypes.PyDLL(None).usleep(int(held_s * 1e6))
        rows = probe.drain()["wire"]
        assert probe.describe().losses.merged_bins == 0
    assert len(rows["flow_id"]) > held_s * 2 * 2 * FLOWS * 1000 / 2  # both ends, both ways; the machine may be busy


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


LITTLE_MEMORY = 40 << 20  # less than the maps and the program need
OPEN_A_PROBE = """
from netprof.errors import NetprofError
from netprof.probes.flow.probe import FlowProbe
try:
    FlowProbe(1_000_000)
except NetprofError as error:
    print(error.hint)
"""


def test_where_memory_is_short_it_says_what_to_do() -> None:
    with limited_memory() as group:
        wait_for_group = f"echo $$ > {group}/cgroup.procs; exec {sys.executable} -c '{OPEN_A_PROBE}'"
        done = subprocess.run(["sh", "-c", wait_for_group], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "raise the memory limit of the container\n"), done.stderr


@contextmanager
def limited_memory() -> Iterator[Path]:
    """A control group with little memory; the test is skipped where none can be made."""
    first, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if not first.is_dir():
        first, limit = Path("/sys/fs/cgroup"), "memory.max"
    group = first / f"netprof-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LITTLE_MEMORY))
    except OSError as error:
        pytest.skip(f"no control group for memory can be made: {error}")
    try:
        yield group
    finally:
        group.rmdir()
