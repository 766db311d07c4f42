"""`netprof run -- CMD`: from the first iteration on; exit code and output are the job's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.training import TRAIN, free_port, netprof

from netprof.analysis import analyze
from netprof.trace import TraceReader

pytestmark = [pytest.mark.timing, pytest.mark.skipif(os.geteuid() != 0, reason="BPF needs root")]
NETPROF = [sys.executable, "-m", "netprof"]


@pytest.mark.core
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_exit_code_and_output_are_the_job_s(script: str, code: int, tmp_path: Path) -> None:
    job = f"printf 'to stdout'; printf 'to stderr' >&2; {script}"
    done = netprof("run", "--out", str(tmp_path / "t"), "--", "sh", "-c", job)
    assert done.returncode == code
    assert done.stdout == "to stdout"
    assert done.stderr.startswith("to stderr")
    assert TraceReader(tmp_path / "t").meta.stop_reason == "the job ended"


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = netprof("run", "--out", str(tmp_path / "t"), "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr.startswith("netprof: cannot run no-such-program")


def test_without_a_command() -> None:
    assert netprof("run").returncode == 2


def test_the_job_sees_nothing_of_it(tmp_path: Path) -> None:
    """Same environment, same standard input, no file of ours, default signals."""
    look = "import os,signal,sys; print(sorted(os.listdir('/proc/self/fd')), signal.getsignal(2), "
    look += "sys.stdin.read(), sorted(os.environ))"
    direct = subprocess.run([sys.executable, "-c", look], input="typed", capture_output=True, text=True, check=True)
    command = [*NETPROF, "run", "--out", str(tmp_path / "t"), "--", sys.executable, "-c", look]
    under = subprocess.run(command, input="typed", capture_output=True, text=True, check=True)
    assert under.stdout == direct.stdout


@pytest.mark.core
def test_every_iteration_from_the_first(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the job is a PyTorch one")
    log, trace = tmp_path / "log.csv", tmp_path / "t.netprof"
    job = [sys.executable, str(TRAIN), "--rank", "0", "--world-size", "1", "--master", f"127.0.0.1:{free_port()}"]
    job += ["--iterations", "30", "--gradient-mb", "2", "--width", "256", "--log", str(log)]
    done = netprof("run", "--out", str(trace), "--json", str(tmp_path / "r.json"), "--", *job)
    assert done.returncode == 0, done.stderr
    logged = np.loadtxt(log, delimiter=",", skiprows=1, usecols=(2, 3), dtype=np.int64)
    found = analyze(TraceReader(trace)).evidence.iterations
    assert len(logged) == 30
    assert len(found) == 29  # the last one has no next one that would end it
    assert ((found.begin_ns > logged[:-1, 0]) & (found.begin_ns < logged[:-1, 1])).all()
    assert json.loads((tmp_path / "r.json").read_text())["iterations"]["count"] == 29


@pytest.mark.core
def test_a_signal_is_passed_on(tmp_path: Path) -> None:
    job = "trap 'echo got TERM; exit 5' TERM; echo ready; while true; do sleep 0.05; done"
    command = [*NETPROF, "run", "--out", str(tmp_path / "t"), "--", "sh", "-c", job]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "got TERM\n"
    assert process.returncode == 5


def test_a_signal_is_passed_on_after_the_recording_ended(tmp_path: Path) -> None:
    job = "trap 'exit 5' TERM; echo ready; while true; do sleep 0.05; done"
    command = [*NETPROF, "run", "--duration", "0.2s", "--out", str(tmp_path / "t"), "--", "sh", "-c", job]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while json.loads((tmp_path / "t" / "meta.json").read_text())["stop_reason"] == "":
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 5


def test_nohup_holds_for_the_job(tmp_path: Path) -> None:
    look = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
    command = [*NETPROF, "run", "--out", str(tmp_path / "t"), "--", sys.executable, "-c", look]
    done = subprocess.run(["nohup", *command], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def children(pid: int) -> list[int]:
    """The processes that one has started and that have not been waited for."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def begun(trace: Path, *job: str) -> subprocess.Popen[str]:
    """Return netprof as soon as its job is there, which may be before it has begun."""
    command = [*NETPROF, "run", "--out", str(trace), "--", *job]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: bool(children(started.pid)))
    return started


def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.002)


@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.2])
def test_a_job_that_is_killed_before_it_begins_was_killed(after_s: float, tmp_path: Path) -> None:
    started = begun(tmp_path / "t", "sleep", "5")
    time.sleep(after_s)
    os.kill(children(started.pid)[0], signal.SIGKILL)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 137, said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6])
def test_after_the_job_no_signal_changes_the_exit_code(number: signal.Signals, after_s: float, tmp_path: Path) -> None:
    """While the report is made, or when netprof is about to end: a terminal is closed, an allocation is over."""
    started = begun(tmp_path / "t", "sh", "-c", "sleep 0.5; exit 7")
    until(lambda: not children(started.pid))
    time.sleep(after_s)
    started.send_signal(number)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 7, said
    assert "Traceback" not in said
    assert TraceReader(tmp_path / "t").meta.stop_reason == "the job ended"


def test_a_command_without_a_name(tmp_path: Path) -> None:
    done = netprof("run", "--out", str(tmp_path / "t"), "--", "")
    assert done.returncode == 127
    assert "Traceback" not in done.stderr


def test_a_command_s_name_reaches_no_terminal_raw(tmp_path: Path) -> None:
    done = netprof("run", "--out", str(tmp_path / "t"), "--", "no\x1b[31m")
    assert done.returncode == 127
    assert "\x1b" not in done.stderr
