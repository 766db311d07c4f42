"""A long recording that is left no peace: is every byte accounted for, and does memory stay where it is? Needs root.

    python examples/benchmarks/soak.py [--minutes 2] [--seed 1]

The job holds `--flows` connections that are busy in every millisecond, and starts and ends other processes at random,
each of which opens connections one after the other and moves a random number of bytes on each. Meanwhile the recorder
and the job are stopped (SIGSTOP) at random moments, the recorder for up to ten seconds. In the end what the processes
say that they sent is held against the trace, and TCP's own totals against what was counted (`reconciliation`); the
recorder's memory, without the pages that it shares with the kernel, is printed over time. Ends with 1 where a byte is
not accounted for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _busy_flows import busy_flows
from _places import NETPROF

JOB = r"""
import random, select, subprocess, sys
port, seed = int(sys.argv[1]), sys.argv[2]
ONE = '''
import os, random, socket, sys, time
rng, port, until = random.Random(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    total, begin_ns = 0, time.monotonic_ns()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(rng.choice((1, 1, 2, 20))):
            message = bytes(rng.choice((1, 700, 9000, 200000)))
            connection.sendall(message)
            total += len(message)
            time.sleep(rng.choice((0, 0, 0.002, 0.05)))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
        said = f"[{connection.getsockname()[1]},{total},{begin_ns},{time.monotonic_ns()}]\\n"
        os.write(1, said.encode())  # at once: other processes write here too
    time.sleep(rng.choice((0, 0.001, 0.02)))
'''
rng, running, over = random.Random(seed), [], False
sys.stdin.readline()
while not over or running:
    if not over and len(running) < 6 and rng.random() < 0.2:
        command = [sys.executable, "-c", ONE, str(rng.random()), str(port), str(rng.uniform(0.2, 8))]
        running.append(subprocess.Popen(command))
    running = [process for process in running if process.poll() is None]
    if not over and select.select([sys.stdin], [], [], 0.1)[0]:
        over = bool(sys.stdin.readline())
print("over", flush=True)
sys.stdin.readline()
"""
PEER = r"""
import socket, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(listener.getsockname()[1], flush=True)
def answer(connection):
    with connection:
        while connection.recv(1 << 20):
            pass
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass
class Watched:
    """A recorder at work: its memory over time, and how often and for how long it was stopped."""

    process: subprocess.Popen[bytes]
    memory_bytes: list[int] = field(default_factory=list)
    stops: int = 0
    stopped_s: float = 0.0

    def look(self) -> None:
        """Note its memory, without the pages of files and of the kernel's rings."""
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        self.memory_bytes.append(int(status["RssAnon"].split()[0]) * 1024)

    def stop_for(self, seconds: float) -> None:
        """Let it stand still."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)
        self.stops, self.stopped_s = self.stops + 1, self.stopped_s + seconds


@contextmanager
def program(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python program that talks by lines."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], **pipes)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    """Return a program's next line."""
    assert process.stdout is not None
    return str(process.stdout.readline())


def tell(process: subprocess.Popen[str], word: str) -> None:
    """Send a program a line."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def disturb(recorder: Watched, job_pids: list[int], minutes: float, rng: random.Random) -> None:
    """Stop the recorder and the job at random moments for as long as the soak lasts."""
    end_s = time.monotonic() + minutes * 60
    while (left_s := end_s - time.monotonic()) > 0:
        recorder.look()
        choice = rng.random()
        if choice < 0.15:
            recorder.stop_for(min(rng.choice((0.1, 1.0, 4.0, 10.0)), left_s))
        elif choice < 0.3:
            pid = rng.choice(job_pids)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0, 1.5))
            os.kill(pid, signal.SIGCONT)
        time.sleep(min(rng.uniform(0.5, 4.0), max(left_s, 0)))


class Connections(threading.Thread):
    """Reads what the short processes say of each connection: its own port, bytes sent, and from when to when it was."""

    def __init__(self, job: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self._job = job
        self.sent: list[list[int]] = []
        self.start()

    def run(self) -> None:
        """Read until the job is over."""
        while (line := says(self._job)) != "over\n":
            self.sent.append(json.loads(line))

    @property
    def total_bytes(self) -> int:
        """What all of them sent."""
        return sum(each[1] for each in self.sent)

    def amiss(self, flows: list[dict[str, Any]]) -> list[str]:
        """Say which connections are not among `flows`, or with other bytes: of one port the one of that time."""
        seen: dict[int, list[tuple[int, int]]] = {}
        for flow in flows:
            at = seen.setdefault(int(flow["local"].rpartition(":")[2]), [])
            at.append((flow["tx"]["first_ns"] or flow["rx"]["first_ns"] or 0, flow["tx"]["payload_bytes"]))
        found = []
        for port, sent, begin_ns, end_ns in self.sent:
            counted = [amount for at_ns, amount in seen.get(port, []) if begin_ns <= at_ns <= end_ns]
            if counted != [sent]:
                found.append(
                    f"port {port} at {begin_ns / 1e9:.3f} s for {(end_ns - begin_ns) / 1e9:.3f} s: "
                    f"{counted} of {sent} bytes"
                )
        return found


def soak(options: argparse.Namespace, trace: Path) -> tuple[Watched, Connections, int]:
    """Record the job; return the recorder as it was, the short connections, and the port that they went to."""
    rng = random.Random(options.seed)
    with program(PEER) as peer, busy_flows(options.flows) as busy:
        port = int(says(peer))
        with program(JOB, str(port), str(options.seed)) as job:
            command = [NETPROF, "attach", str(busy), str(job.pid), "--no-live", "--out", str(trace), "--device", "lo"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                recorder = Watched(process)
                while not (trace / "wire.arrows").exists():
                    time.sleep(0.05)
                connections = Connections(job)
                tell(job, "begin")
                disturb(recorder, [busy, job.pid], options.minutes, rng)
                tell(job, "over")
                connections.join()
                time.sleep(2)
                process.send_signal(signal.SIGINT)
                process.wait(120)
    return recorder, connections, port


def report(trace: Path) -> dict[str, Any]:
    """Return the recording's report."""
    done = subprocess.run([NETPROF, "report", str(trace), "--json"], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    """Soak, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--flows", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "soak.netprof"
        recorder, connections, port = soak(options, trace)
        document = report(trace)
    books, losses, cost = document["reconciliation"], document["losses"], document["cost"]
    to_peer = [flow for flow in document["flows"] if flow["remote"].endswith(f":{port}")]
    counted = sum(flow["tx"]["payload_bytes"] for flow in to_peer)
    quarter = max(1, len(recorder.memory_bytes) // 4)
    early, late = (
        sorted(part)[len(part) // 2] / 1e6 for part in (_second(recorder, quarter), _last(recorder, quarter))
    )
    unknown_s = sum(link["unknown_s"] for link in document["links"])
    stood = f"the recorder stood still {recorder.stops} times for {recorder.stopped_s:.0f} s"
    by_tcp = books["tcp_sent_bytes"] + books["tcp_received_bytes"]
    amounts = f"unseen {books['unseen_bytes']} B, beyond {books['counted_beyond_bytes']} B, of {by_tcp} B by TCP"
    most = max(recorder.memory_bytes) / 1e6
    rows = [
        ("recorded", f"{document['recording_s']:.0f} s, {stood}"),
        (
            "short connections",
            f"{len(to_peer)} of {len(connections.sent)}: {counted} of {connections.total_bytes} bytes sent",
        ),
        ("reconciliation", f"holds: {books['holds']}; {amounts}"),
        ("losses", json.dumps(losses)),
        ("unknown time", f"{unknown_s:.1f} s"),
        ("memory", f"{early:.1f} MB in the second quarter, {late:.1f} MB in the last, {most:.1f} MB at most"),
        ("cost", f"{cost['cpu_share']:.1%} of a core, {cost['trace_bytes'] / 1e6:.1f} MB of trace"),
    ]
    amiss = connections.amiss(to_peer)
    rows += [("amiss", text) for text in amiss[:20]]
    for name, text in rows:
        print(f"{name:18} {text}")
    return int(not (books["holds"] is True and not amiss))


def _second(recorder: Watched, quarter: int) -> list[int]:
    return recorder.memory_bytes[quarter : 2 * quarter] or recorder.memory_bytes


def _last(recorder: Watched, quarter: int) -> list[int]:
    return recorder.memory_bytes[-quarter:]


if __name__ == "__main__":
    sys.exit(main())
