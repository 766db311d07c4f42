"""How long attaching takes until the first event is in, and detaching. Needs root and torch.

    python examples/benchmarks/attach_time.py [--repeats 9]

The target is a DDP rank that iterates all the time, with libtorch loaded. `attach` is from the call until the first
recorded event's own time stamp; `command` the same from the start of `netprof attach` (interpreter and imports
included); `detach` from the decision to stop until the trace is complete. On a terminal of 80x24: `screen` from the
start of the command until a word can be read, `quit` from pressing q until the next line is there. Medians, and the
largest; beside them the CPU time that the recorder took for it: what counts where CPUs are busy.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import numpy as np
from _places import NETPROF
from _results import keep
from _speed import say_speed
from attach_overhead import Job

from netprof.probes.job.processes import find_job
from netprof.session.options import RecordingOptions
from netprof.session.recorder import TICK_S, Recorder
from netprof.trace import TraceReader


def attach_and_detach(pids: list[int], trace: Path) -> tuple[float, ...]:
    """Return the seconds until the first event, and the seconds to stop, inside this process; and both in CPU time."""
    begin_ns, begin_cpu_s = time.monotonic_ns(), time.process_time()
    recorder = Recorder(find_job(pids), RecordingOptions(out=trace, force=True), [])
    recorder.start()
    started_cpu_s = time.process_time()
    while recorder.progress.first_event_ns is None:
        recorder.job.wait(TICK_S)
        recorder.tick()
    stop_ns, stop_cpu_s = time.monotonic_ns(), time.process_time()
    recorder.stop("measured")
    first_s, stop_s = (recorder.progress.first_event_ns - begin_ns) / 1e9, (time.monotonic_ns() - stop_ns) / 1e9
    return first_s, stop_s, started_cpu_s - begin_cpu_s, time.process_time() - stop_cpu_s


def whole_command(pids: list[int], trace: Path) -> tuple[float, float]:
    """Return the seconds from starting `netprof attach` until the first event, and its CPU time by the first flush."""
    begin_ns = time.monotonic_ns()
    command = [NETPROF, "attach", *map(str, pids), "--out", str(trace), "--force", "--duration", "1.5s", "--no-live"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        while process.poll() is None and not _holds_marks(trace, begin_ns):
            time.sleep(0.005)
        cpu_s = _cpu_s(process.pid)
    first_ns = TraceReader(trace).table("marks").column("time_ns").to_numpy().min()
    return float(first_ns - begin_ns) / 1e9, cpu_s


def on_terminal(pids: list[int], trace: Path) -> tuple[float, float]:
    """Return the seconds until the live view shows a word, and from pressing q until it says something to that."""
    command = [NETPROF, "attach", *map(str, pids), "--out", str(trace), "--force"]
    begin_s = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], command, os.environ | {"TERM": "xterm-256color"})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown_s = _shows(terminal, rb"[A-Za-z]{3}") - begin_s
    until_s = time.monotonic() + 3
    while time.monotonic() < until_s and _read(terminal):  # a picture every half second at least
        pass
    os.write(terminal, b"q")
    pressed_s = time.monotonic()
    quit_s = _shows(terminal, rb"netprof: ") - pressed_s
    while _read(terminal):
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown_s, quit_s


def _shows(terminal: int, words: bytes) -> float:
    """Wait until something like `words` is on the terminal, beside its escape sequences; return when that was."""
    seen = b""
    while more := _read(terminal):
        seen += more
        if re.search(words, re.sub(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[^\[])", b"", seen)):
            return time.monotonic()
    raise SystemExit("the program ended too early")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def _holds_marks(trace: Path, since_ns: int) -> bool:
    """Say whether marks were written to the trace since CLOCK_MONOTONIC `since_ns`: before, it is an older one."""
    try:
        written_ns = (trace / "marks.arrows").stat().st_mtime_ns
    except OSError:
        return False
    return written_ns - time.time_ns() + time.monotonic_ns() >= since_ns


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    say_speed()
    job = Job(1, ["64", "4", "8"], 29549)
    try:
        job.begin(10_000_000)
        with tempfile.TemporaryDirectory() as directory:
            trace = Path(directory) / "t.netprof"
            inside = np.array([attach_and_detach(job.pids, trace) for _ in range(repeats)])
            command = np.array([whole_command(job.pids, trace) for _ in range(repeats)])
            terminal = np.array([on_terminal(job.pids, trace) for _ in range(repeats)])
    finally:
        job.stop()
    found = {"attach": inside[:, (0, 2)], "command": command, "detach": inside[:, (1, 3)]}
    for name, (values, cpu) in ((name, each.T) for name, each in found.items()):
        keep(of=name, seconds=values.tolist(), cpu_s=cpu.tolist())
        print(
            f"{name:8} median {np.median(values):.3f} s, largest {values.max():.3f} s; "
            f"CPU time {np.median(cpu):.3f} s ({repeats} times)"
        )
    for name, values in zip(("screen", "quit"), terminal.T, strict=True):
        keep(of=name, seconds=values.tolist())
        print(f"{name:8} median {np.median(values):.3f} s, largest {values.max():.3f} s ({repeats} times)")


if __name__ == "__main__":
    main()
