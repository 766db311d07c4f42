"""What the kernel says that a process did: time on a CPU, waiting for one, stopped, bytes written."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from netprof.analysis.tables.counters import CounterSamples
from netprof.analysis.tables.process_counts import (
    CPU_WAIT,
    ON_CPU,
    SENT_BEFORE,
    STOPPED,
    UNREAD,
    WRITTEN,
    cpus,
    process_counts,
)
from netprof.model import Host, Series, Target
from netprof.probes.job.procfs import read_stat
from netprof.probes.process.last_moved import last_moved
from netprof.probes.process.probe import ProcessProbe
from netprof.probes.series import SeriesRows

_BUSY = """
import os, sys
print("ready", flush=True)
with open(sys.argv[1], "wb") as file:
    file.write(bytes(8 << 20))
    os.fsync(file.fileno())
print("written", flush=True)
while True: pass
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _BUSY, str(tmp_path / "file")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def target(pid: int) -> Target:
    stat = read_stat(pid)
    assert stat is not None
    return Target(pid, stat.start_ticks, frameworks=("ddp",))


def wait_for_state(pid: int, states: str) -> None:
    until = time.monotonic() + 10
    while (stat := read_stat(pid)) is None or stat.state not in states:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_a_process_is_seen_running_writing_and_stopped(busy: subprocess.Popen[str]) -> None:
    probe = ProcessProbe(SeriesRows("process", count()))
    rows: list[tuple[int, int, int]] = []

    def look() -> None:
        columns = probe.drain(final=True)["counters"]
        rows.extend(zip(*(map(int, columns[name]) for name in ("series", "time_ns", "value")), strict=True))

    with probe:
        probe.follow([target(busy.pid)])
        look()
        assert busy.stdout is not None
        assert busy.stdout.readline() == "written\n"
        begin_ns = time.monotonic_ns()
        look()
        time.sleep(0.3)
        look()
        end_ns = time.monotonic_ns()
        busy.send_signal(signal.SIGSTOP)
        wait_for_state(busy.pid, "T")
        look()
        stopped_ns = time.monotonic_ns()
        busy.send_signal(signal.SIGCONT)
        wait_for_state(busy.pid, "RS")
        look()
    columns = np.array(sorted(rows), np.int64).T
    counts = process_counts(CounterSamples(*columns), probe.describe().series, ())
    edges = np.array([begin_ns, end_ns])
    ran, waited = (np.diff(counts.until(busy.pid, name, edges))[0] for name in (ON_CPU, CPU_WAIT))
    assert ran + waited == pytest.approx(300_000, rel=0.35)
    ((pid, times),) = counts.stopped().items()
    assert pid == busy.pid
    assert (times.begin_ns <= stopped_ns).all()
    assert len(times) == 1
    written = [each for each in probe.describe().series if each.name == WRITTEN]
    assert written, "the kernel counts what goes to files"


def test_when_a_process_last_moved_data_before_it_was_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            one.sendall(bytes(100_000))
            time.sleep(0.4)
            mine = target(os.getpid())
            found = last_moved([mine])[os.getpid()]
            silent_ns = time.monotonic_ns() - found.time_ns + (found.sent_before_ns or 0)
            assert 0.35e9 < silent_ns < 2e9
            assert found.received_before_ns is not None
            assert found.unread_bytes == 100_000
            probe = ProcessProbe(SeriesRows("process", count()))
            with probe:
                probe.follow([mine])
                rows = probe.drain()["counters"]
                columns = [np.array(rows[name], np.int64) for name in ("series", "time_ns", "value")]
                order = np.argsort(columns[0], kind="stable")
                samples = CounterSamples(*(column[order] for column in columns))
                counts = process_counts(samples, probe.describe().series, ())
    look = counts.first(os.getpid(), SENT_BEFORE)
    assert look is not None
    assert look[1] > 0.35e9
    unread = counts.first(os.getpid(), UNREAD)
    assert unread is not None
    assert unread[1] == 100_000
    assert counts.first(1, SENT_BEFORE) is None


@pytest.mark.parametrize("most", [256, 0], ids=["few threads", "too many threads"])
def test_the_time_of_all_threads_is_known_however_many_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netprof.probes.process.probe._MOST_OF_ALL", most)
    probe = ProcessProbe(SeriesRows("process", count()))
    values: dict[str, list[int]] = {}
    with probe:
        probe.follow([target(os.getpid())])
        for busy_s in (0.0, 0.2):
            until_s = time.process_time() + busy_s
            while time.process_time() < until_s:
                pass
            rows = probe.drain(final=True)["counters"]
            names = {each.id: each.name for each in probe.describe().series}
            for number, value in zip(rows["series"], rows["value"], strict=True):
                values.setdefault(names[int(number)], []).append(int(value))
    first, *_, last = values["threads_on_cpu"]
    assert 180_000 <= last - first <= 400_000
    assert ("threads_cpu_wait" in values) == bool(most), "of many threads it is not known"


def test_a_process_that_is_gone_or_another_one_is_left_alone() -> None:
    probe = ProcessProbe(SeriesRows("process", count()))
    mine = target(os.getpid())
    probe.follow([Target(mine.pid, mine.start_ticks + 1, frameworks=("ddp",)), Target(1 << 22, 1, frameworks=("ddp",))])
    assert not probe.drain(final=True)["counters"]["series"]
    probe.follow([Target(mine.pid, mine.start_ticks), Target(1 << 22, 1, frameworks=("ddp",))])
    assert not probe.drain(final=True)["counters"]["series"], "it trains nothing"


def test_a_process_that_ends_leaves_no_file_open() -> None:
    probe = ProcessProbe(SeriesRows("process", count()))
    with subprocess.Popen(["sleep", "60"]) as process, probe:
        gone = target(process.pid)
        probe.follow([gone])
        assert probe.drain(final=True)["counters"]["series"]
        (watched,) = probe._watched.values()
        assert watched._stat._descriptor >= 0
        process.kill()
        process.wait()
        probe.sample(final=True)
        assert not probe._watched
        files = (watched._stat, watched._io, *watched._threads.values())
        assert [file._descriptor for file in files if file is not None] == [-1] * 3
        assert probe.describe().started[0].detail.startswith("1 processes")


def test_a_pid_that_is_used_again_is_watched_though_the_end_of_the_first_was_not_seen() -> None:
    probe, mine = ProcessProbe(SeriesRows("process", count())), target(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as process, probe:
        probe.follow([target(process.pid)])
        process.kill()
        process.wait()
        first = probe._watched[mine.pid] = probe._watched.pop(process.pid)
        probe.follow([mine])
        assert probe._watched[mine.pid] is not first
        assert probe.drain(final=True)["counters"]["series"]


def series(number: int, subject: str, name: str) -> Series:
    return Series(number, "process", subject, name, "us", "count", "")


def samples(*rows: tuple[int, int, int]) -> CounterSamples:
    return CounterSamples(*np.array(rows, np.int64).T)


def test_what_grew_after_a_silence_grew_at_its_end() -> None:
    found = process_counts(
        samples((0, 100, 0), (0, 200, 10), (0, 300, 20), (0, 1300, 30)), [series(0, "pid 7", ON_CPU)], ()
    )
    assert found.until(7, ON_CPU, np.array([50, 250, 300, 1000, 1250, 1300, 2000])).tolist()[1:] == [
        15,
        20,
        20,
        25,
        30,
        30,
    ]
    assert np.isnan(found.until(7, ON_CPU, np.array([50]))[0])
    assert np.isnan(found.until(8, ON_CPU, np.array([250]))).all()


def test_processes_of_many_hosts_have_the_numbers_of_the_job() -> None:
    one, other = (Host(name, None, "", pids=pids) for name, pids in (("a", {7: 7}), ("b of c", {4_194_311: 7})))  # type: ignore[arg-type]
    named = [series(0, "pid 7 of a", STOPPED), series(1, "pid 7 of b of c", STOPPED), series(2, "nobody", STOPPED)]
    found = process_counts(samples((0, 5, 0), (1, 10, 1), (1, 20, 0), (2, 1, 1)), named, [one, other])
    assert set(found.stopped()) == {4_194_311}
    assert found.stopped()[4_194_311].total_ns == 10


def test_the_share_of_time_that_was_counted_is_between_the_first_and_the_last_look() -> None:
    found = process_counts(
        samples((0, 1_000_000, 10), (0, 3_000_000, 510), (1, 5, 1)), [series(0, "pid 7", ON_CPU)], ()
    )
    assert found.share(7, ON_CPU) == pytest.approx(0.25)
    assert np.isnan(found.share(8, ON_CPU))


def test_cpus_are_those_of_which_something_was_counted() -> None:
    names = ("cpu0", "cpu0", "cpu11", "all CPUs", "cpu2 of a", "cpux")
    named = [series(number, subject, "net_rx") for number, subject in enumerate(names)]
    assert (cpus(named, ""), cpus(named, "a"), cpus(named, "b")) == (2, 1, 0)
