"""What fails, fails alone: the job's exit code and the recording outlive terminals, disks, reports, hostile files."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netprof.probes.job.processes import find_job
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder
from netprof.trace import TraceReader

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")
NETPROF = [sys.executable, "-m", "netprof"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def run(*words: str | Path, redirect: str = "") -> subprocess.CompletedProcess[str]:
    script = '"$@"' + f" {redirect}"
    command = ["bash", "-c", script, "bash", *NETPROF, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", ">/dev/full 2>/dev/full", ">&- 2>&- <&-"])
def test_a_recording_outlives_its_terminal(redirect: str, sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    run("attach", str(sleeper.pid), "--duration", "2500ms", "--out", tmp_path / "t", redirect=redirect)
    reader = TraceReader(tmp_path / "t")
    assert reader.meta.stop_reason == "the duration was reached"
    assert reader.meta.stopped_ns is not None
    assert reader.meta.stopped_ns - reader.meta.started_ns > 2_400_000_000


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | head -c 1; exit ${PIPESTATUS[0]}"])
@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_job_s_whoever_listens(redirect: str, code: int, tmp_path: Path) -> None:
    assert run("run", "--out", tmp_path / "t", "--", "sh", "-c", f"exit {code}", redirect=redirect).returncode == code


@pytest.mark.core
@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_job_s_when_the_disk_is_full(code: int, disk: Path) -> None:
    fill = f"head -c 9m /dev/zero > {disk}/fill; sleep 3; exit {code}"
    done = run("run", "--out", disk / "t", "--", "sh", "-c", fill)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert (
        f"cannot write the trace to {disk}/t: No space left on device (0 B of 2.10 MB are left on {disk})"
        in done.stderr
    )


@pytest.mark.parametrize("code", [0, 7])
def test_the_exit_code_is_the_job_s_when_the_report_fails(code: int, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    done = run("run", "--out", trace, "--json", "/dev/full", "--", "sh", "-c", f"exit {code}")
    assert done.returncode == code
    assert "netprof: cannot write /dev/full: No space left on device" in done.stderr
    gone = tmp_path / "u"
    done = run("run", "--out", gone, "--", "sh", "-c", f"mv {gone} {gone}.away; exit {code}")
    assert done.returncode == code
    assert "not a netprof trace" in done.stderr
    assert TraceReader(Path(f"{gone}.away")).meta.stop_reason == "the job ended"


def test_what_can_certainly_not_be_written_is_said_before_the_job_begins(tmp_path: Path) -> None:
    for place in ("/nonexistent/x.json", tmp_path):
        done = run("run", "--out", tmp_path / "t", "--json", place, "--", "touch", tmp_path / "began")
        assert done.returncode == 2
        assert not (tmp_path / "began").exists()


@pytest.mark.parametrize("number", [24, 32, 40, 48, 52, 56, 60])
def test_too_few_open_files_are_said(number: int, sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    command = ["bash", "-c", f'ulimit -n {number}; exec "$@"', "bash", *NETPROF, "attach", str(sleeper.pid)]
    command += ["--out", str(tmp_path / "t"), "--duration", "3s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)
    if done.returncode or number < 48:
        assert "Too many open files" in done.stderr
        assert "ulimit -n" in done.stderr


def test_what_takes_the_place_of_a_trace_being_recorded_is_left_alone(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The directory is renamed, and its name given to a link: nothing is written where that leads."""
    trace, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [*NETPROF, "attach", str(sleeper.pid), "--out", str(trace), "--duration", "4s", "--no-live"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for_recording(trace)
    done = run("attach", str(sleeper.pid), "--out", trace, "--duration", "1s", "--force")
    assert (done.returncode, "is being recorded by another netprof" in done.stderr) == (1, True)
    trace.rename(tmp_path / "moved")
    trace.symlink_to(elsewhere)
    recorder.communicate(timeout=30)
    assert list(elsewhere.iterdir()) == []
    assert TraceReader(tmp_path / "moved").meta.stop_reason == "the duration was reached"


def wait_for_recording(trace: Path) -> None:
    until_s = time.monotonic() + 20
    while not (trace / "meta.json").exists() or not TraceReader(trace).meta.probes_started:
        assert time.monotonic() < until_s
        time.sleep(0.02)


MAPS = """
import mmap, sys, time
kept = []
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        kept.append(mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print("mapped", flush=True)
time.sleep(120)
"""


MAPS_WHEN_TOLD = MAPS.replace("kept = []", "kept = []; sys.stdin.readline()")


def sparse_library(path: Path) -> str:
    """Make a library that takes no room, and says that the names of its symbols are 255 MiB long."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 3, 62, 1, 0, 64, 4096, 0, 64, 56, 0, 64, 2, 0
    )
    sections = [(0, 11, 0, 0, 1 << 32, 24, 1, 0, 1, 24), (0, 3, 0, 0, 1 << 34, 255 << 20, 0, 0, 1, 24)]
    with path.open("wb") as file:
        file.write(header)
        file.seek(4096)
        file.write(b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections))
        file.truncate(1 << 40)
    return str(path)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that maps forty such libraries: 10 GB of names."""
    paths = [sparse_library(tmp_path / f"libtorch_cpu.so.{number}") for number in range(40)]
    with subprocess.Popen([sys.executable, "-c", MAPS, *paths], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mapped\n"
        yield process
        process.kill()


def test_hostile_libraries_hold_up_nobody_for_long(hostile: subprocess.Popen[str], tmp_path: Path) -> None:
    begin_s = time.monotonic()
    done = run("attach", str(hostile.pid), "--duration", "1s", "--no-live", "--out", tmp_path / "t")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin_s < 25  # ten of reading
    skipped = TraceReader(tmp_path / "t").meta.probes_skipped
    assert any("takes too long" in probe.reason for probe in skipped)


def test_a_diagnosis_reads_hostile_libraries_for_as_long(hostile: subprocess.Popen[str]) -> None:
    begin_s = time.monotonic()
    done = run("doctor", str(hostile.pid))
    assert time.monotonic() - begin_s < 25
    assert "takes too long" in done.stdout


def test_libraries_that_come_up_later_hold_up_no_draining(tmp_path: Path) -> None:
    """The recording's loop goes round as often as before, while ten seconds of hostile names are read."""
    paths = [sparse_library(tmp_path / f"libtorch_cpu.so.{number}") for number in range(40)]
    with subprocess.Popen(
        [sys.executable, "-c", MAPS_WHEN_TOLD, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            recorder = Recorder(find_job([process.pid]), RecordingOptions(tmp_path / "t"), ["netprof"])
            recorder.start()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "mapped\n"
            recorder.job.expect_changes()
            longest_s, said = 0.0, False
            until_s = time.monotonic() + 25
            while time.monotonic() < until_s and not said:
                recorder.job.wait(TICK_S)
                begin_s = time.monotonic()
                recorder.tick()
                longest_s = max(longest_s, time.monotonic() - begin_s)
                said = any("takes too long" in probe.reason for probe in recorder.meta.probes_skipped)
            recorder.stop("test")
            assert said
            assert longest_s < 1, "what is read takes ten seconds"
        finally:
            process.kill()


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_attaching_is_interrupted_at_once(hostile: subprocess.Popen[str], number: int, tmp_path: Path) -> None:
    command = [*NETPROF, "attach", str(hostile.pid), "--no-live", "--out", str(tmp_path / "t")]
    recorder = subprocess.Popen(command, stderr=subprocess.PIPE)
    until_s = time.monotonic() + 10
    while not (tmp_path / "t").exists():  # it is made before anything is attached
        assert time.monotonic() < until_s
        time.sleep(0.02)
    time.sleep(1)  # among the libraries
    recorder.send_signal(number)
    begin_s = time.monotonic()
    _, said = recorder.communicate(timeout=20)
    assert time.monotonic() - begin_s < 2
    assert (recorder.returncode, said) == (130, b"")
    assert not (tmp_path / "t").exists()
