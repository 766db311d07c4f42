"""The host probe: the kernel's own files, and texts of other hosts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

from netprof.probes.host.probe import (
    COUNT_FILES,
    CountFile,
    HostProbe,
    cpu_time,
    not_less,
    pressure,
    softnet,
    unwrapped,
)
from netprof.probes.series import SeriesRows


def host(*sources: CountFile) -> HostProbe:
    return HostProbe(SeriesRows("host", count()), sources or COUNT_FILES)


def drained(probe: HostProbe, *, final: bool = False) -> list[tuple[str, str, int]]:
    """Drain, and return (subject, name, value) of every row."""
    columns = probe.drain(final=final)["counters"]
    series = {each.id: each for each in probe.describe().series}
    found = zip(columns["series"], columns["value"], strict=True)
    return [(series[number].subject, series[number].name, value) for number, value in found]


def until(probe: HostProbe) -> list[tuple[str, str, int]]:
    """Drain until there is something, ten seconds at most."""
    for _ in range(100):
        time.sleep(probe.period_s)
        if found := drained(probe):
            return found
    raise AssertionError("nothing changed")


def line(cpu: int, dropped: int, squeezed: int, *, columns: int = 15) -> bytes:
    """Build a line of softnet_stat as the kernel prints it."""
    numbers = [0xABCDEF, dropped, squeezed, *[0] * 9, cpu, 0, 0][:columns]
    return b" ".join(b"%08x" % number for number in numbers) + b"\n"


def counts(text: bytes) -> list[tuple[str, str, int]]:
    return [(subject, quantity.name, value) for subject, quantity, value in softnet(text)]


def test_a_line_is_of_the_cpu_that_it_names() -> None:
    assert counts(line(0, 0x10, 1) + line(5, 2, 0xFFFFFFFF)) == [
        ("cpu0", "softnet_dropped", 16),
        ("cpu0", "softnet_time_squeeze", 1),
        ("cpu5", "softnet_dropped", 2),
        ("cpu5", "softnet_time_squeeze", 2**32 - 1),
    ]


def test_without_that_column_lines_are_counted() -> None:
    found = counts(line(7, 1, 2, columns=11) + line(7, 3, 4, columns=11))
    assert [subject for subject, _, _ in found] == ["cpu0", "cpu0", "cpu1", "cpu1"]
    assert counts(b"") == counts(b"\n0001 0002\n") == []


def test_pressure_with_and_without_full() -> None:
    some = b"some avg10=0.12 avg60=1.00 avg300=0.50 total=123456789012\n"
    full = b"full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    told = [[(quantity.name, value) for _, quantity, value in pressure(text)] for text in (some, some + full, b"")]
    assert told == [
        [("cpu_pressure_some", 123456789012)],
        [("cpu_pressure_some", 123456789012), ("cpu_pressure_full", 7)],
        [],
    ]


def test_cpu_time_is_of_all_cpus_in_microseconds() -> None:
    text = b"cpu  1 2 3 4 500 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 1 2 3\n"
    tick_us = 1_000_000 // os.sysconf("SC_CLK_TCK")
    assert [(quantity.name, value) for _, quantity, value in cpu_time(text)] == [
        ("iowait", 500 * tick_us),
        ("steal", 80 * tick_us),
    ]
    assert list(cpu_time(b"cpu 1 2 3\n")) == []


def test_counts_wrap_and_never_go_back() -> None:
    assert unwrapped(2**32 - 1, 3) == 2**32 + 3
    assert unwrapped(2**32 + 3, 3) == 2**32 + 3
    assert unwrapped(5 * 2**32 + 10, 9) == 6 * 2**32 + 9
    assert (not_less(10, 9), not_less(10, 11)) == (10, 11)


def test_what_drops_is_a_row_and_cpus_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "softnet_stat"
    path.write_bytes(line(0, 0, 0) + line(1, 2**32 - 1, 4))
    probe = host(CountFile(str(path), softnet, unwrapped))
    assert drained(probe) == [
        ("cpu0", "softnet_dropped", 0),
        ("cpu0", "softnet_time_squeeze", 0),
        ("cpu1", "softnet_dropped", 2**32 - 1),
        ("cpu1", "softnet_time_squeeze", 4),
    ]
    time.sleep(probe.period_s)
    assert drained(probe) == [], "an idle host costs nothing"
    path.write_bytes(line(1, 5, 4) + line(2, 1, 0))  # cpu0 is unplugged, cpu2 plugged in
    found = until(probe)
    assert found == [
        ("cpu1", "softnet_dropped", 2**32 + 5),
        ("cpu2", "softnet_dropped", 1),
        ("cpu2", "softnet_time_squeeze", 0),
    ]
    path.write_bytes(line(0, 9, 0) + line(1, 5, 4) + line(2, 1, 0))
    assert drained(probe, final=True) == [
        ("cpu0", "softnet_dropped", 9),
        ("cpu0", "softnet_time_squeeze", 0),
        ("cpu1", "softnet_dropped", 2**32 + 5),
        ("cpu1", "softnet_time_squeeze", 4),
        ("cpu2", "softnet_dropped", 1),
        ("cpu2", "softnet_time_squeeze", 0),
    ]
    probe.close()


def test_a_kernel_without_pressure_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    stat = CountFile("/proc/stat", cpu_time, not_less)
    absent = CountFile(str(tmp_path / "pressure"), pressure, not_less, "boot with psi=1")
    refused = CountFile("/proc/self/mem", pressure, not_less, "do something")  # opens, and cannot be read
    probe = host(absent, stat, refused)
    said = probe.describe()
    assert [(skipped.name, skipped.remedy) for skipped in said.skipped] == [
        ("host", "boot with psi=1"),
        ("host", "do something"),
    ]
    assert "No such file" in said.skipped[0].reason
    assert [each.detail for each in said.started] == ["/proc/stat every 100 ms"]
    assert {name for _, name, _ in drained(probe)} == {"iowait", "steal"}
    probe.close()
    probe.close()


def test_a_file_that_costs_much_is_read_less_often(tmp_path: Path) -> None:
    path = tmp_path / "softnet_stat"
    path.write_bytes(b"".join(line(cpu, 0, 0) for cpu in range(1024)))
    probe = host(CountFile(str(path), softnet, unwrapped))
    begin_s = time.thread_time()
    assert len(drained(probe)) == 2048
    cost_s = time.thread_time() - begin_s
    (started,) = probe.describe().started
    period_s = float(started.detail.split()[-2]) / 1e3
    assert 0.1 < period_s <= cost_s * 1000 + 0.001
    path.write_bytes(line(0, 1, 0))
    time.sleep(0.15)
    assert drained(probe) == [], "it is not time yet"
    assert ("cpu0", "softnet_dropped", 1) in drained(probe, final=True)
    probe.close()


def test_counts_are_those_of_this_kernel() -> None:
    def now() -> dict[tuple[str, str], int]:
        texts = [(source, Path(source.path)) for source in COUNT_FILES if Path(source.path).exists()]
        samples = [sample for source, path in texts for sample in source.parse(path.read_bytes())]
        return {(subject, quantity.name): value for subject, quantity, value in samples}

    before = now()
    probe = host()
    found = {(subject, name): value for subject, name, value in drained(probe)}
    after = now()
    probe.close()
    assert {("cpu0", "softnet_dropped"), ("cpu0", "softnet_time_squeeze"), ("all CPUs", "steal")} <= found.keys()
    assert before.keys() == found.keys() == after.keys()
    growing = [key for key in found if key[1] != "iowait"]  # which the kernel may take back
    assert all(before[key] <= found[key] <= after[key] for key in growing)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no pressure information")
def test_tasks_that_wait_for_a_cpu_are_seen() -> None:
    """Two busy processes on every CPU: at any time, one of them waits."""
    spin = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
    probe = host()
    commands = [[sys.executable, "-c", spin, str(cpu)] for cpu in os.sched_getaffinity(0) for _ in range(2)]
    spinners = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    try:
        for spinner in spinners:
            assert spinner.stdout is not None
            spinner.stdout.readline()
        probe.drain()
        begin_ns = time.monotonic_ns()
        rows = []
        while time.monotonic_ns() - begin_ns < 1_000_000_000:
            time.sleep(probe.sample_s)
            probe.sample()
            rows += drained(probe)
        waited_us = [value for _, name, value in rows + drained(probe, final=True) if name == "cpu_pressure_some"]
        elapsed_us = (time.monotonic_ns() - begin_ns) / 1e3
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
        probe.close()
    assert waited_us == sorted(waited_us)
    assert len(waited_us) >= 5
    assert 0.8 * elapsed_us < waited_us[-1] - waited_us[0] <= 1.2 * elapsed_us
