"""What sockets that do nothing cost a recording, and whether as many as fit the table of flows are exact. Needs root.

    python examples/benchmarks/many_sockets.py [--idle 100000] [--busy 65000]

A job that holds `--idle` connections, to other processes: how long attaching takes, and how much CPU a second of
recording, with nothing else going on. Then `--busy` of them move 1000 bytes each, as fast as can be; their bytes
are compared with what was sent.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import _places  # noqa: F401 - finds netprof
from _speed import say_speed

from netprof.probes.flow.probe import FlowProbe

EACH_BYTES = 1000
PER_PROCESS = 16_000  # connections: a process may open 20,000 files on many machines, and there are 28,000 ports
JOB = """
import json, socket, sys, threading
address, count = json.loads(sys.argv[1]), int(sys.argv[2])
held = [socket.create_connection(tuple(address)) for _ in range(count)]
print("connected", flush=True)
for line in sys.stdin:
    for connection in held[: int(line)]:
        connection.sendall(bytes(1000))
    print("sent", flush=True)
"""
OTHER = """
import json, resource, selectors, socket, sys
poll = selectors.DefaultSelector()
listener = socket.create_server((sys.argv[1], 0), backlog=4096)
listener.setblocking(False)
poll.register(listener, selectors.EVENT_READ, True)
print(json.dumps(listener.getsockname()), flush=True)
while True:
    for key, _ in poll.select():
        try:
            if key.data:
                while True:
                    connection, _ = key.fileobj.accept()
                    connection.setblocking(False)
                    poll.register(connection, selectors.EVENT_READ, False)
            elif not key.fileobj.recv(65536):
                poll.unregister(key.fileobj)
        except BlockingIOError:
            pass
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python program that talks by lines."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], **pipes)  # type: ignore[call-overload, no-any-return]


def cpu_of_recording(probe: FlowProbe, seconds: float) -> tuple[float, int]:
    """Drain a probe as a recorder does; return the CPU time a second, and the payload bytes in what it gave."""
    begin_s, cpu_s, payload = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begin_s < seconds:
        payload += int(probe.drain()["wire"]["payload_bytes"].sum())
        time.sleep(FlowProbe.period_s)
    return (time.process_time() - cpu_s) / (time.monotonic() - begin_s), payload


class Half:
    """A process of the job with some of the connections, and the one that it is connected to."""

    def __init__(self, number: int, connections: int) -> None:
        self.other = started(OTHER, f"127.7.0.{number + 1}")
        assert self.other.stdout is not None
        self.job = started(JOB, self.other.stdout.readline(), str(connections))
        self.says("connected")

    def says(self, word: str) -> None:
        """Wait until the process of the job says it."""
        assert self.job.stdout is not None
        assert self.job.stdout.readline() == f"{word}\n"

    def send(self, connections: int) -> None:
        """Have some of the connections move bytes."""
        assert self.job.stdin is not None
        self.job.stdin.write(f"{connections}\n")
        self.job.stdin.flush()

    def end(self) -> None:
        for process in (self.job, self.other):
            process.kill()
            process.communicate()


def measure(halves: list[Half], idle: int, busy: int) -> None:
    with FlowProbe(1_000_000) as probe:
        begin_s = time.monotonic()
        for half in halves:
            probe.targets.add(half.job.pid)
        probe.follow(())
        print(f"attaching to {idle} idle connections  {time.monotonic() - begin_s:6.2f} s")
        share, _ = cpu_of_recording(probe, 10.0)
        print(f"recording them                       {100 * share:6.2f} % of a core")
        each = busy // len(halves)
        for half in halves:
            half.send(each)
        share, payload = cpu_of_recording(probe, 5.0)
        for half in halves:
            half.says("sent")
        payload += int(probe.drain(final=True)["wire"]["payload_bytes"].sum())
        print(f"recording {each * len(halves)} busy ones           {100 * share:6.2f} % of a core")
        print(
            f"payload {payload} of {each * len(halves) * EACH_BYTES} bytes; {json.dumps(vars(probe.describe().losses))}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=100_000)
    parser.add_argument("--busy", type=int, default=65_000)
    options = parser.parse_args()
    say_speed()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    halves: list[Half] = []
    try:
        processes = -(-options.idle // PER_PROCESS)
        for number in range(processes):
            halves.append(Half(number, options.idle // processes))
        measure(halves, options.idle, options.busy)
    finally:
        for half in halves:
            half.end()


if __name__ == "__main__":
    main()
