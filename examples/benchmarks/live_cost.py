"""What the live view costs: the recorder's CPU time and memory with and without it, and updates a second.

    python examples/benchmarks/live_cost.py [--size 120x40] [--seconds 15] [--rounds 4]

A 2-rank DDP job trains over a 1 Gbit/s link; the recorder attaches to it alternately without a view (`--no-live`) and
with one on a pseudo-terminal (whose other end is read and thrown away). Both are asked for their own CPU time (from
/proc) over the first second after the first rows are written, and between two moments in the middle of the recording,
so that start, attach and report do not count. An update is a burst of output that follows 50 ms of silence. Needs root.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import statistics
import struct
import subprocess
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from _places import NETPROF
from _speed import say_speed
from lab import Lab
from support.training import training

FIRST_S, WARM_UP_S, QUIET_S = 1.0, 5.0, 0.05
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One recording: CPU in cores (in the first second, later), peak memory, updates of the screen a second, bytes of
    each.
    """

    first_cpu: float
    cpu: float
    memory_mb: float
    updates_per_s: float = 0.0
    update_bytes: float = 0.0


class Reader(threading.Thread):
    """Reads a pseudo-terminal empty and counts the bursts."""

    def __init__(self, master: int) -> None:
        super().__init__(daemon=True)
        self.master, self.bursts, self.bytes = master, 0, 0

    def run(self) -> None:
        last_s = 0.0
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            now_s = time.monotonic()
            self.bursts += now_s - last_s > QUIET_S
            self.bytes += len(data)
            last_s = now_s


def cpu_over(pid: int, seconds: float) -> float:
    """Return how many cores a process takes in the next `seconds`."""
    before_s, began_s = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(pid) - before_s) / (time.monotonic() - began_s)


def cpu_s(pid: int) -> float:
    """Return a process's user and system time so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mb(pid: int) -> float:
    """Return a process's peak resident memory in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


def record(pid: int, seconds: float, size: tuple[int, int] | None, directory: Path) -> Measured:
    """Attach for WARM_UP_S + `seconds`, with a live view of `size` or without, and measure the second part."""
    trace = directory / f"{time.monotonic_ns()}.netprof"
    command = [NETPROF, "attach", str(pid), "--out", str(trace)]
    reader, slave = None, subprocess.DEVNULL
    if size is None:
        command.append("--no-live")
        process = subprocess.Popen(command, stdout=slave, stderr=slave)
    else:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        reader = Reader(master)
        reader.start()
    while not (trace / "wire.arrows").exists():
        time.sleep(0.05)
        assert process.poll() is None, "the recorder ended"
    first = cpu_over(process.pid, FIRST_S)
    time.sleep(WARM_UP_S - FIRST_S)
    bursts, amount = (reader.bursts, reader.bytes) if reader else (0, 0)
    result = Measured(first, cpu_over(process.pid, seconds), peak_mb(process.pid))
    if reader:
        shown = reader.bursts - bursts
        result.updates_per_s, result.update_bytes = shown / seconds, (reader.bytes - amount) / max(shown, 1)
    process.terminate()
    process.wait()
    if reader:
        os.close(slave)
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    say_speed()
    columns, _, lines = options.size.partition("x")
    size = int(columns), int(lines)
    without, shown = [], []
    job = ["--gradient-mb", "16", "--bucket-cap-mb", "8", "--data-ms", "20"]
    with tempfile.TemporaryDirectory() as name, Lab(options.ranks, rate="1gbit") as lab:
        place = Path(name)
        with training([host.popen for host in lab], place, *job, master=f"{lab[0].ipv4}:29500") as running:
            for _ in range(options.rounds):
                without.append(record(running.pids[0], options.seconds, None, place))
                shown.append(record(running.pids[0], options.seconds, size, place))
    pairs = list(zip(shown, without, strict=True))
    extra, first = [a.cpu - b.cpu for a, b in pairs], [a.first_cpu - b.first_cpu for a, b in pairs]
    print(f"{options.rounds} pairs of {options.seconds:.0f} s, {options.ranks} ranks, {options.size}")
    print(f"{'':10} {'CPU, % of a core':>22} {'peak memory, MB':>16} {'updates/s':>10} {'bytes an update':>16}")
    for label, rows in (("without", without), ("with", shown)):
        cpu = sorted(100 * row.cpu for row in rows)
        spread = f"{statistics.median(cpu):.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f})"
        memory = max(row.memory_mb for row in rows)
        updates, amount = (
            statistics.median(getattr(row, key) for row in rows) for key in ("updates_per_s", "update_bytes")
        )
        print(f"{label:10} {spread:>22} {memory:>16.1f} {updates:>10.1f} {amount:>16.0f}")
    print(f"the view: {100 * statistics.median(extra):.1f} % of a core (median of the pairs' differences)")
    low, high = 100 * min(first), 100 * max(first)
    print(f"in the first second: {100 * statistics.median(first):.1f} % ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
